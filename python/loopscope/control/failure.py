"""Failure of an experiment: the first cause, then the failures that followed from it."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from loopscope.control.instant import Instant, PrintedLine
from loopscope.control.progress import Progress
from loopscope.provider.printable import printable

# How long after a failure what other components print may be because of it.
CONSEQUENCES_NS = 1_000_000_000
MOST_CONSEQUENCES = 30
# Exit statuses that a shell gives a meaning (POSIX, Shell Command Language 2.8.2).
OF_SHELLS = {
    126: "by a shell: the command was found and cannot be executed",
    127: "by a shell: the command was not found",
}


class RunFailed(Exception):
    """The run itself failed (exit code 4). The text is for people."""

    def __init__(self, text: str, to_show: str | None = None) -> None:
        """``to_show``: what of the text is still to be shown; None: all."""
        super().__init__(text)
        self.to_show = text if to_show is None else to_show

    def show(self, progress: Progress) -> None:
        """Shows it now; only its first line has to be shown again."""
        progress.failure(self.to_show)
        self.to_show = self.to_show.partition("\n")[0]

    def with_lines(self, *lines: str) -> RunFailed:
        """The failure with more lines at its end."""
        return RunFailed("\n".join((str(self), *lines)), "\n".join((self.to_show, *lines)))


class RunInterrupted(Exception):
    """The run was interrupted (exit code 130)."""


def describe_exit(code: int | None, signal_number: int | None) -> str:
    """``exit status 3`` or ``killed by SIGKILL (9)``."""
    if signal_number is not None:
        try:
            name = signal.Signals(signal_number).name
        except ValueError:
            name = "signal"
        return f"killed by {name} ({signal_number})"
    return f"exit status {code}"


def meaning(code: int | None, signal_number: int | None) -> str | None:
    """What an exit status or a signal means, where that is known."""
    if signal_number == signal.SIGKILL:
        return "by somebody, or by the kernel because memory ran out (dmesg tells)"
    if signal_number is not None:
        try:
            return (signal.strsignal(signal_number) or "").lower() or None
        except ValueError:  # no system has such a signal
            return None
    if code in OF_SHELLS:
        return OF_SHELLS[code]
    if code is not None and 128 < code < 128 + signal.NSIG:
        return f"by a shell: its program was {describe_exit(None, code - 128)}"
    return None


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
    last_lines: Sequence[PrintedLine] | None = None
    """None: it never ran."""
    core: str = ""
    """Where its core dump is; empty: there is none."""

    def lines(self) -> list[str]:
        """For people, the cause first."""
        out = [
            f"{self.component} on {self.host} failed in phase {self.phase}: {self.what}",
            f"  command: {printable(shlex.join(self.command))}",
        ]
        if self.core:
            out.append(f"  core dump: {printable(self.core)}")
        if self.last_lines is not None:
            out.append(f"  at {self.at} s of global time")
            out += last_lines(self.last_lines)
            out.append(f"  all that it printed: {output_of(self.host, self.component)}")
        return out


def last_lines(lines: Sequence[PrintedLine]) -> list[str]:
    """Text about the last lines of a component, with their times."""
    if not lines:
        return ["  it printed nothing"]
    out = [f"  its last {len(lines)} lines, after the global time in s when they were read:"]
    return out + [f"    {line.at}  {line.text}" for line in lines]


def output_of(host: str, component: str) -> str:
    """Where a component's output is in the directory of a repeat."""
    return f"hosts/{host}/components/{component}/stdout.log and stderr.log"


class ComponentsFailed(RunFailed):
    """At least one component failed; ``failures`` in the order in which they did, if known."""

    def __init__(self, failures: Sequence[ComponentFailure], stopped: Sequence[str]) -> None:
        self.failures = in_order(failures)
        self.stopped = list(stopped)
        first, *later = self.failures
        lines = first.lines()
        for failure in later:
            lines.append(
                f"{_when(first.at, failure.at)}, {failure.component} on {failure.host}: "
                f"{failure.what}"
            )
        if self.stopped:
            lines.append(f"stopped because of that: {', '.join(self.stopped)}")
        super().__init__("\n".join(lines))


def _when(first: Instant, later: Instant) -> str:
    if first.surely_before(later):
        return "after that"
    return "before or after that (the clocks do not tell)"


def consequences(
    cause: ComponentFailure, printed: Mapping[str, Sequence[PrintedLine]]
) -> list[str]:
    """Text about what other components printed up to a second after a failure.

    ``printed`` has each component's lines. What may have come before it is marked.
    """
    found: list[tuple[PrintedLine, str]] = []
    for component, lines in printed.items():
        for line in lines if component != cause.component else ():
            before = line.at.surely_before(cause.at)
            if not before and not line.at.surely_later_by(cause.at, CONSEQUENCES_NS):
                found.append((line, component))
    if not found:
        return []
    found.sort(key=lambda each: (each[0].at.latest_ns, each[0].at.monotonic_ns))
    out = ["what others printed within 1 s after it, after the global time in s when it was read:"]
    for line, component in found[:MOST_CONSEQUENCES]:
        mark = "" if cause.at.surely_before(line.at) else " (or before it)"
        out.append(f"  {line.at}  {component} on {line.at.host}{mark}: {line.text}")
    if len(found) > MOST_CONSEQUENCES:
        out.append(f"  and {len(found) - MOST_CONSEQUENCES} lines more")
    return out


class PhaseTimedOut(RunFailed):
    """A phase did not end in time."""

    def __init__(
        self, phase: str, timeout_s: float, waiting: Sequence[str], lines: Sequence[str]
    ) -> None:
        self.phase = phase
        self.waiting = list(waiting)
        text = [f"phase {phase} did not end within its timeout of {timeout_s:g} s", *lines]
        super().__init__("\n".join(text))
