"""What a machine has for clocks between hosts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loopscope.testbed.examination.facts import Facts
from loopscope.testbed.examination.finding import Finding, either

VMCLOCK = "/dev/vmclock0"
# Exit statuses of a shell for a program that is not there, or cannot be run.
NO_PROGRAM = (126, 127)


def counter(facts: Facts) -> Iterator[Finding]:
    """What stamps events, and whether it is one and the same on all processors."""
    answer = facts.answer("counter")
    if answer is None:
        # Another finding says why.
        return
    what = "one counter for all processors"
    if answer.failure:
        yield Finding(what, False, answer.failure, "no clocks between hosts")
        return
    found = answer.read()
    yield _kind_of_counter(found["counter"])
    within, pairs = f"{found['within_ns']:.0f} ns", found["pairs"]
    yield either(
        what,
        found["refused"] is None,
        f"within {within} of each other, by {pairs} pairs; times between hosts are that much wider",
        str(found["refused"]),
        f"no clocks between hosts: probes refuse counters more than {found['limit_ns']} ns apart",
    )


def _kind_of_counter(counter: dict[str, Any]) -> Finding:
    """Whether the processor's cycles stamp events, and what that costs."""
    kind, why, read = counter["kind"], counter["mistrust_of_cycles"], f"{counter['read_ns']:.1f} ns"
    what = "the processor's cycles as counter"
    if kind == "cycles":
        return either(
            what,
            why is None,
            f"invariant, and the kernel keeps time by them; a reading costs {read}",
            str(why),
            "LOOPSCOPE_COUNTER asks for them all the same: clock probes refuse them",
        )
    return Finding(
        what,
        False,
        str(why or "LOOPSCOPE_COUNTER asks for CLOCK_MONOTONIC_RAW"),
        f"events are stamped with CLOCK_MONOTONIC_RAW: a reading costs {read}, and it steps by "
        f"{counter['step_ns']:.0f} ns at most, which is added to the maximum error of every time",
    )


def moves(facts: Facts) -> Finding:
    """A virtual machine that is moved or set back; its counter may not show it."""
    what = "notice of a virtual machine's moves and snapshots"
    if not facts.is_there("hypervisor") and facts.text("kind") != "aarch64":
        return Finding(what, True, "the machine is not virtual")
    unreadable = f"{VMCLOCK} is not readable"
    return either(
        what,
        VMCLOCK in facts.all("readable"),
        f"VMClock, {VMCLOCK}",
        unreadable if facts.is_there(VMCLOCK) else f"no {VMCLOCK} (VMClock)",
        "of a virtual machine that is moved to another host or set back to a snapshot, only what "
        "its counter or CLOCK_BOOTTIME shows is noticed: until probes contradict it, bounds may be "
        "wrong",
    )


def stamps(facts: Facts) -> Iterator[Finding]:
    """Whether the kernel stamps packets."""
    answer = facts.answer("stamps")
    if answer is None:
        return
    what = "kernel packet stamps"
    if answer.status in NO_PROGRAM:
        yield Finding(
            what,
            False,
            "not examined: the machine has no python3 that could ask for them",
            "where the kernel gives none, clock probes are stamped by the program",
        )
        return
    yield either(
        what,
        not answer.failure,
        "SO_TIMESTAMPING, software",
        answer.failure.rpartition("; ")[2],
        "clock probes are stamped by the program: widths of tens of microseconds",
    )


def hardware_clocks(facts: Facts) -> Finding:
    """Whether network interfaces can stamp packets by a clock of their own."""

    def clocks(kind: str) -> list[str]:
        return sorted(
            path.removeprefix("/dev/") for path in facts.all(kind) if path.startswith("/dev/ptp")
        )

    found, readable = clocks("there"), clocks("readable")
    return either(
        "network interfaces with a clock",
        bool(readable),
        f"{', '.join(readable)}; stamps by them have not been tried on real hardware yet",
        f"{', '.join(found)}, not readable" if found else "no /dev/ptp*",
        "clock probes are stamped by the kernel, which queues in the driver disturb more",
    )


def governor(facts: Facts) -> Finding:
    """Whether the processors' frequency changes."""
    found = facts.text("governor")
    what = "frequency governor"
    if not found:
        return Finding(what, True, "none visible (fixed, or the host's business)")
    return either(
        what,
        found == "performance",
        found,
        found,
        "response times vary with the CPU's frequency: cpupower frequency-set -g performance",
    )
