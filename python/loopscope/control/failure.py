"""Failure of an experiment: the first cause, then the failures that followed from it."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf


class RunFailed(Exception):
    """The run itself failed (exit code 4). The text is for people."""


class RunInterrupted(Exception):
    """The run was interrupted (exit code 130)."""


def printable(text: str) -> str:
    """The text with all escaped that a terminal would act on, but tabs and the ends of lines."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )


def describe_exit(code: int | None, signal_number: int | None) -> str:
    """``exit status 3`` or ``killed by SIGKILL (9)``."""
    if signal_number is not None:
        try:
            name = signal.Signals(signal_number).name
        except ValueError:
            name = "signal"
        return f"killed by {name} ({signal_number})"
    return f"exit status {code}"


@dataclass(frozen=True)
class Instant:
    """When a host's agent saw something."""

    host: str
    monotonic_ns: int
    """CLOCK_MONOTONIC of the host: orders what happened on it."""
    earliest_ns: float = -inf
    latest_ns: float = inf
    """Bounds on the global clock; infinite where the host's time is unknown."""

    def surely_before(self, other: Instant) -> bool:
        """Whether it was before the other one, whatever the errors of the clocks."""
        if self.host == other.host:
            return self.monotonic_ns < other.monotonic_ns
        return self.latest_ns < other.earliest_ns


def in_order(failures: Iterable[ComponentFailure]) -> list[ComponentFailure]:
    """Failures so that nothing comes before what was surely earlier."""
    left = sorted(failures, key=lambda failure: (failure.at.latest_ns, failure.at.monotonic_ns))
    ordered = []
    while left:
        free = (each for each in left if not any(other.at.surely_before(each.at) for other in left))
        # Instants that contradict each other are of a host that reports what cannot be.
        first = next(free, left[0])
        left.remove(first)
        ordered.append(first)
    return ordered


@dataclass(frozen=True)
class ComponentFailure:
    """One component's failure."""

    component: str
    host: str
    phase: str
    command: Sequence[str]
    what: str
    at: Instant
    # None: it never ran.
    last_lines: Sequence[str] | None = None

    def lines(self) -> list[str]:
        """For people, the cause first."""
        out = [
            f"{self.component} on {self.host} failed in phase {self.phase}: {self.what}",
            f"  command: {printable(shlex.join(self.command))}",
        ]
        if self.last_lines is None:
            return out
        if self.last_lines:
            out.append(f"  its last {len(self.last_lines)} lines:")
            out += [f"    {line}" for line in self.last_lines]
        else:
            out.append("  it printed nothing")
        return out


class ComponentsFailed(RunFailed):
    """At least one component failed; ``failures`` in the order in which they did, if known."""

    def __init__(self, failures: Sequence[ComponentFailure], stopped: Sequence[str]) -> None:
        self.failures = in_order(failures)
        self.stopped = list(stopped)
        first, *later = self.failures
        lines = first.lines()
        for failure in later:
            known = first.at.surely_before(failure.at)
            when = "after that" if known else "before or after that (the clocks do not tell)"
            lines.append(f"{when}, {failure.component} on {failure.host}: {failure.what}")
        if self.stopped:
            lines.append(f"stopped because of that: {', '.join(self.stopped)}")
        super().__init__("\n".join(lines))


class PhaseTimedOut(RunFailed):
    """A phase did not end in time."""

    def __init__(
        self, phase: str, timeout_s: float, waiting: Sequence[str], lines: Sequence[str]
    ) -> None:
        self.phase = phase
        self.waiting = list(waiting)
        text = [f"phase {phase} did not end within its timeout of {timeout_s:g} s", *lines]
        super().__init__("\n".join(text))
