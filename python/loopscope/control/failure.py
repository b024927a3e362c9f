"""Failure of an experiment: the first cause, then the failures that followed from it."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from loopscope.control.host_loss import HostLoss
from loopscope.control.instant import Instant, PrintedLine
from loopscope.control.progress import Progress
from loopscope.provider.printable import printable

# How long after a failure what other components print may be because of it.
CONSEQUENCES_NS = 1_000_000_000
MOST_CONSEQUENCES = 30
BEFORE_OR_AFTER_LOSS = "before or after that (it is not known so closely when the host was lost)"
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
        self.to_show = self.first_line

    @property
    def first_line(self) -> str:
        """The first cause in a line."""
        return str(self).partition("\n")[0]

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


def in_order(failures: Iterable[Failure]) -> list[Failure]:
    """Failures so that nothing comes before what was surely earlier.

    Where nothing was, the loss of a host comes first: its peers fail because of it.
    """
    left = sorted(
        failures,
        key=lambda each: (
            isinstance(each, ComponentFailure),
            each.at.latest_ns,
            each.at.monotonic_ns,
        ),
    )
    ordered = []
    while left:
        free = (each for each in left if not any(surely_before(other, each) for other in left))
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
    left_out: int = 0
    """Bytes that it printed and that are not kept."""
    received_ns: int | None = None
    """CLOCK_MONOTONIC here when the failure was known here; None: unknown."""

    def __str__(self) -> str:
        return f"{self.component} on {self.host}: {self.what}"

    def lines(self) -> list[str]:
        """For people, the cause first."""
        out = [
            f"{self.component} on {self.host} failed in phase {self.phase}: {self.what}",
            f"  command: {printable(shlex.join(self.command))}",
        ]
        if self.core:
            # Agents name a file by its path in the component's folder.
            folder = f"{folder_of(self.host, self.component)}/" * self.core.startswith("files/")
            out.append(f"  core dump: {folder}{printable(self.core)}")
        if self.last_lines is not None:
            out.append(f"  at {self.at} s of global time")
            out += last_lines(self.last_lines)
            what = "all that it printed"
            if self.left_out:
                what = f"what it printed, without {self.left_out} bytes in the middle"
            out.append(f"  {what}: {output_of(self.host, self.component)}")
        return out


Failure = ComponentFailure | HostLoss


def surely_before(failure: Failure, other: Failure) -> bool:
    """Whether a failure was before another one, whatever the errors of the clocks."""
    if isinstance(failure, ComponentFailure) and isinstance(other, HostLoss):
        # The agent of its own host reported it. An agent that answered a question which was asked
        # when the failure was known here was alive after it.
        known = failure.received_ns is not None and failure.received_ns <= other.alive_ns
        return failure.host == other.host or known or failure.at.surely_before(other.at)
    if failure.host == other.host and type(failure) is not type(other):
        return False
    return failure.at.surely_before(other.at)


def last_lines(lines: Sequence[PrintedLine]) -> list[str]:
    """Text about the last lines of a component, with their times."""
    if not lines:
        return ["  it printed nothing"]
    what = "last line, after the global time in s when it was"
    if len(lines) > 1:
        what = f"last {len(lines)} lines, after the global time in s when they were"
    out = [f"  its {what} read:"]
    return out + [f"    {line.at}  {line.text}" for line in lines]


def output_of(host: str, component: str) -> str:
    """Where a component's output is in the directory of a repeat."""
    return f"{folder_of(host, component)}/stdout.log and stderr.log"


def folder_of(host: str, component: str) -> str:
    """A component's folder in the directory of a repeat."""
    return f"hosts/{host}/components/{component}"


class ComponentsFailed(RunFailed):
    """Components failed or hosts were lost; ``failures`` in the order in which that was, if known.

    ``more``: further lines about what came after the first failure. ``corrected``: the first line
    of what was shown as the first cause, where that was something else.
    """

    def __init__(
        self,
        failures: Sequence[Failure],
        stopped: Sequence[str],
        more: Sequence[str] = (),
        corrected: str = "",
    ) -> None:
        self.failures = in_order(failures)
        self.stopped = list(stopped)
        first, *later = self.failures
        lines = first.lines()
        self._correction = ""
        if corrected:
            self._correction = f"corrected: what was shown as the first cause was: {corrected}"
            lines.append(self._correction)
        lines += [*_followers(first, later), *more]
        if self.stopped:
            lines.append(f"stopped because of that: {', '.join(self.stopped)}")
        super().__init__("\n".join(lines))

    def show(self, progress: Progress) -> None:
        """Shows it now; its first line has to be shown again, and that it is a correction."""
        super().show(progress)
        if self._correction:
            self.to_show += f"\n{self._correction}"

    def completed(self, failures: Sequence[Failure], stopped: Sequence[str]) -> ComponentsFailed:
        """It with all that became known after it was shown."""
        first = str(self.failures[0])
        shown = str(self).split("\n")
        now = ComponentsFailed(failures, stopped)
        if str(now.failures[0]) != first:
            return ComponentsFailed(failures, stopped, corrected=shown[0])
        head, *lines = str(now).split("\n")
        now.to_show = "\n".join([head, *(line for line in lines if line not in shown)])
        return now


