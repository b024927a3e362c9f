"""Verdicts on what each message, update or interval has to meet, and on periodic events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from loopscope.analysis.case import Case
from loopscope.analysis.deadline import Cases, judge
from loopscope.analysis.expectation import Verdict
from loopscope.analysis.expectation import judge as judge_bracket
from loopscope.analysis.measured import some_dropped
from loopscope.analysis.periodic import Occurrences, occurrences
from loopscope.analysis.quantity import UNKNOWN_NS, number, quantity
from loopscope.analysis.requirement import cases_of
from loopscope.analysis.results import ExpectationResult
from loopscope.analysis.window import RepeatTimes
from loopscope.experiment import Expectation, Requirement
from loopscope.timeline import UnknownTableError

if TYPE_CHECKING:
    from loopscope.analysis.measured import MeasuredPath
    from loopscope.analysis.statistic import Bracket, Exact
    from loopscope.experiment import MessagePath
    from loopscope.timeline import Run

UNITS = {
    "time": "message",
    "age": "update",
    "before": "message",
    "order": "message",
    "complete": "message",
    "symmetric": "message",
    "every": "interval",
}


def repeat_times(
    run: Run, paths: Sequence[MessagePath], expectations: Sequence[Expectation | Requirement]
) -> RepeatTimes:
    """Counted from the first event that a path begins with or that is expected something of."""
    events = [path.events[0] for path in paths]
    return RepeatTimes(run, [*events, *(each.event for each in expectations if each.event)])


def judge_requirement(
    requirement: Requirement,
    run: Run,
    measured: Mapping[str, MeasuredPath],
    times: RepeatTimes,
) -> ExpectationResult:
    """Raises `ValueError` where its path has no such hop."""
    nothing: str | None
    if requirement.event is not None:
        found = _occurrences(run, requirement, times)
        if isinstance(found, str):
            return _unknown(requirement.text, found)
        assert requirement.period_ns is not None and requirement.limit_ns is not None
        cases = found.cases(requirement.period_ns, requirement.limit_ns)
        nothing = _too_few(found, requirement)
    else:
        assert requirement.path is not None
        path = measured[requirement.path]
        cases = cases_of(requirement, path, times)
        nothing = _nobody(requirement, path)
    judgement = judge(cases, requirement.allowed)
    if not len(cases):
        where = "in its time" if requirement.window is not None else "before the run's end"
        none = nothing or f"there is no {UNITS[requirement.kind]} to be judged {where}"
        counts = judgement.counts if judgement.counts.beyond else None
        return replace(_unknown(requirement.text, none), counts=counts)
    reason = judgement.broken
    if judgement.verdict is Verdict.UNKNOWN:
        reason = _doubt(requirement, cases)
    return ExpectationResult(
        text=requirement.text,
        verdict=judgement.verdict,
        measured=judgement.counts.missed,
        err_ns=None,
        is_time=False,
        reason=reason,
        counts=judgement.counts,
        deciding=tuple(_since_zero(each, times) for each in judgement.deciding),
        deciding_count=judgement.deciding_count,
    )


def judge_event(expectation: Expectation, run: Run, times: RepeatTimes) -> ExpectationResult:
    """Of the rate or the jitter of an event."""
    found = _occurrences(run, expectation, times)
    if isinstance(found, str):
        return _unknown(expectation.text, found)
    assert expectation.stat is not None
    bracket = found.bracket(expectation.stat)
    if bracket is None:
        return _unknown(expectation.text, _too_few(found, expectation))
    verdict = judge_bracket(expectation, bracket)
    return ExpectationResult(
        text=expectation.text,
        verdict=verdict,
        measured=int(bracket.value) if expectation.is_time else float(bracket.value),
        err_ns=bracket.err if expectation.is_time else None,
        is_time=expectation.is_time,
        reason=_span(expectation, found, bracket) if verdict is Verdict.UNKNOWN else None,
        unit=None if expectation.is_time else "Hz",
    )


def _occurrences(
    run: Run, wanted: Expectation | Requirement, times: RepeatTimes
) -> Occurrences | str:
    """Or why there are none."""
    assert wanted.event is not None
    try:
        return occurrences(run, wanted.event, wanted.window, times)
    except UnknownTableError:
        return f"no {wanted.event.entity} was recorded at all"


def _unknown(text: str, reason: str) -> ExpectationResult:
    return ExpectationResult(text, Verdict.UNKNOWN, None, None, False, reason)


def _too_few(found: Occurrences, wanted: Expectation | Requirement) -> str:
    where = " in its time" if wanted.window is not None else ""
    if found.count < 2:
        seen = "only one" if found.count else "no"
        return f"{seen} {wanted.event} was seen{where}, and an interval has two"
    return "no interval surely lies within the time that is judged"


def _nobody(requirement: Requirement, path: MeasuredPath) -> str | None:
    """Where nothing was seen that could be judged at all."""
    hop = requirement.hop
    ends = path.messages.path.loop if hop is None else (hop.start, hop.end)
    for event in ends:
        if not path.messages.seen[event].any():
            return f"no message was seen at {path.messages.path.events[event]}"
    return None


def _doubt(requirement: Requirement, cases: Cases) -> str:
    """Why it is UNKNOWN: what leaves cases open, and how many."""
    unit = UNITS[requirement.kind]
    why = []
    if unknown := int((cases.err >= UNKNOWN_NS).sum()):
        why.append(f"a clock was disturbed: nothing is known of the time of {_some(unknown, unit)}")
    if edge := int(cases.optional.sum()):
        why.append(f"{_some(edge, unit)} may not lie within the time that is judged")
    doubt = cases.doubt
    if doubt:
        dropped = max(doubt.changed, doubt.met)
        why.append(f"{some_dropped(dropped)} events may be missing from the trace")
    open_by_width = cases.may_meet & cases.may_miss & ~cases.optional & (cases.err < UNKNOWN_NS)
    if (near := int(open_by_width.sum())) and not (doubt and near == len(cases)):
        why.append(f"the clock's error leaves {_some(near, unit)} open")
    return "; ".join(why)


def _some(n: int, unit: str) -> str:
    return f"{number(n)} {unit}{'' if n == 1 else 's'}"


def _span(expectation: Expectation, found: Occurrences, bracket: Bracket) -> str:
    def show(value: Exact) -> str:
        return quantity(float(value), "ns" if expectation.is_time else "Hz")

    if bracket.upper is None:
        span = f"{show(bracket.lower)} or more"
    else:
        span = f"{show(bracket.lower)} to {show(bracket.upper)}"
    if found.dropped:
        some = some_dropped(found.dropped)
        return f"{some} events may be missing from the trace, which leaves {span}"
    if (found.err >= UNKNOWN_NS).any():
        return f"a clock was disturbed, which leaves {span}"
    return f"the clock's error leaves {span}"


def _since_zero(case: Case, times: RepeatTimes) -> Case:
    return replace(case, at_ns=case.at_ns - int(times.zero[case.repeat]))
