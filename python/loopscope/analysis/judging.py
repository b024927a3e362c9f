"""Verdicts on what each message, update or interval has to meet, and on periodic events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from loopscope.analysis.dag_cases import cases_of
from loopscope.analysis.deadline import Cases, judge
from loopscope.analysis.deciding_cases import Case
from loopscope.analysis.keys import PLAIN, Keys
from loopscope.analysis.measured import printed, significant, some_dropped
from loopscope.analysis.measured_dag import MeasuredDag
from loopscope.analysis.periodic import Recurrence, recurrence
from loopscope.analysis.quantity_text import UNKNOWN_NS, number, quantity
from loopscope.analysis.results import ExpectationResult
from loopscope.analysis.verdict import Verdict
from loopscope.analysis.verdict import judge as judge_bracket
from loopscope.analysis.window import RepeatTimes
from loopscope.experiment import Expectation, Requirement
from loopscope.experiment.measures import RATE
from loopscope.experiment.statistic_names import unit

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Bracket, Exact
    from loopscope.analysis.measured import MeasuredPath
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
    events = [path.events[source] for path in paths for source in path.sources]
    return RepeatTimes(run, [*events, *(each.event for each in expectations if each.event)])


def judge_requirement(
    requirement: Requirement,
    run: Run,
    measured: Mapping[str, MeasuredPath | MeasuredDag],
    times: RepeatTimes,
) -> ExpectationResult:
    """Raises `ValueError` where its path has no such hop."""
    nothing: str | None
    unit_of, others, keys = UNITS[requirement.kind], None, PLAIN
    if requirement.event is not None:
        found = _recurrence(run, requirement, times)
        if isinstance(found, str):
            return _unknown(requirement.text, found)
        assert requirement.period_ns is not None and requirement.limit_ns is not None
        cases = found.cases(requirement.period_ns, requirement.limit_ns)
        nothing = _too_few(found, requirement)
    else:
        assert requirement.path is not None
        path, hop = measured[requirement.path], requirement.hop
        cases = cases_of(requirement, path, times)
        nothing = _nobody(requirement, path)
        keys = path.messages.keys_at((path.messages.path.loop if hop is None else (hop.start,))[0])
        if isinstance(path, MeasuredDag):
            flow = path.loop if hop is None else path.part((hop.start, hop.end))
            others = flow.others if flow.doubtful else None
            if requirement.kind == "age" and flow.joins:
                unit_of, keys = "use", flow.uses.keys
    judgement = judge(cases, requirement.allowed)
    if not len(cases):
        where = "in its time" if requirement.window is not None else "before the run's end"
        none = nothing or f"there is no {unit_of} to be judged {where}"
        counts = judgement.counts if judgement.counts.beyond else None
        return replace(_unknown(requirement.text, none), counts=counts)
    reason = judgement.broken
    if judgement.verdict is Verdict.UNKNOWN:
        reason = others or _doubt(unit_of, cases)
    elif judgement.verdict is Verdict.FAIL and all(each.at_end for each in judgement.deciding):
        reason = (
            "only from the last update to the end, when no newer data came; a time that ends "
            "before (between … and …) leaves that out"
        )
    return ExpectationResult(
        text=requirement.text,
        verdict=judgement.verdict,
        measured=judgement.counts.missed,
        err_ns=None,
        is_time=False,
        reason=reason,
        counts=judgement.counts,
        deciding=tuple(_shown(each, times, keys) for each in judgement.deciding),
        deciding_count=judgement.deciding_count,
    )


def judge_event(expectation: Expectation, run: Run, times: RepeatTimes) -> ExpectationResult:
    """Judges an expectation of the rate or the jitter of an event."""
    found = _recurrence(run, expectation, times)
    if isinstance(found, str):
        return _unknown(expectation.text, found)
    assert expectation.stat is not None
    bracket = found.bracket(expectation.stat)
    return judge_number(expectation, bracket, _doubt_of(found), _too_few(found, expectation))


def judge_number(
    expectation: Expectation, bracket: Bracket | None, doubt: str, nothing: str
) -> ExpectationResult:
    """Judges an expectation of one number by the bracket that the number lies in.

    `doubt` says what leaves the verdict open, for before the span that is left; `nothing` why there
    is no number at all.
    """
    assert expectation.stat is not None
    verdict = Verdict.UNKNOWN if bracket is None else judge_bracket(expectation, bracket)
    reason = nothing if bracket is None else None
    if bracket is not None and verdict is Verdict.UNKNOWN:
        reason = f"{doubt} {_span(expectation.stat, bracket)}"
    return ExpectationResult(
        text=expectation.text,
        verdict=verdict,
        measured=shown(bracket, expectation.stat),
        err_ns=bracket.err if bracket and expectation.is_time else None,
        is_time=expectation.is_time,
        reason=reason,
        unit=unit(RATE) if expectation.stat == RATE else None,
    )


def shown(bracket: Bracket | None, stat: str) -> int | float | None:
    """Value of a bracket as results hold it; None without one."""
    return significant(bracket) if bracket and stat == RATE else printed(bracket)


def _recurrence(
    run: Run, wanted: Expectation | Requirement, times: RepeatTimes
) -> Recurrence | str:
    """Or why there is none."""
    assert wanted.event is not None
    found = recurrence(run, wanted.event, wanted.window, times)
    return f"no {wanted.event.entity} was recorded at all" if found is None else found


def _unknown(text: str, reason: str) -> ExpectationResult:
    return ExpectationResult(text, Verdict.UNKNOWN, None, None, False, reason)


def _too_few(found: Recurrence, wanted: Expectation | Requirement) -> str:
    where = " in its time" if wanted.window is not None else ""
    if found.count < 2:
        seen = "only one" if found.count else "no"
        return f"{seen} {wanted.event} was seen{where}, and an interval has two"
    return "no interval surely lies within the time that is judged"


def _nobody(requirement: Requirement, path: MeasuredPath | MeasuredDag) -> str | None:
    """Where nothing was seen that could be judged at all."""
    hop = requirement.hop
    ends = path.messages.path.loop if hop is None else (hop.start, hop.end)
    for event in ends:
        if not path.messages.any_at(event):
            return f"no message was seen at {path.messages.path.events[event]}"
    return None


def _doubt(unit: str, cases: Cases) -> str:
    """Why it is UNKNOWN: what leaves cases open, and how many."""
    why = []
    nothing_known = cases.value >= UNKNOWN_NS
    if undecided := int(nothing_known.sum()):
        why.append(f"it is open of {_some(undecided, unit)} what was used")
    if unknown := int((~nothing_known & (cases.err >= UNKNOWN_NS)).sum()):
        why.append(f"a clock was disturbed: nothing is known of the time of {_some(unknown, unit)}")
    if edge := int((cases.optional & ~nothing_known).sum()):
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


def _doubt_of(found: Recurrence) -> str:
    if found.dropped:
        return f"{some_dropped(found.dropped)} events may be missing from the trace, which leaves"
    if (found.arrivals.err >= UNKNOWN_NS).any():
        return "a clock was disturbed, which leaves"
    return "the clock's error leaves"


def _span(stat: str, bracket: Bracket) -> str:
    def show(value: Exact) -> str:
        return quantity(float(value), unit(stat)) if unit(stat) else number(int(value))

    if bracket.upper is None:
        return f"{show(bracket.lower)} or more"
    return f"{show(bracket.lower)} to {show(bracket.upper)}"


def _shown(case: Case, times: RepeatTimes, keys: Keys) -> Case:
    """The case as results hold it: its time since time zero, its message by its key."""
    at = case.at_ns - int(times.zero[case.repeat])
    return replace(case, at_ns=at, id=keys.shown(int(case.id)))
