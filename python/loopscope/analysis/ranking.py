"""Causes by how many late messages they account for, and a path's times without one of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from loopscope.analysis.cause_words import CauseText, Kind, Words, by_kind, is_meant, summed_up
from loopscope.analysis.causes import UNKNOWN
from loopscope.analysis.document import UNLESS_EMPTY, Document
from loopscope.analysis.message_dag import MessageDag
from loopscope.analysis.path_result import TIMES
from loopscope.analysis.quantity_text import duration, number
from loopscope.analysis.verdict import Verdict
from loopscope.analysis.ways import only_way
from loopscope.analysis.why import can_explain, lost, slowest, why
from loopscope.experiment import Expectation, Requirement

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.measured import MeasuredPath
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.messages import Messages
    from loopscope.analysis.results import ExpectationResult
    from loopscope.analysis.why import WhyMessage
    from loopscope.analysis.window import RepeatTimes
    from loopscope.timeline import Run

MOST = 500
"""The slowest late messages, at most so many, are explained for the line of a verdict."""
_DIFFERENCES = ("jitter", "deviation", "asymmetry")
"""Statistics that are times, but none that a message takes."""


@dataclass(frozen=True)
class RankedCause(Document):
    """A cause of late messages."""

    name: str
    """The name of its parts, see `WhyPart`."""
    cause: str
    """In words: of all processors, and with the component in place of its threads, unless that is
    always the same one."""
    in_time: int
    """Late messages that would not be late without it."""
    messages: int
    """Late messages that it held at all."""
    ns: int
    """For how long it held them, together."""
    several: Annotated[tuple[tuple[str, ...], ...], UNLESS_EMPTY]
    """The processors or threads that ``cause`` does not name, see `CauseText`."""

    def __str__(self) -> str:
        return f"{self.name}: {CauseText(self.cause, self.several)}"


@dataclass(frozen=True)
class WithoutCause(Document):
    """A path's times as they were, and with the parts of some causes taken out of each message.

    An estimate: without its cause a message may have met another one.
    """

    cause: str
    messages: int
    """Messages that arrived."""
    held: int
    """Those of them that had a part of that cause."""
    with_it: Mapping[str, int]
    """ns by statistic, as it was."""
    without_it: Mapping[str, int]


def rank(late: Sequence[WhyMessage], limit_ns: int) -> list[RankedCause]:
    """The causes of messages that took longer than a limit, that of the most first."""
    sums: dict[Kind, list[int]] = defaultdict(lambda: [0, 0, 0])
    every: dict[Kind, Counter[Words]] = defaultdict(Counter)
    for message in late:
        for kind, held in by_kind(message.parts()).items():
            every[kind] += held
            ns = held.total()
            found = sums[kind]
            found[0] += message.ns - ns <= limit_ns
            found[1] += 1
            found[2] += ns
    causes = []
    for kind, (in_time, held_messages, ns) in sums.items():
        text, several = summed_up(every[kind])
        causes.append(RankedCause(kind[0], text, in_time, held_messages, ns, several))
    return sorted(causes, key=lambda each: (-each.in_time, -each.ns, each.cause))


def without(found: Sequence[WhyMessage], cause: str) -> WithoutCause:
    """A path's times without the causes that a text is part of, each as it is ranked.

    Raises `ValueError` if it is part of none.
    """
    by_message = [by_kind(message.parts()) for message in found]
    every: dict[Kind, set[Words]] = defaultdict(set)
    for kinds in by_message:
        for kind, causes in kinds.items():
            every[kind].update(causes)
    meant = {kind for kind, causes in every.items() if is_meant(kind, causes, cause)}
    if not meant:
        raise ValueError(f"no message was held by {cause!r}: `why --rank` names the causes")
    before = np.array([message.ns for message in found])
    held = np.array(
        [sum(kinds[kind].total() for kind in meant & kinds.keys()) for kinds in by_message]
    )
    return WithoutCause(
        cause, len(before), int((held > 0).sum()), times_of(before), times_of(before - held)
    )


def times_of(lengths: Nanoseconds) -> dict[str, int]:
    rising = np.sort(lengths)
    ranks = {"p50": 50, "p99": 99}
    found = {name: int(rising[-(-len(rising) * q // 100) - 1]) for name, q in ranks.items()}
    return {**found, "max": int(rising[-1])}


def with_causes(
    run: Run,
    paths: Mapping[str, MeasuredPath | MeasuredDag],
    expectations: Sequence[Expectation | Requirement],
    judged: Sequence[ExpectationResult],
    times: RepeatTimes,
) -> list[ExpectationResult]:
    """The verdicts, those that failed with the main cause of the late messages as their reason.

    What has a reason already, or no late messages whose cause is known, is as it was.
    """
    if not can_explain(run):
        return list(judged)
    found = []
    for wanted, result in zip(expectations, judged, strict=True):
        path = None if wanted.path is None else paths.get(wanted.path)
        if result.verdict is Verdict.FAIL and result.reason is None and path is not None:
            messages, of_list = _of_list(path.messages, wanted)
            if messages is not None:
                result = replace(result, reason=_main_cause(run, messages, of_list, times))
        found.append(result)
    return found


def _of_list(
    messages: Messages | MessageDag, wanted: Expectation | Requirement
) -> tuple[Messages | None, Expectation | Requirement]:
    """The messages that something is expected of, as those of a list of events.

    And what is expected of these. None where several ways of a branching path lead there, or where
    it is of something else than the time to the first use.
    """
    if not isinstance(messages, MessageDag):
        return messages, wanted
    ends = messages.path.loop if wanted.hop is None else (wanted.hop.start, wanted.hop.end)
    way = only_way(messages.path, [ends])
    timed = isinstance(wanted, Requirement) or wanted.stat in TIMES
    if way is None or not timed:
        return None, wanted
    return messages.along(way), replace(wanted, hop=None)


def _main_cause(
    run: Run, messages: Messages, wanted: Expectation | Requirement, times: RepeatTimes
) -> str | None:
    if isinstance(wanted, Expectation) and wanted.stat == "lost":
        return _main_loss(run, messages, wanted, times)
    limit = limit_of(wanted)
    if limit is None:
        return None
    hop = wanted.hop
    ends = messages.path.loop if hop is None else (hop.start, hop.end)
    rows = slowest(messages, ends, limit)
    first = ends[0]
    begin = messages.ts[first][rows], messages.err[first][rows]
    last = messages.ts[ends[1]][rows], messages.err[ends[1]][rows]
    possible, _ = times.within(wanted.window, messages.repeat[rows], begin, last)
    rows = rows[possible]
    if not len(rows):
        return None
    ranked = rank(why(run, messages, rows[:MOST].tolist(), ends), limit)
    known = [each for each in ranked if each.name != UNKNOWN and each.in_time]
    if not known:
        return None
    explained = min(len(rows), MOST)
    late = f"{number(len(rows))} above" if len(rows) <= MOST else f"{MOST} slowest above"
    share = 100 * known[0].in_time // explained
    return f"{share} % of the {late} {duration(limit)}: {known[0]}"


def _main_loss(run: Run, messages: Messages, wanted: Expectation, times: RepeatTimes) -> str | None:
    ends = messages.path.loop if wanted.hop is None else (wanted.hop.start, wanted.hop.end)
    rows = lost(messages, ends)
    begin = messages.ts[ends[0]][rows], messages.err[ends[0]][rows]
    possible, _ = times.within(wanted.window, messages.repeat[rows], begin, begin)
    found = why(run, messages, rows[possible][:MOST].tolist(), ends)
    known = Counter(each.loss for each in found if each.loss is not None)
    if not known:
        return None
    ((loss, count),) = known.most_common(1)
    return f"{100 * count // len(found)} % of the {number(len(found))} lost: {loss}"


def limit_of(wanted: Expectation | Requirement) -> int | None:
    """The time that messages must not exceed, ns; None where it asks for something else."""
    if wanted.op not in ("<", "<="):
        return None
    if isinstance(wanted, Requirement):
        return wanted.limit_ns if wanted.kind == "time" else None
    timed = wanted.is_time and wanted.event is None and wanted.clock is None
    return int(wanted.value) if timed and wanted.stat not in _DIFFERENCES else None
