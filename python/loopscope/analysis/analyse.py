"""A run's results, from its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from loopscope.analysis.expectation import COUNTS, Verdict, judge, overall
from loopscope.analysis.quantity import duration, half_width, number
from loopscope.analysis.results import (
    TIMES,
    ClockResult,
    CostResult,
    Drop,
    ExpectationResult,
    IntervalResult,
    LossResult,
    PathResult,
    Results,
)
from loopscope.experiment import Expectation, Experiment, MessagePath, from_manifest

if TYPE_CHECKING:
    from loopscope.analysis.messages import Intervals, Messages
    from loopscope.analysis.statistic import Bracket
    from loopscope.timeline import Run


class AnalysisError(Exception):
    """A path or an expectation that this run cannot answer. The text says which and why."""


def analyse(
    run: Run,
    paths: Sequence[MessagePath] | None = None,
    expectations: Sequence[Expectation] | None = None,
    subtract_cost: bool | None = None,
) -> Results:
    """Measures the paths, judges the expectations, writes `tables/path-<name>.parquet`.

    Paths and expectations are the manifest's where they are not given, and so is whether the cost
    of recording is subtracted. Statistics are over the
    messages of all repeats together. Raises `AnalysisError`, and `RunError` where a table is
    missing.
    """
    from loopscope.analysis.account import contradictions
    from loopscope.analysis.messages import read_messages

    paths = _of_manifest(run).paths if paths is None else paths
    expectations = _of_manifest(run).expectations if expectations is None else expectations
    if subtract_cost is None:
        subtract_cost = "experiment" in run.manifest and _of_manifest(run).subtract_cost
    costs = _costs(run) if subtract_cost else None
    problems = [*run.problems, *contradictions(run)]
    measured: dict[str, _MeasuredPath] = {}
    for path in paths:
        messages, doubts = read_messages(run, path, costs)
        messages.write(run)
        measured[path.name] = _MeasuredPath(run, messages)
        problems += doubts + measured[path.name].problems()
    judged = [_judge(each, measured) for each in expectations]
    verdict = overall([each.verdict for each in judged])
    if run.incomplete:
        problems.append(f"the run did not end well ({run.incomplete}): what follows is of a part")
        # What the missing part would have shown nobody knows.
        verdict = Verdict.UNKNOWN if verdict is Verdict.PASS else verdict
    return Results(
        run=run.id,
        experiment=run.experiment,
        repeats=len(run.repeats),
        verdict=verdict,
        expectations=tuple(judged),
        paths=tuple(each.result() for each in measured.values()),
        clock=_clock(run),
        loss=_loss(run),
        subtracted=_subtracted(costs),
        problems=tuple(problems),
        messages={name: each.messages for name, each in measured.items()},
    )


class _MeasuredInterval:
    """A path or a hop with all that its statistics need."""

    def __init__(self, messages: Messages, ends: tuple[int, int], dropped: Sequence[int]) -> None:
        """`ends` are indices of events, `dropped` how many of each event may be missing."""
        from loopscope.analysis.account import Missing
        from loopscope.analysis.statistic import Sample

        first, last = ends
        self.intervals: Intervals = messages.intervals(first, last)
        # A message whose first event is missing is in no row, so at no later event either.
        before = dropped[0] + (dropped[first] if first else 0)
        self.missing = Missing(before, after=dropped[last])
        self.at_first = int(messages.seen[first].sum())
        self.complete = len(self.intervals.length)
        self.lost = self.at_first - self.complete
        arrived = messages.seen[first] & messages.seen[last]
        self.duplicates = int((messages.occurrences[last][arrived] - 1).sum())
        self.hidden = self.missing.unseen_arrivals(self.lost)
        self.sample = Sample(self.intervals.length, self.intervals.err, self.hidden)

    @property
    def name(self) -> str:
        return f"{self.intervals.first} → {self.intervals.last}"

    def bracket(self, stat: str) -> Bracket | None:
        """None where there is nothing to measure. Raises `ValueError` for an unknown statistic."""
        from loopscope.analysis.statistic import Bracket

        before, after = self.missing.before, self.missing.after
        if stat == "count":
            return Bracket(self.count, self.count, self.count + self.uncounted)
        if stat in COUNTS and self.at_first == 0:
            return None
        if stat == "lost":
            return Bracket(self.lost, self.lost - min(self.lost, after), self.lost + before)
        if stat == "duplicates":
            # A message unknown at the first end may have been duplicated any number of times.
            most = None if before else self.duplicates + after
            return Bracket(self.duplicates, self.duplicates, most)
        return self.sample.bracket(stat)

    @property
    def count(self) -> int:
        return self.complete

    @property
    def uncounted(self) -> int:
        """The most messages that `count` may lack."""
        return self.hidden

    def result(self) -> IntervalResult:
        brackets = {name: self.sample.bracket(name) for name in TIMES}
        return IntervalResult(
            first=str(self.intervals.first),
            last=str(self.intervals.last),
            count=self.count,
            lost=self.lost,
            duplicates=self.duplicates,
            times={name: _printed(bracket) for name, bracket in brackets.items()},
            err_ns=self.sample.largest_half_width,
        )


class _MeasuredLoop(_MeasuredInterval):
    """From a path's first event to its last. Its count is of the messages that set out."""

    @property
    def count(self) -> int:
        return self.at_first

    @property
    def uncounted(self) -> int:
        return self.missing.before


