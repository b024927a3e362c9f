"""What an experiment expects of each message of a path, and the verdict on one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopscope.analysis.measured import dropped_of
from loopscope.analysis.ranking import limit_of
from loopscope.analysis.verdict import Verdict
from loopscope.experiment import Expectation, Requirement

if TYPE_CHECKING:
    from loopscope.analysis.why import WhyMessage
    from loopscope.experiment import MessagePath, PathEvent
    from loopscope.timeline import Run


@dataclass(frozen=True)
class Expected:
    """What is expected of a message from the first to the last event explained."""

    limit_ns: int | None
    """The least of the times that it must not exceed; None where no time is expected."""
    lost: Verdict | None
    """The verdict on one that was lost; None where nothing is expected of losses."""

    def verdict(self, message: WhyMessage) -> Verdict | None:
        """PASS and FAIL where the maximum error leaves no doubt; None where nothing is expected."""
        if message.lost:
            return self.lost
        if self.limit_ns is None:
            return None
        if message.ns - message.err_ns > self.limit_ns:
            return Verdict.FAIL
        return Verdict.PASS if message.ns + message.err_ns <= self.limit_ns else Verdict.UNKNOWN


def expected(run: Run, explained: MessagePath) -> Expected:
    """What the experiment expects of the messages of a path, or of a way along one."""
    experiment = run.specification
    assert experiment is not None
    (path,) = (each for each in experiment.paths if each.name == explained.name)

    def ends(of: Expectation | Requirement) -> tuple[PathEvent, PathEvent]:
        first, last = path.loop if of.hop is None else (of.hop.start, of.hop.end)
        return path.events[first], path.events[last]

    whole = explained.events[0], explained.events[-1]
    of_path = (each for each in experiment.expectations if each.path == path.name)
    wanted = [each for each in of_path if ends(each) == whole]
    limits = [limit for each in wanted if (limit := limit_of(each)) is not None]
    lost = None
    if any(map(_forbids_losses, wanted)):
        # What seems lost may have an event that was dropped.
        lost = Verdict.UNKNOWN if any(dropped_of(run, explained)) else Verdict.FAIL
    return Expected(min(limits, default=None), lost)


def _forbids_losses(wanted: Expectation | Requirement) -> bool:
    if isinstance(wanted, Requirement):
        return wanted.kind == "complete"
    return wanted.stat == "lost" and wanted.op in ("<", "<=", "==")
