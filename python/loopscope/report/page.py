"""The results as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from loopscope.analysis import Results
from loopscope.analysis.messages import Messages
from loopscope.analysis.quantity_text import number
from loopscope.analysis.why import can_explain
from loopscope.experiment import MessagePath
from loopscope.report import (
    analyses,
    cause_chart,
    dag_waterfall,
    finding_chart,
    host_timeline,
    remote_item_chart,
    thread_channel_graph,
    waterfall,
)
from loopscope.report.clock_charts import CLOCK_CHARTS, clock_chart, has_clock_chart
from loopscope.report.clock_series import read_clock_drawings
from loopscope.report.experiment_charts import own_chart
from loopscope.report.html import PageFigure, PageFigures, environment, render_page
from loopscope.report.marks import Mark, read_marks
from loopscope.report.path_charts import end_charts, hops_chart, parts_of, pattern_chart
from loopscope.report.path_samples import list_of, paths_of, several_ways
from loopscope.report.plots import Drawn
from loopscope.report.rows import clock_event_cells, loop_cells
from loopscope.timeline import Run

_PATTERN = "Latency against its target"


def page(run: Run, results: Results, own: Sequence[Drawn] = ()) -> str:
    """``own`` are the experiment's own figures."""
    figures = PageFigures()
    own_places = own_figures(own, figures)
    patterns = [
        (each, figures.add(f"pattern-{each.name}", _PATTERN, pattern_chart(each)))
        for each in results.patterns
    ]
    paths, marks = paths_of(results), read_marks(run)
    ends = sum(len(path.ends) for path in paths.values())
    of_paths = [
        (path.name, list(_path_figures(path, results, marks, ends, figures)))
        for path in paths.values()
    ]
    causes = {}
    for name, items in of_paths if can_explain(run) else ():
        messages = list_of(results, name)
        if messages is None:
            items.append(f"What held single messages: {several_ways(name)}.")
        elif (found := cause_figures(run, messages, figures)) is not None:
            causes[name] = found
    timeline = _timeline(run, results, figures)
    clocks = read_clock_drawings(run, results)
    return render_page(
        "run.html",
        results.to_dict(),
        figures,
        experiment=results.experiment,
        run=results.run,
        extent="1 repeat" if results.repeats == 1 else f"{number(results.repeats)} repeats",
        verdict=results.verdict,
        results=results,
        own=own_places,
        channels=channel_figures(results, figures),
        patterns=patterns,
        paths=of_paths,
        findings=findings_section(run, results, marks, figures),
        causes=causes,
        band_headings=cause_chart.band_headings(),
        timeline=timeline,
        clock_events=[clock_event_cells(each) for each in results.clock.events],
        clock_loops=[loop_cells(each) for each in results.clock.loops],
        clocks=[
            figures.add(name, *clock_chart(name, clocks))
            for name in CLOCK_CHARTS
            if has_clock_chart(name, clocks)
        ],
        analyses=analyses.section(run.output),
        environment=environment(run.environment),
    )


def channel_figures(results: Results, figures: PageFigures) -> list[PageFigure]:
    """The graph of threads and channels, and the way of items to other hosts."""
    found = []
    if thread_channel_graph.has_graph(results):
        graph = thread_channel_graph.chart(results)
        found.append(figures.add("channels", "Threads and channels", graph))
    if remote_item_chart.has_remote_items(results):
        ways = remote_item_chart.chart(results)
        found.append(figures.add("remote-items", "Items to other hosts", ways))
    return found


def cause_figures(
    run: Run, messages: Messages, figures: PageFigures
) -> tuple[PageFigure | None, list[tuple[str, ...]]] | None:
    """The figure of single messages, and the rows of all; None where no message arrived.

    There is no figure where the run has counts of threads alone.
    """
    found = cause_chart.of_path(run, messages)
    if found is None:
        return None
    chart, bands = found
    if chart is None:
        return None, bands
    return figures.add(f"causes-{messages.path.name}", "What held single messages", chart), bands


def findings_section(
    run: Run, results: Results, marks: Sequence[Mark], figures: PageFigures
) -> list[tuple[str, list[str], PageFigure]]:
    """Paths with a certain finding: name, all findings in words, and the strongest one's figure."""
    from loopscope.analysis.findings.read import LEAST_MESSAGES, findings
    from loopscope.analysis.findings.result import line

    shown = []
    for name, messages in results.messages.items():
        if len(messages) < LEAST_MESSAGES:
            continue
        found = findings(run, messages)
        if found.certain:
            chart = finding_chart.chart(results, messages, found.certain[0], marks)
            title = f"Path {name}: the strongest pattern"
            place = figures.add(f"findings-{name}", title, replace(chart, title=""))
            shown.append((name, [line(each) for each in found.findings], place))
    return shown


def own_figures(own: Sequence[Drawn], figures: PageFigures) -> list[PageFigure]:
    """The experiment's own figures."""
    return [figures.add(f"own-{each.figure.name}", each.title, own_chart(each)) for each in own]


def _path_figures(
    path: MessagePath, results: Results, marks: Sequence[Mark], among: int, figures: PageFigures
) -> Iterator[PageFigure | str]:
    """Figures of a path, and paragraphs that say why one is missing.

    `among`: how many ends all paths have.
    """
    parts = parts_of(results, path)
    hops = hops_chart(results, path, parts, marks)
    arrived = [ends for ends in path.ends if len(parts[ends].intervals.length)]
    if hops is None and not arrived:
        yield "No message was seen."
        return
    for ends in path.ends:
        if ends in arrived:
            for name, title, chart in end_charts(results, path, parts, ends, marks, among):
                yield figures.add(name, title, chart)
        else:
            part = parts[ends]
            yield f"No message arrived, {part.intervals.first} → {part.intervals.last}."
    if arrived:
        if path.name in results.graph_messages:
            chart = waterfall.chart(dag_waterfall.usual(results.graph_messages[path.name]))
            chart = replace(chart, caption=waterfall.GRAPH_CAPTION)
        else:
            chart = waterfall.chart(waterfall.usual(results.messages[path.name]))
        yield figures.add(f"waterfall-{path.name}", "Single messages", chart)
    if hops is not None:
        yield figures.add(f"hops-{path.name}", "Time of each hop", hops)


def _timeline(run: Run, results: Results, figures: PageFigures) -> PageFigure | None:
    """Around the slowest message of the first path that has one; None where none was seen."""
    window = host_timeline.slowest(results, None, None)
    if window is None:
        return None
    chart = host_timeline.chart(host_timeline.read_timeline(run, results, window))
    return figures.add("timeline", "Time line of the hosts", chart)