def _followers(first: Failure, later: Sequence[Failure]) -> list[str]:
    """Text about the failures that are not the first."""
    lines: list[str] = []
    # What the loss of a host led to is shown in full, once.
    in_full = isinstance(first, HostLoss)
    lost: dict[tuple[str, str], list[str]] = {}
    for failure in later:
        when = _when(first, failure)
        if isinstance(failure, HostLoss):
            lost.setdefault((when, failure.what), []).append(failure.host)
        elif in_full:
            head, *rest = failure.lines()
            lines += [f"{when}, {head}", *rest]
            in_full = False
        else:
            lines.append(f"{when}, {failure}")
    lines += [f"{when}, host {', '.join(hosts)}: {what}" for (when, what), hosts in lost.items()]
    return lines


def _when(first: Failure, later: Failure) -> str:
    if surely_before(first, later):
        return "after that"
    if isinstance(first, HostLoss) or isinstance(later, HostLoss):
        return BEFORE_OR_AFTER_LOSS
    return "before or after that (the clocks do not tell)"


def consequences(
    cause: Failure,
    printed: Mapping[str, Sequence[PrintedLine]],
    more: Collection[str] = (),
) -> list[str]:
    """Text about what other components printed up to a second after a failure.

    ``printed`` has each component's last lines, ``more`` the components that printed others before
    them. What may have come before the failure is marked. What a lost host has reported was before
    it was lost.
    """
    found: list[tuple[PrintedLine, str]] = []
    cut = []
    for component, lines in printed.items():
        own = isinstance(cause, ComponentFailure) and component == cause.component
        lost = isinstance(cause, HostLoss) and any(line.at.host == cause.host for line in lines)
        if own or lost:
            continue
        for line in lines:
            before = line.at.surely_before(cause.at)
            if not before and not line.at.surely_later_by(cause.at, CONSEQUENCES_NS):
                found.append((line, component))
        if component in more and not lines[0].at.surely_before(cause.at):
            cut.append(f"{component} ({output_of(lines[0].at.host, component)})")
    if not (found or cut):
        return []
    found.sort(key=lambda each: (each[0].at.latest_ns, each[0].at.monotonic_ns))
    out = ["what others printed within 1 s after it, after the global time in s when it was read:"]
    for line, component in found[:MOST_CONSEQUENCES]:
        mark = "" if cause.at.surely_before(line.at) else " (or before it)"
        out.append(f"  {line.at}  {component} on {line.at.host}{mark}: {line.text}")
    if len(found) > MOST_CONSEQUENCES:
        out.append(f"  and {len(found) - MOST_CONSEQUENCES} lines more")
    if cut:
        out.append(f"  these printed more, before the lines that are looked at: {', '.join(cut)}")
    return out


class PhaseTimedOut(RunFailed):
    """A phase did not end in time."""

    def __init__(
        self,
        phase: str,
        timeout_s: float,
        waiting: Sequence[str],
        lines: Sequence[str],
        stopped: Sequence[str],
        at_ns: int,
    ) -> None:
        """``at_ns``: when its time was over, by CLOCK_MONOTONIC here."""
        self.phase = phase
        self.waiting = list(waiting)
        self.stopped = list(stopped)
        self.at_ns = at_ns
        self._lines = [f"phase {phase} did not end within its timeout of {timeout_s:g} s", *lines]
        text = [*self._lines]
        if stopped:
            text.append(f"stopped because of that: {', '.join(stopped)}")
        super().__init__("\n".join(text))

    def completed(self, losses: Sequence[HostLoss], stopped: Sequence[str]) -> RunFailed:
        """It with the losses of hosts that became known after it was shown.

        A host that is not known to have been alive when the time was over may be why.
        """
        before = [loss for loss in losses if loss.alive_ns < self.at_ns]
        if not before:
            return self.with_lines(*(f"after that, {loss}" for loss in losses))
        head, *rest = self._lines
        more = [f"{BEFORE_OR_AFTER_LOSS}, {head}", *rest]
        return ComponentsFailed(losses, stopped, more, corrected=head)
