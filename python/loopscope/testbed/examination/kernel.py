"""By which source a machine's kernel can be recorded, and what of it is missing."""

from __future__ import annotations

from collections.abc import Iterator

from loopscope.experiment.kernel_events import CLASSES
from loopscope.testbed.examination.facts import Facts
from loopscope.testbed.examination.finding import Finding, either

# By programs in the kernel, not by tracefs.
BY_PROGRAMS = "bpf/"
TRACED = {name: each for name, each in CLASSES.items() if not each[0].startswith(BY_PROGRAMS)}
CPU = "/sys/devices/system/cpu/cpu0"
# capabilities(7): to mount tracefs takes it.
CAP_SYS_ADMIN = 1 << 21


def tracepoints() -> list[str]:
    """The tracepoints that are looked for, in folders of tracefs."""
    return [event for events in TRACED.values() for event in events]


def events(facts: Facts, to_be_root: str = "", if_asked: str = "") -> Iterator[Finding]:
    """Whether the kernel's events can be recorded, by the local testbed or an agent.

    ``to_be_root``: how an agent becomes root, for a user who is not. ``if_asked``: what has to ask
    for the events.
    """
    found, missing = "yes, through tracefs", ""
    if facts.text("tracefs"):
        offered = {clock.strip("[]") for clock in facts.text("trace_clock").split()}
        if "x86-tsc" not in offered:
            found = "of hosts whose counter is monotonic-raw alone: tracing has no x86-tsc clock"
    elif not facts.is_there("tracefs"):
        missing = "this kernel has no tracefs"
    elif not facts.is_root:
        missing = "takes root" + to_be_root
    elif not facts.capabilities & CAP_SYS_ADMIN:
        missing = "tracefs is not mounted, and root may not mount it, as in a container"
    else:
        found = "yes, tracefs is mounted for each run"
    *others, last = TRACED
    yield either(
        f"kernel events of classes {', '.join(others)} and {last}",
        not missing,
        found + if_asked,
        missing,
        "what a program waited for is not known: `loopscope why` has only for how long threads ran "
        "and waited for a processor, and when TCP's counts changed",
    )
    if facts.text("tracefs"):
        yield from _unobservable(facts)


def _unobservable(facts: Facts) -> Iterator[Finding]:
    """The events of classes that this kernel or machine does not have."""
    missing = set(facts.all("absent"))
    absent = [
        f"{name}:{event.rpartition('/')[2]}"
        for name, each in TRACED.items()
        for event in each
        if event in missing
    ]
    if not facts.is_there(f"{CPU}/cpufreq"):
        absent.append("idle:cpu_frequency (the machine shows no frequencies)")
    if not facts.is_there(f"{CPU}/cpuidle"):
        absent.append("idle:cpu_idle (the machine shows no idle states)")
    if absent:
        yield Finding(
            "some of these events",
            False,
            f"there are no {', '.join(absent)}",
            "what they tell is not observable here; results of runs name what was asked for and "
            "is missing",
        )


def counts(facts: Facts) -> Finding:
    """Whether there are counts of threads, which take the place of events."""
    return either(
        "counts of threads (schedstat), where kernel events cannot be recorded",
        facts.is_there("/proc/self/schedstat"),
        "yes, for ordinary users too, with TCP_INFO of their connections",
        "this kernel has no /proc/PID/schedstat",
        "without root nothing is known of what a program waited for",
    )


def programs(facts: Facts) -> Iterator[Finding]:
    """Whether the kernel's events that programs record can be recorded."""
    answer = facts.answer("programs")
    if answer is None:
        # Another finding says why.
        return
    works, why, untold = False, answer.failure, ""
    if not why:
        told = answer.read()
        works, why = told["works"] is True, str(told["why"])
        if not told["throttled"]:
            untold = "; this kernel does not tell when a cgroup has used up its processor time"
    yield either(
        "kernel events of classes sleep, call, tcp, udp and drop",
        works,
        f"yes, by programs in the kernel (BPF){untold}",
        why,
        "on what a thread slept, why TCP kept a message and what dropped one is not known: "
        "`loopscope why` says only that they did",
    )