class _MeasuredPath:
    def __init__(self, run: Run, messages: Messages) -> None:
        from loopscope.analysis.account import missing_events

        path = messages.path
        self.messages = messages
        self.dropped = [missing_events(run, event) for event in path.events]
        self.loop = _MeasuredLoop(messages, path.loop, self.dropped)
        self.hops = [self.part(hop) for hop in path.hops]

    def part(self, ends: tuple[int, int]) -> _MeasuredInterval:
        """Between any two of its events. Raises `ValueError` where it does not have them."""
        last = self.messages.path.loop[1]
        if not 0 <= ends[0] < ends[1] <= last:
            raise ValueError(f"its events are 0 to {last}, in this order")
        return _MeasuredInterval(self.messages, ends, self.dropped)

    def result(self) -> PathResult:
        hops = tuple(hop.result() for hop in self.hops)
        return PathResult(self.messages.path.name, self.loop.result(), hops)

    def problems(self) -> list[str]:
        found = []
        path = self.messages.path
        for event, dropped in zip(path.events, self.dropped, strict=True):
            if dropped:
                found.append(
                    f"path {path.name}: {_dropped(dropped)} {event} may be missing from the trace; "
                    "verdicts allow for it, the statistics are of what was recorded"
                )
        parts: list[_MeasuredInterval] = [self.loop, *self.hops]
        for part in parts:
            intervals = part.intervals
            if len(backwards := intervals.contradictions):
                worst = backwards[intervals.length[backwards].argmin()]
                found.append(
                    f"path {path.name}, {part.name}: {len(backwards)} messages arrived before they "
                    f"were sent by more than the clock's error (worst: {path.key} "
                    f"{intervals.id[worst]} of repeat {intervals.repeat[worst]}, "
                    f"{duration(int(intervals.length[worst]))} "
                    f"{half_width(int(intervals.err[worst]))}); that error was too small"
                )
        return found


def _judge(expectation: Expectation, measured: dict[str, _MeasuredPath]) -> ExpectationResult:
    text = expectation.text
    if expectation.path not in measured:
        known = ", ".join(measured) or "none"
        raise AnalysisError(f"{text}: no path {expectation.path!r}; there is: {known}")
    path = measured[expectation.path]
    hop = expectation.hop
    try:
        part = path.loop if hop is None else path.part((hop.start, hop.end))
        bracket = part.bracket(expectation.stat)
    except ValueError as error:
        raise AnalysisError(f"{text}: {error}") from error
    if bracket is None:
        where = part.intervals.last if part.at_first else part.intervals.first
        reason: str | None = f"no message was seen at {where}"
        verdict = Verdict.UNKNOWN
    else:
        verdict = judge(expectation, bracket)
        reason = _doubt(expectation, part, bracket) if verdict is Verdict.UNKNOWN else None
    return ExpectationResult(
        text=text,
        verdict=verdict,
        measured=_printed(bracket),
        err_ns=bracket.err if bracket and expectation.is_time else None,
        is_time=expectation.is_time,
        reason=reason,
    )


