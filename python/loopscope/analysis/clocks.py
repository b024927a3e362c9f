"""The clocks of a run: offsets of hosts' other clocks, and events of any clock.

`falsified` says which events of clocks would have counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from loopscope.analysis.bounded_statistics import Bracket
from loopscope.analysis.dag_cases import cases_of
from loopscope.analysis.deadline import judge as judge_cases
from loopscope.analysis.kernel_result import SHARED
from loopscope.analysis.list_cases import widened
from loopscope.analysis.measured_links import ROUTER
from loopscope.analysis.messages import host_codes
from loopscope.analysis.quantity_text import UNKNOWN_NS, duration
from loopscope.analysis.results import (
    ClockEvent,
    ClockResult,
    ExpectationResult,
    LoopResult,
    Offset,
)
from loopscope.analysis.verdict import Verdict, judge
from loopscope.analysis.window import bracket_of
from loopscope.experiment import Expectation, Requirement
from loopscope.experiment.expect_lines import EVERY_HOST
from loopscope.experiment.statistic_names import COUNTS

if TYPE_CHECKING:
    from loopscope.analysis.measured import MeasuredPath
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.window import RepeatTimes
    from loopscope.timeline import Run


@dataclass(frozen=True)
class RealtimeOffset:
    """Largest offset of a host's CLOCK_REALTIME from the reference's, over its readings."""

    bracket: Bracket | None
    """Its upper end is None where nothing is known of some readings; None where of none."""

    def result(self) -> Offset | None:
        if self.bracket is None:
            return None
        return Offset(int(self.bracket.value), self.bracket.err)


def realtime_offsets(run: Run) -> dict[str, RealtimeOffset]:
    """The offset of each host's CLOCK_REALTIME, over all repeats."""
    chosen = run.relation("foreign_clocks").filter("clock = 'realtime'")
    rows = chosen.project("repeat, host, offset_ns, offset_err_ns").to_arrow_table()
    host = np.array(rows["host"].to_pylist(), dtype=object)
    known = pc.and_(rows["offset_ns"].is_valid(), rows["offset_err_ns"].is_valid()).to_numpy()
    offset, err = (rows[name].fill_null(0).to_numpy() for name in ("offset_ns", "offset_err_ns"))
    repeat = rows["repeat"].to_numpy()
    found = {}
    for name in host_codes(run):
        here = host == name
        size, width = np.abs(offset[here & known]), err[here & known]
        if not len(size):
            found[name] = RealtimeOffset(None)
            continue
        whole = set(repeat[here].tolist()) == set(run.repeats) and bool(known[here].all())
        bracket = Bracket(
            value=int(size.max()),
            lower=max(0, int((size - width).max())),
            upper=int((size + width).max()) if whole else None,
        )
        found[name] = RealtimeOffset(bracket)
    return found


def judge_offset(
    expectation: Expectation, offsets: Mapping[str, RealtimeOffset]
) -> ExpectationResult:
    """Judges the offset of a host's CLOCK_REALTIME, or the largest of all hosts but the router."""
    every = expectation.path == EVERY_HOST
    hosts = [name for name in offsets if name != ROUTER] if every else [expectation.path]
    found = {name: each.bracket for name in hosts if (each := offsets.get(name))}
    silent = [name for name in hosts if found.get(name) is None]
    brackets = {name: each for name, each in found.items() if each is not None}
    if not brackets:
        nothing = f"nothing is known of the CLOCK_REALTIME of {', '.join(silent)}"
        return _result(expectation, Verdict.UNKNOWN, None, nothing)
    farthest = max(brackets, key=lambda name: brackets[name].value)
    uppers = [each.upper for each in brackets.values()]
    bracket = Bracket(
        value=brackets[farthest].value,
        lower=max(each.lower for each in brackets.values()),
        upper=None if silent or None in uppers else max(u for u in uppers if u is not None),
    )
    verdict = judge(expectation, bracket)
    reason: str | None = f"{farthest} is the farthest" if every and len(hosts) > 1 else None
    if verdict is Verdict.PASS:
        reason = None
    elif verdict is Verdict.UNKNOWN and bracket.upper is None:
        of = silent or [name for name, each in brackets.items() if each.upper is None]
        reason = f"for a part of the run nothing is known of the CLOCK_REALTIME of {', '.join(of)}"
    elif verdict is Verdict.UNKNOWN:
        assert bracket.upper is not None
        span = f"{duration(int(bracket.lower))} to {duration(int(bracket.upper))}"
        reason = f"the clocks' errors leave {span}"
    return _result(expectation, verdict, bracket, reason)


def _result(
    expectation: Expectation, verdict: Verdict, bracket: Bracket | None, reason: str | None
) -> ExpectationResult:
    return ExpectationResult(
        text=expectation.text,
        verdict=verdict,
        measured=None if bracket is None else int(bracket.value),
        err_ns=None if bracket is None else bracket.err,
        is_time=True,
        reason=reason,
    )


