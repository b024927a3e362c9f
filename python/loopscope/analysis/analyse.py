"""A run's results, from its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from loopscope.analysis.results import (
    ClockResults,
    CostResult,
    Drop,
    ExpectationResult,
    LossResult,
    ProbesResult,
    Results,
    StatisticResult,
    ValueResult,
)
from loopscope.analysis.verdict import Verdict, judge, overall
from loopscope.experiment import (
    Expectation,
    MessagePath,
    Pattern,
    Requirement,
    Statistic,
    Value,
)
from loopscope.experiment.measures import RATE
from loopscope.timeline.table_error import RunError, readable_errors

if TYPE_CHECKING:
    from loopscope.analysis.measured import MeasuredInterval, MeasuredPath
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.window import RepeatTimes
    from loopscope.timeline import Run


_Measured: TypeAlias = "Mapping[str, MeasuredPath | MeasuredDag]"


class AnalysisError(RunError):
    """A path or an expectation that this run cannot answer. The text says which and why."""


def analyse(
    run: Run,
    paths: Sequence[MessagePath] | None = None,
    expectations: Sequence[Expectation | Requirement] | None = None,
    subtract_cost: bool | None = None,
    values: Sequence[Value] | None = None,
    statistics: Sequence[Statistic] = (),
    patterns: Sequence[Pattern] | None = None,
) -> Results:
    """Measures paths, values and patterns, and judges the expectations. Writes nothing.

    Paths, values, patterns and expectations are the manifest's where they are not given, and so is
    whether the cost of recording is subtracted. Statistics are over the messages and events of all
    repeats together; those of `statistics` are computed besides. Raises `AnalysisError`, and
    `RunError` where a table is missing or cannot be read.
    """
    with readable_errors():
        return _analyse(run, paths, expectations, subtract_cost, values, statistics, patterns)


def write_path_tables(run: Run, results: Results) -> None:
    """Writes `tables/path-<name>.parquet` of each repeat: a row per message.

    Raises `RunError` where a table cannot be computed, OSError where it cannot be written.
    """
    from loopscope.analysis.dag_table import write_dag_table

    with readable_errors():
        for messages in results.messages.values():
            messages.write(run)
        for graph in results.graph_messages.values():
            write_dag_table(run, graph.messages)


def _analyse(
    run: Run,
    paths: Sequence[MessagePath] | None,
    expectations: Sequence[Expectation | Requirement] | None,
    subtract_cost: bool | None,
    values: Sequence[Value] | None,
    statistics: Sequence[Statistic],
    patterns: Sequence[Pattern] | None,
) -> Results:
    from loopscope.analysis.channel_layers import measure_layer
    from loopscope.analysis.channels import read_channels
    from loopscope.analysis.clocks import (
        contradicted,
        falsified,
        judge_offset,
        read_clocks,
        read_loops,
        realtime_offsets,
    )
    from loopscope.analysis.endings import collecting, endings
    from loopscope.analysis.foreign_events import unsupported_requests
    from loopscope.analysis.hop_decomposition import LinkEvents
    from loopscope.analysis.judging import judge_event, repeat_times
    from loopscope.analysis.kernels import read_kernels, told_events
    from loopscope.analysis.measured import MeasuredPath, dropped_of
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.measured_links import read_links
    from loopscope.analysis.message_dag import read_graph
    from loopscope.analysis.messages import read_messages
    from loopscope.analysis.missing_events import contradictions, without_account
    from loopscope.analysis.patterns import measure_pattern
    from loopscope.analysis.ranking import with_causes
    from loopscope.analysis.value import measure_value

    experiment = run.specification
    if experiment is None and (paths is None or expectations is None):
        raise AnalysisError(f"{run.path} has no manifest.json that describes its experiment")
    if experiment is not None:
        paths = experiment.paths if paths is None else paths
        expectations = experiment.expectations if expectations is None else expectations
        patterns = experiment.patterns if patterns is None else patterns
        subtract_cost = experiment.subtract_cost if subtract_cost is None else subtract_cost
        values = experiment.values if values is None else values
    paths, expectations = paths or (), expectations or ()
    patterns, values = patterns or (), values or ()
    costs = _costs(run) if subtract_cost else None
    links, of_links = read_links(run)
    problems = [*run.problems, *collecting(run), *endings(run)]
    problems += [*contradictions(run), *without_account(run)]
    channels, of_channels = read_channels(run, experiment.channels if experiment else ())
    problems += [*of_links, *of_channels]
    if other := run.manifest.get("judged_by"):
        problems.append(f"judged by {other}, which is not what the run was measured with")
    if experiment is not None:
        problems += unsupported_requests(run, experiment)
    link_events = LinkEvents(run, links, experiment)
    lists: dict[str, MeasuredPath] = {}
    graphs: dict[str, MeasuredDag] = {}
    for path in paths:
        if path.edges:
            graph, doubts = read_graph(run, path)
            graphs[path.name] = MeasuredDag(run, graph)
            problems += doubts + graphs[path.name].problems()
            continue
        messages, doubts = read_messages(run, path, costs)
        lists[path.name] = MeasuredPath(messages, dropped_of(run, path), link_events)
        problems += doubts + lists[path.name].problems()
    measured: _Measured = {**lists, **graphs}
    kernel, doubts = read_kernels(run, measured)
    problems += doubts
    numbers: dict[str, ValueResult] = {}
    for value in values:
        if value.layer is None:
            numbers[value.name], doubts = measure_value(run, value)
        else:
            threads = channels.threads if channels else ()
            numbers[value.name], doubts = measure_layer(value, threads)
        problems += doubts
    of_patterns = []
    for pattern in patterns:
        found, doubts = measure_pattern(run, pattern)
        of_patterns.append(found)
        problems += doubts
    offsets = realtime_offsets(run)
    clocks, clock_events = read_clocks(run, offsets)
    judged = []
    times = repeat_times(run, paths, expectations)
    for each in expectations:
        if isinstance(each, Requirement):
            judged.append(_judge_each(each, run, measured, times))
        elif each.event is not None:
            judged.append(judge_event(each, run, times))
        elif each.clock is not None:
            judged.append(judge_offset(each, offsets))
        elif each.stat is not None:
            judged.append(_judge(each, measured, times))
        else:
            judged.append(_judge_value(each, numbers))
    problems += falsified(clock_events, expectations, judged, measured, times)
    loops = read_loops(run)
    judged = contradicted(loops, expectations, judged, measured)
    judged = with_causes(run, measured, expectations, judged, times)
    met = [found.verdict for found in of_patterns if found.verdict is not None]
    verdict = overall([*(each.verdict for each in judged), *met])
    if run.incomplete:
        problems.append(f"the run did not end well ({run.incomplete}): what follows is of a part")
        # What the missing part would have shown nobody knows.
        verdict = Verdict.UNKNOWN if verdict is Verdict.PASS else verdict
    if any(loop.contradictions for loop in loops) and of_patterns and verdict is Verdict.PASS:
        # A pattern's messages go between all hosts.
        verdict = Verdict.UNKNOWN
    return Results(
        run=run.id,
        experiment=run.experiment,
        repeats=len(run.repeats),
        verdict=verdict,
        expectations=tuple(judged),
        paths=tuple(each.result() for each in lists.values()),
        graphs=tuple(each.result() for each in graphs.values()),
        clock=ClockResults(clocks, clock_events, loops, _probes(run)),
        loss=_loss(run),
        kernel=kernel,
        watched=told_events(run),
        subtracted=_subtracted(costs),
        links=links,
        channels=channels,
        problems=tuple(problems),
        values=tuple(numbers.values()),
        statistics={each.text: _statistic(each, measured, numbers) for each in statistics},
        messages={name: each.messages for name, each in lists.items()},
        graph_messages=graphs,
        patterns=tuple(of_patterns),
    )


def _judge_each(
    requirement: Requirement, run: Run, measured: _Measured, times: RepeatTimes
) -> ExpectationResult:
    from loopscope.analysis.judging import judge_requirement

    if requirement.path is not None:
        _path(requirement.text, requirement.path, measured)
    try:
        return judge_requirement(requirement, run, measured, times)
    except ValueError as error:
        raise AnalysisError(f"{requirement.text}: {error}") from error


def _judge(expectation: Expectation, measured: _Measured, times: RepeatTimes) -> ExpectationResult:
    from loopscope.analysis.judging import judge_number
    from loopscope.analysis.window import bracket_of
    from loopscope.experiment.expect_lines import OF_EVENTS

    path = _path(expectation.text, expectation.path, measured)
    try:
        part, bracket = bracket_of(expectation, path, times)
    except ValueError as error:
        raise AnalysisError(f"{expectation.text}: {error}") from error
    of_last = bool(part.at_first) or expectation.stat in OF_EVENTS
    where = part.intervals.last if of_last else part.intervals.first
    some = "no two messages were" if expectation.stat in OF_EVENTS else "no message was"
    when = "" if expectation.window is None else " in its time"
    return judge_number(expectation, bracket, part.doubt(), f"{some} seen at {where}{when}")


def _path(text: str, name: str, measured: _Measured) -> MeasuredPath | MeasuredDag:
    if name not in measured:
        known = ", ".join(measured) or "none"
        raise AnalysisError(f"{text}: no path {name!r}; there is: {known}")
    return measured[name]


def _part(wanted: Statistic, path: MeasuredPath | MeasuredDag) -> MeasuredInterval:
    """The path, or the part of it, that this is of."""
    hop = wanted.hop
    try:
        return path.loop if hop is None else path.part((hop.start, hop.end))
    except ValueError as error:
        raise AnalysisError(f"{wanted.text}: {error}") from error


def _judge_value(expectation: Expectation, numbers: dict[str, ValueResult]) -> ExpectationResult:
    from loopscope.analysis.bounded_statistics import Bracket
    from loopscope.analysis.measured import some_dropped
    from loopscope.analysis.quantity_text import number

    if expectation.path not in numbers:
        known = ", ".join(numbers) or "none"
        raise AnalysisError(f"{expectation.text}: no value {expectation.path!r}; there is: {known}")
    found = numbers[expectation.path]
    reason = None
    if found.not_finite and found.stat != "count":
        reason = (
            f"{number(found.not_finite)} of {number(found.count)} numbers are not finite "
            "(NaN or infinite)"
        )
    elif found.unknown:
        reason = f"it is not known of {number(found.unknown)} threads"
    elif found.value is None:
        reason = (
            f"{found.stat} is beyond all numbers" if found.count else f"no {found.entity} was seen"
        )
    elif found.missing:
        reason = f"{some_dropped(found.missing)} events may be missing from the trace"
    verdict = Verdict.UNKNOWN
    if reason is None and found.value is not None:
        exact = Fraction(found.value)
        verdict = judge(expectation, Bracket(exact, exact, exact))
    return ExpectationResult(
        text=expectation.text,
        verdict=verdict,
        measured=found.value,
        err_ns=None,
        is_time=False,
        reason=reason,
        unit=found.unit,
    )


def _statistic(
    wanted: Statistic, measured: _Measured, numbers: dict[str, ValueResult]
) -> StatisticResult:
    from loopscope.analysis.judging import shown
    from loopscope.experiment.statistic_names import unit

    if wanted.stat is None:
        found = numbers[wanted.path]
        return StatisticResult(wanted.text, found.value, None, found.unit)
    part = _part(wanted, _path(wanted.text, wanted.path, measured))
    if wanted.stat == "settling":
        return StatisticResult(wanted.text, part.settling(), None, "ns")
    bracket = part.bracket(wanted.stat)
    err = bracket.err if bracket and wanted.stat != RATE else None
    return StatisticResult(wanted.text, shown(bracket, wanted.stat), err, unit(wanted.stat))


def _costs(run: Run) -> dict[tuple[int, str], tuple[float, float]]:
    """Cost of an event and its spread, both in ns, by repeat and host.

    Raises `AnalysisError` where it was not measured.
    """
    columns = ["repeat", "host", "event_cost_ns", "event_cost_err_ns"]
    hosts = run.relation("hosts")
    if not set(columns) <= set(hosts.columns):
        raise AnalysisError(
            f"measure.subtract_cost: {run.path} is of a version that did not measure the cost of "
            "an event; run the experiment again, or leave subtract_cost out"
        )
    rows = hosts.project(", ".join(columns)).to_arrow_table().to_pylist()
    # A host on which nothing was recorded has no event that could cost anything.
    found = {
        (row["repeat"], row["host"]): (row["event_cost_ns"], row["event_cost_err_ns"])
        for row in rows
        if row["event_cost_ns"] is not None
    }
    recording = {(loss.repeat, loss.host) for loss in run.accounts if loss.recorded}
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


def _probes(run: Run) -> ProbesResult | None:
    if not run.probes:
        return None
    from loopscope.analysis.measured_links import ROUTER

    # The router's are on the clock network in any case.
    hosts = [
        cost
        for repeat in run.probes
        for host, cost in repeat["hosts"].items()
        if host != ROUTER or repeat["network"] != "data"
    ]
    return ProbesResult(
        network=run.probes[0]["network"],
        packets=sum(cost["packets"] for cost in hosts),
        bytes=sum(cost["bytes"] for cost in hosts),
        seconds=sum(repeat["seconds"] for repeat in run.probes),
    )


def _loss(run: Run) -> LossResult:
    drops: Counter[tuple[str, str, str, str]] = Counter()
    causes: Counter[str] = Counter()
    for process in run.accounts:
        for site in process.sites:
            for cause, n in site.dropped.items():
                drops[process.host, process.process, site.entity, cause] += n
                causes[cause] += n
        causes["torn"] += process.torn
        causes["no-tables"] += process.no_tables
    return LossResult(
        emitted=sum(each.emitted for each in run.accounts),
        recorded=sum(each.recorded for each in run.accounts),
        dropped=sum(each.dropped for each in run.accounts),
        balanced=all(each.balanced for each in run.accounts),
        causes={cause: n for cause, n in sorted(causes.items()) if n},
        drops=tuple(Drop(*key, count=n) for key, n in sorted(drops.items()) if n),
    )