def _doubt(expectation: Expectation, part: _MeasuredInterval, bracket: Bracket) -> str:
    def show(value: int | Fraction) -> str:
        return duration(float(value)) if expectation.is_time else number(int(value))

    if bracket.upper is None:
        span = f"{show(bracket.lower)} or more"
    else:
        span = f"{show(bracket.lower)} to {show(bracket.upper)}"
    if part.missing.before or part.missing.after:
        dropped = part.missing.before + part.missing.after
        return f"{_dropped(dropped)} events may be missing from the trace, which leaves {span}"
    return f"the clock's error leaves {span}"


def _dropped(n: int) -> str:
    from loopscope.analysis.account import UNACCOUNTED

    return "an unknown number of" if n >= UNACCOUNTED else f"up to {number(n)}"


def _printed(bracket: Bracket | None) -> int | float | None:
    if bracket is None:
        return None
    return bracket.value if isinstance(bracket.value, int) else float(round(bracket.value, 1))


def _costs(run: Run) -> dict[tuple[int, str], tuple[float, float]]:
    """What an event costs, ns, and the spread of that, by repeat and host.

    Raises `AnalysisError` where it was not measured.
    """
    columns = ["repeat", "host", "event_cost_ns", "event_cost_err_ns"]
    if not set(columns) <= set(run.hosts.columns):
        raise AnalysisError(
            f"measure.subtract_cost: {run.path} is of a version that did not measure the cost of "
            "an event; run the experiment again, or leave subtract_cost out"
        )
    rows = run.hosts.select(*columns).to_pyarrow().to_pylist()
    # A host on which nothing was recorded has no event that could cost anything.
    found = {
        (row["repeat"], row["host"]): (row["event_cost_ns"], row["event_cost_err_ns"])
        for row in rows
        if row["event_cost_ns"] is not None
    }
    recording = {(loss.repeat, loss.host) for loss in run.loss if loss.recorded}
    if missing := sorted(recording - set(found)):
        repeat, host = missing[0]
        raise AnalysisError(
            f"measure.subtract_cost: the cost of an event was not measured on {host} in repeat "
            f"{repeat}: its loss.json has no cost"
        )
    return found


def _subtracted(
    costs: Mapping[tuple[int, str], tuple[float, float]] | None,
) -> tuple[CostResult, ...] | None:
    if costs is None:
        return None
    hosts = sorted({host for _, host in costs})
    of_host = {host: [cost for (_, at), cost in costs.items() if at == host] for host in hosts}
    return tuple(
        CostResult(host, max(cost for cost, _ in each), max(spread for _, spread in each))
        for host, each in of_host.items()
    )


def _clock(run: Run) -> tuple[ClockResult, ...]:
    hosts = run.hosts
    by_host = hosts.group_by("host").agg(
        reference=hosts.reference.any(), max_err_ns=hosts.max_err_ns.max()
    )
    return tuple(ClockResult(**row) for row in by_host.order_by("host").to_pyarrow().to_pylist())


def _loss(run: Run) -> LossResult:
    drops: Counter[tuple[str, str, str, str]] = Counter()
    causes: Counter[str] = Counter()
    for process in run.loss:
        for site in process.sites:
            for cause, n in site.dropped.items():
                drops[process.host, process.process, site.entity, cause] += n
                causes[cause] += n
        causes["torn"] += process.torn
    return LossResult(
        emitted=sum(each.emitted for each in run.loss),
        recorded=sum(each.recorded for each in run.loss),
        dropped=sum(each.dropped for each in run.loss),
        balanced=all(each.balanced for each in run.loss),
        causes={cause: n for cause, n in sorted(causes.items()) if n},
        drops=tuple(Drop(*key, count=n) for key, n in sorted(drops.items()) if n),
    )


def _of_manifest(run: Run) -> Experiment:
    try:
        return from_manifest(run.manifest["experiment"])
    except (KeyError, ValueError) as error:
        raise AnalysisError(f"{run.path / 'manifest.json'}: experiment: {error}") from error