def read_clocks(
    run: Run, offsets: Mapping[str, RealtimeOffset]
) -> tuple[tuple[ClockResult, ...], tuple[ClockEvent, ...]]:
    """Every host's clock, and what happened to clocks in the order of repeats and time."""
    # The hosts' shared kernel is placed by the reference's clock, and has none of its own.
    hosts = run.relation("hosts").filter(f"host <> '{SHARED}'")
    by_host = hosts.aggregate(
        "host, bool_or(reference) AS reference, max(max_err_ns) AS max_err_ns, "
        "sum(exchanges)::BIGINT AS exchanges, sum(rejected)::BIGINT AS rejected"
    )
    clocks = []
    for row in by_host.order("host").to_arrow_table().to_pylist():
        if row["max_err_ns"] is not None and row["max_err_ns"] >= UNKNOWN_NS:
            row["max_err_ns"] = None
        offset = offsets.get(row["host"])
        clocks.append(ClockResult(**row, realtime=offset.result() if offset else None))
    begin = dict(run.relation("clock").aggregate("repeat, min(ts)").fetchall())
    begun = "coalesce(from_ts, until_ts)"
    rows = run.relation("clock_events").order(f"repeat, {begun}, until_ts, host, clock")
    events = []
    for row in rows.to_arrow_table().to_pylist():
        ends = [
            None if row[end] is None else row[end] - begin[row["repeat"]]
            for end in ("from_ts", "until_ts")
        ]
        keys = ("repeat", "host", "clock", "kind", "least_ns", "most_ns", "what")
        events.append(
            ClockEvent(**{key: row[key] for key in keys}, from_ns=ends[0], until_ns=ends[1])
        )
    return tuple(clocks), tuple(events)


def read_loops(run: Run) -> tuple[LoopResult, ...]:
    """Agreement of times between the followers of each edge, by repeat and host."""
    rows = run.relation("loop_residuals").order("repeat, host, peer").to_arrow_table()
    return tuple(LoopResult(**row) for row in rows.to_pylist())


def contradicted(
    loops: Sequence[LoopResult],
    expectations: Sequence[Expectation | Requirement],
    judged: Sequence[ExpectationResult],
    measured: Mapping[str, MeasuredPath | MeasuredDag],
) -> list[ExpectationResult]:
    """The verdicts; those on times of hosts whose clocks contradict each other become UNKNOWN.

    Such a host is in a loop that contradicts itself: a clock or a stamp of that loop is wrong by
    more than its maximum error.
    """
    wrong = [loop for loop in loops if loop.contradictions]

    def kept(
        expectation: Expectation | Requirement, result: ExpectationResult
    ) -> ExpectationResult:
        hosts = _compared(expectation, measured)
        for loop in wrong:
            if len(hosts) > 1 and hosts & {loop.host, loop.peer}:
                reason = (
                    f"the times of {loop.host} and {loop.peer} contradict each other in repeat "
                    f"{loop.repeat}: maximum errors may be wrong"
                )
                return replace(result, verdict=Verdict.UNKNOWN, reason=reason)
        return result

    return [kept(*pair) for pair in zip(expectations, judged, strict=True)]


def _compared(
    expectation: Expectation | Requirement, measured: Mapping[str, MeasuredPath | MeasuredDag]
) -> set[str]:
    """The hosts whose times an expectation compares; none where it is not of times of events."""
    if isinstance(expectation, Requirement):
        between_hosts = expectation.kind in ("time", "age", "before", "symmetric")
        legs = expectation.kind == "symmetric"
    else:
        # What is of one event has one clock.
        of_one = (None, *COUNTS, "rate", "jitter")
        between_hosts = expectation.stat not in of_one
        legs = expectation.stat == "asymmetry"
    if not between_hosts or expectation.path is None:
        return set()
    path, hop = measured[expectation.path].messages.path, expectation.hop
    first, last = path.loop if hop is None else (hop.start, hop.end)
    # The two ends of a way there and back are often at one host.
    ends = (first, first + 1, last - 1, last) if legs else (first, last)
    return {path.events[end].host for end in ends}


def falsified(
    events: Iterable[ClockEvent],
    expectations: Sequence[Expectation | Requirement],
    judged: Sequence[ExpectationResult],
    measured: Mapping[str, MeasuredPath | MeasuredDag],
    times: RepeatTimes,
) -> list[str]:
    """Texts about verdicts that depend on a CLOCK_REALTIME that was set in the run, one for a host.

    They name the verdicts on times between this host and others that could have been different, had
    its events been stamped by that clock.
    """
    steps: dict[str, int] = {}
    for event in events:
        if event.clock == "realtime" and event.least_ns is not None and event.most_ns is not None:
            size = max(abs(event.least_ns), abs(event.most_ns))
            steps[event.host] = max(size, steps.get(event.host, 0))
    found = []
    for host, step in sorted(steps.items()):
        moved = [
            f"{each.text} ({result.verdict})"
            for each, result in zip(expectations, judged, strict=True)
            if result.verdict is not Verdict.UNKNOWN
            and _could_differ(each, host, step, measured, times)
        ]
        if moved:
            found.append(
                f"{host}'s CLOCK_REALTIME was set by {duration(step)} in the run: with stamps of "
                f"that clock these verdicts could have been others: {'; '.join(moved)}"
            )
    return found


def _could_differ(
    expectation: Expectation | Requirement,
    host: str,
    step: int,
    measured: Mapping[str, MeasuredPath | MeasuredDag],
    times: RepeatTimes,
) -> bool:
    """Whether stamps that are off by as much on this host leave more than one verdict."""
    hosts = _compared(expectation, measured)
    if len(hosts) < 2 or host not in hosts:
        return False
    assert expectation.path is not None
    path = measured[expectation.path]
    if isinstance(expectation, Requirement):
        # One leg is longer by it, the other shorter.
        by_ns = 2 * step if expectation.kind == "symmetric" else step
        cases = widened(cases_of(expectation, path, times), expectation, by_ns)
        return judge_cases(cases, expectation.allowed).verdict is Verdict.UNKNOWN
    if expectation.stat == "asymmetry":
        step *= 2
    _, bracket = bracket_of(expectation, path, times)
    if bracket is None:
        return False
    upper = None if bracket.upper is None else bracket.upper + step
    wider = Bracket(bracket.value, bracket.lower - step, upper)
    return judge(expectation, wider) is Verdict.UNKNOWN
