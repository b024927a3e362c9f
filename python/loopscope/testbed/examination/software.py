"""What is installed on a machine: its kernel, and programs that loopscope starts there."""

from __future__ import annotations

from collections.abc import Iterator

from loopscope.testbed.examination.facts import Facts
from loopscope.testbed.examination.finding import Finding, either


def commands(binary: str, binary_hash: str) -> dict[str, list[str]]:
    """What the host side's program is asked on every machine, by the names of the answers.

    ``binary_hash``: the SHA-256 that a copy for sudo has to have.
    """
    return {
        "counter": [binary, "clock", "processors"],
        "programs": [binary, "programs"],
        "sudo": [binary, "setup", "--check", binary_hash],
    }


def kernel(facts: Facts) -> Finding:
    """The kernel and the processors."""
    release, kind = facts.text("release"), facts.text("kind")
    return Finding("kernel", True, f"{release} on {kind}, {facts.text('processors')} CPUs")


def ip(facts: Facts, cost: str) -> Finding:
    """The program that makes and changes networks."""
    found = facts.text("ip")
    return either("ip (iproute2)", bool(found), found, "not in PATH", cost)


def shared_memory(facts: Facts) -> Finding:
    """Where rings of events are."""
    return either(
        "/dev/shm",
        "/dev/shm" in facts.all("writable"),
        "writable",
        "not writable",
        "rings go to the temporary directory: slower, and on disk where that is a disk",
    )


def started_by_sudo(facts: Facts, unknown: str, absent: str) -> Iterator[Finding]:
    """What `become: sudo` starts, for runs of testbed ssh by the examined user.

    ``unknown`` and ``absent`` are the costs where that cannot be told and where it is not there.
    """
    answer = facts.answer("sudo")
    if answer is None:
        # Another finding says why.
        return
    what = "the program that become: sudo starts"
    if answer.failure:
        yield Finding(what, False, answer.failure, unknown)
        return
    found = answer.read()
    yield either(
        what,
        bool(found["copies"]) and not found["unsafe"],
        ", ".join(found["copies"]),
        found["unsafe"] or "not installed",
        absent,
    )
