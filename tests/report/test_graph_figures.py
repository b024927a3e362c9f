"""Figures of branching paths, against the simulation that tests/analysis measures them by."""

from __future__ import annotations

import csv
import html
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import SECOND, Host, Row, SyntheticRun, write_sweep
from test_figures import fonts
from test_page import Page, browse, samples
from test_path_graphs import (
    JOINS,
    USED,
    Simulation,
    Towards,
    kinds,
    made_path,
    origins,
    possible,
    recorded,
    surely,
    width,
)
from test_run_figures import SVG, figure, rows

from loopscope.analysis import analyse
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.experiment import Figure, Hop, MessagePath, PathEdge, PathEvent, Statistic
from loopscope.report import write_report
from loopscope.report.dag_waterfall import named, usual
from loopscope.report.figure_source import FigureSource
from loopscope.report.path_samples import text_of
from loopscope.report.plots import Recorder
from loopscope.timeline import open_run

pytestmark = pytest.mark.full

FATES = ("lost", "unused", "superseded", "undecided")
CAMERA, LOGGER = PathEvent("camera", "h1", "cam", "sent"), PathEvent("logger", "h3", "cam", "got")
TRACKER, MADE = PathEvent("tracker", "h2", "cam", "got"), PathEvent("tracker", "h2", "est", "made")
CAME, STEP = PathEvent("control", "h3", "est", "got"), PathEvent("control", "h3", "act", "applied")
PLAN = PathEvent("control", "h3", "plan", "made")
CONTROL = MessagePath(
    "control",
    "id",
    (CAMERA, LOGGER, TRACKER, MADE, CAME, STEP, PLAN),
    keys=("id", "id", "id", "id", "id", None, None),
    edges=(
        PathEdge(0, 1, "key", "id"),
        PathEdge(0, 2, "key", "id"),
        PathEdge(2, 3, "key", "frame"),
        PathEdge(3, 4, "key", "id"),
        PathEdge(4, 5, "latest", None),
        PathEdge(4, 6, "latest", None),
    ),
)
HOSTS = [Host("h1", True, 0, 0.0), Host("h2"), Host("h3")]
LOGGED = "control[camera/cam:sent -> logger/cam:got]"
APPLIED = "control[camera/cam:sent -> control/act:applied]"
PLANNED = "control[camera/cam:sent -> control/plan:made]"


def control(frames: int, repeats: int = 1) -> list[Row]:
    """A frame each 30 ms; the tenth of every ten does not come to the tracker.

    A step each 10 ms, a plan each 100 ms.
    """
    found: list[tuple[int, int, PathEvent, int, int]] = []
    for repeat in range(1, repeats + 1):
        start = repeat * SECOND
        for n in range(frames):
            ts, late = start + n * 30_000_000, 1_000_000 + n % 7 * 10_000

            stamps = [(CAMERA, n, ts), (LOGGER, n, ts + late // 2)]
            if n % 10 != 9:
                stamps.append((TRACKER, n, ts + late))
                stamps.append((MADE, 5000 + n, ts + late + 4_000_000))
                stamps.append((CAME, 5000 + n, ts + late + 5_000_000))
            found += [(repeat, n, *stamp) for stamp in stamps]
        steps = ((STEP, 10_000_000, frames * 3 + 3), (PLAN, 100_000_000, frames * 3 // 10 + 1))
        for event, period, count in steps:
            found += [(repeat, 0, event, 0, start + n * period + 100_000) for n in range(count)]
    return [
        Row(
            *(event.component, event.entity, id, ts, 0 if event.host == "h1" else 700, event.host),
            repeat,
            (("frame", frame),) if event is MADE else (),
        )
        for repeat, frame, event, id, ts in found
    ]


def made(root: Path, frames: int = 60, repeats: int = 1, **more: Any) -> SyntheticRun:
    events = control(frames, repeats)
    return SyntheticRun(root, events, HOSTS, paths=[CONTROL], repeats=repeats, **more)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("run"), repeats=2).write()


def parts(path: MessagePath) -> list[tuple[int, int]]:
    """Every two of its events of which one leads to the other."""
    ends = range(len(path.events))
    return [(start, end) for end in ends for start in sorted(path.before(end))]


@pytest.mark.parametrize("doubt", [False, True], ids=["exact", "doubtful"])
@pytest.mark.parametrize("seed", range(8))
def test_samples_are_what_was_simulated(tmp_path: Path, seed: int, doubt: bool) -> None:
    """First uses with their maximum errors, what became of the others, and the age at each use."""
    simulations = [Simulation(seed, repeat, doubt) for repeat in (1, 2)]
    path, place = made_path(simulations[0])
    recorded(tmp_path, simulations, path, paths=[path])
    source = FigureSource(tmp_path)
    begin = {}
    for repeat, each in enumerate(simulations, start=1):
        firsts = [m.ts for event in path.sources for m in each.nodes[place[event]].messages]
        begin[repeat] = min(firsts, default=0)
    seen = 0
    for ends in parts(path):
        start, end = (place[each] for each in ends)
        times, ages = Counter(), Counter()
        fates = Counter()
        for repeat, each in enumerate(simulations, start=1):
            towards = Towards(each, end)
            for message in each.nodes[start].messages:
                fate = towards.fate(start, message)
                if fate != USED:
                    fates[FATES[fate], repeat, message.ts - begin[repeat]] += 1
                    continue
                uses = towards.uses(start, message, surely)
                first = min(uses, key=lambda use: (use.ts, use.number))
                earliest = min(use.ts for use in towards.uses(start, message, possible))
                err = width(each.nodes, start, message, end, first) + first.ts - earliest
                times[repeat, message.ts - begin[repeat], first.ts - message.ts, err] += 1
            for use in each.nodes[end].messages:
                found, open_ = origins(each, end, use, start)
                if open_ or not found:
                    what = "undecided" if open_ else "without data"
                    fates[what + " use", repeat, use.ts - begin[repeat]] += 1
                    continue
                oldest = min(found, key=lambda m: (m.ts, m.number))
                err = width(each.nodes, start, oldest, end, use)
                ages[repeat, use.ts - begin[repeat], use.ts - oldest.ts, err] += 1
        text = f"way[{path.events[ends[0]]} -> {path.events[ends[1]]}]"
        joined = bool(kinds(simulations[0].nodes, start, end) & {*JOINS})
        for subject, wanted, use in ((text, times, ""), (text + ".age", ages, " use")):
            if not wanted or (use and not joined):
                with pytest.raises(ValueError, match=r"none of it|age is drawn where an event"):
                    source.samples(subject)
                continue
            sampled = source.samples(subject)
            columns = ("repeat", "since", "value", "clock_error")
            lists = (sampled.table[name].to_pylist() for name in columns)
            assert Counter(zip(*lists, strict=True)) == wanted, subject
            others = Counter(
                (what + use, repeat, since)
                for what, each in sampled.without.items()
                for repeat, since in zip(each.repeat.tolist(), each.since.tolist(), strict=True)
            )
            mine = {key: n for key, n in fates.items() if key[0].endswith(" use") == bool(use)}
            assert others == mine, subject
            seen += 1
    assert seen


@pytest.mark.parametrize("seed", range(8))
def test_a_single_message_goes_over_the_edges_that_it_was_used_over(
    tmp_path: Path, seed: int
) -> None:
    """Its steps are links of the simulation, hang together, and come to each of its first uses."""
    simulations = [Simulation(seed, repeat, False) for repeat in (1, 2)]
    path, place = made_path(simulations[0])
    run, _ = recorded(tmp_path, simulations, path, paths=[path])
    graph = analyse(run).graph_messages["way"]
    index = {str(event): place[i] for i, event in enumerate(path.events)}
    sources = [place[event] for event in path.sources]
    longest = []
    for repeat, each in enumerate(simulations, start=1):
        for source in sources:
            for message in each.nodes[source].messages:
                found = named(graph, str(message.number), repeat)
                [fall] = (f for f in found if f.begin == 5 * SECOND + message.ts)
                reached = {source: {message.ts}}
                for step in sorted(fall.steps, key=lambda s: (s.start, s.length)):
                    first, last = index[step.first], index[step.last]
                    a, b = message.ts + step.start, message.ts + step.start + step.length
                    assert a in reached[first]
                    [use] = (m for m in each.nodes[last].messages if m.ts == b)
                    assert a in [m.ts for m in use.sure[first]]
                    reached.setdefault(last, set()).add(b)
                ends = []
                for first, sink in path.ends:
                    if place[first] != source:
                        continue
                    uses = Towards(each, place[sink]).uses(source, message, surely)
                    if uses:
                        ends.append(min(use.ts for use in uses))
                        assert ends[-1] in reached[place[sink]]
                    else:
                        assert place[sink] not in reached
                assert fall.total == (max(ends) - message.ts if ends else None)
                longest += [fall.total] if ends else []
    if longest:
        assert {fall.what: fall.total for fall in usual(graph)}["max"] == max(longest)


def test_everything_is_drawn_where_nothing_is_named(run: Path) -> None:
    # test_run_figures.py has all formats.
    code, out, err = figure(run, "--format", "pdf")
    assert code == 0, err
    ends = [LOGGED, APPLIED, PLANNED, APPLIED + ".age", PLANNED + ".age"]
    slugs = [re.sub(r"[^\w.]+", "-", end).strip("-").replace("-.", ".") for end in ends]
    names = [f"{kind}-{of}" for kind in ("scatter", "histogram", "ccdf", "heatmap") for of in slugs]
    names += ["hops-control", "waterfall-control", "timeline"]
    names += ["clock", "clock-width", "clock-allan"]
    assert re.findall(r"([\w.-]+)\.pdf \(and csv\)", out) == names
    folder = run / "figures"
    files = {f"{name}.{each}" for name in names for each in ("pdf", "csv")}
    assert {file.name for file in folder.iterdir()} == files
    for name in names:
        assert fonts(folder / f"{name}.pdf") == {"/CIDFontType2": True}, name
        assert len(rows(folder / f"{name}.csv")) > 1, name
    hops = Counter(row["hop"] for row in rows(folder / "hops-control.csv"))
    edges = analyse(open_run(run)).graphs[0].edges
    assert hops == {f"{edge.first} → {edge.last}": edge.used for edge in edges}


def test_the_numbers_are_those_of_the_table(run: Path, tmp_path: Path) -> None:
    subjects = (APPLIED, APPLIED + ".age", PLANNED)
    words = [word for each in subjects for word in ("scatter", each, "ccdf", each)]
    code, _, err = figure(run, *words, "--format", "svg", "-o", tmp_path)
    assert code == 0, err
    [graph] = analyse(open_run(run)).graphs
    ends = {flow.last: flow for flow in graph.ends}
    for text, flow in ((APPLIED, ends[str(STEP)]), (PLANNED, ends[str(PLAN)])):
        stem = re.sub(r"[^\w.]+", "-", text).strip("-")
        found = rows(tmp_path / f"scatter-{stem}.csv")
        values = [
            int(row["time to the first use (ns)"]) for row in found if row["series"] != "lost"
        ]
        assert (len(values), max(values)) == (flow.used, flow.times["max"])
        assert sum(row["series"] == "lost" for row in found) == flow.lost == 12
        tail = rows(tmp_path / f"ccdf-{stem}.csv")
        assert max(int(row["time to the first use (ns)"]) for row in tail) == flow.times["max"]
        notes = (tmp_path / f"scatter-{stem}.svg").read_text()
        assert "12 lost: marks along the top" in notes
        assert (f"{flow.superseded} superseded" in notes) == bool(flow.superseded)
    [ages] = tmp_path.glob("scatter-*applied.age.csv")
    values = [int(row["age of the data (ns)"]) for row in rows(ages)]
    flow = ends[str(STEP)]
    assert max(values) == flow.age_ns > 50_000_000
    # The first of the 366 steps of each repeat had nothing to use.
    assert len(values) == 366 - flow.empty == 364
    assert "2 without data" in ages.with_suffix(".svg").read_text()


def test_dropped_events_leave_the_clock_error_unknown(tmp_path: Path) -> None:
    """As the table says: any other message may have been used."""
    root = made(tmp_path / "run", drops={("control", "est:got"): 1}).write()
    assert FigureSource(root).results.graphs[0].ends[1].err_ns is None
    assert figure(root, "scatter", APPLIED, "--format", "svg", "-o", tmp_path / "f")[0] == 0
    [table] = (tmp_path / "f").glob("*.csv")
    assert {row["clock error (ns)"] for row in rows(table)} == {""}


def test_a_message_s_edges_and_one_end_s(run: Path, tmp_path: Path) -> None:
    words = ("waterfall", "--message", 19, "--repeat", 2, "--format", "svg", "-o", tmp_path)
    assert figure(run, *words)[0] == 0
    found = rows(tmp_path / "waterfall-control.csv")
    assert [(row["from"], row["to"]) for row in found] == [(str(CAMERA), str(LOGGER))]
    assert "1 of 3 ends reached" in " ".join(
        re.findall(r">([^<]*)</text>", (tmp_path / "waterfall-control.svg").read_text())
    ).replace("\n", " ")
    words = ("waterfall", APPLIED, "--message", 20, "--repeat", 2, "-o", tmp_path)
    assert figure(run, *words, "--format", "svg")[0] == 0
    [table] = tmp_path.glob("waterfall-control-*.csv")
    steps = [(r["to"], int(r["start (ns)"]), int(r["time (ns)"])) for r in rows(table)]
    # It sets out at 600 ms, comes after 6.06 ms; the step is at 610.1 ms.
    assert steps == [
        (str(TRACKER), 0, 1_060_000),
        (str(MADE), 1_060_000, 4_000_000),
        (str(CAME), 5_060_000, 1_000_000),
        (str(STEP), 6_060_000, 4_040_000),
    ]


def test_a_warm_up_is_in_no_figure(tmp_path: Path) -> None:
    """Time begins with the first message all the same, as in `after 2s` of what is expected."""
    whole = made(tmp_path / "whole")
    trimmed = made(tmp_path / "trimmed")
    trimmed.paths = [replace(CONTROL, trim_ns=100_000_000)]
    sampled, all_ = (FigureSource(each.write()).samples(LOGGED).table for each in (trimmed, whole))
    assert sampled["value"].to_pylist() == all_["value"].to_pylist()[4:]
    assert sampled["since"].to_pylist() == [n * 30_000_000 for n in range(4, 60)]
    steps = []
    for each in (trimmed, whole):
        graph = analyse(open_run(each.root)).graph_messages["control"]
        steps.append(named(graph, "20", None))
    assert steps[0] == steps[1] and len(steps[0][0].steps) == 5
    with pytest.raises(ValueError, match="no message with number 3: they are 4 to 59"):
        named(FigureSource(trimmed.root).results.graph_messages["control"], "3", None)


def test_the_time_line_goes_around_a_message_and_has_its_ways(run: Path) -> None:
    from loopscope.report import host_timeline

    results = analyse(open_run(run))
    window = host_timeline.slowest(results, "20", 2)
    assert window is not None
    assert window.repeat == 2 and window.begin < 2 * SECOND + 600_000_000 < window.end
    found = host_timeline.read_timeline(open_run(run), results, window)
    lanes = [program for _, program in found.lanes]
    ways = {(lanes[a[1]], lanes[b[1]], b[0] - a[0]) for a, b in found.ways}
    wanted = {("camera", "logger", 530_000), ("camera", "tracker", 1_060_000)}
    assert wanted | {("tracker", "control", 1_000_000)} <= ways


def test_list_and_completion_have_the_parts(run: Path) -> None:
    from types import SimpleNamespace

    from loopscope.cli.figure import _complete

    told = json.loads(figure(run, "--list", "--json")[1])["of"]
    mine = [name for name in told if name.startswith("control")]
    edges = [text_of(CONTROL, hop) for hop in CONTROL.hops]
    ages = [PLANNED, APPLIED, *edges[4:]]
    assert {*mine} == {LOGGED, APPLIED, PLANNED, *edges, *(each + ".age" for each in ages)}
    given = SimpleNamespace(params={"run": str(run)})
    assert {*_complete(given, "control[camera")} == {e for e in mine if "[camera" in e}
    for text in mine:
        assert len(FigureSource(run).samples(text).table)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ccdf", "control"], f"control has several ends: name one of '{LOGGED}', '{APPLIED}', "),
        (["ccdf", "control.age"], f"several ends: name one of '{APPLIED}.age', '{PLANNED}.age'"),
        (["ccdf", LOGGED + ".age"], "age is drawn where an event joins"),
        (
            ["ccdf", "control[logger/cam:got -> control/act:applied]"],
            "nothing leads from the one event to the other",
        ),
        (["ccdf", "control[logger/cam:gto -> x/y:z]"], "did you mean logger/cam:got?"),
        (["waterfall", "--message", "9999"], "no message with number 9999: they are 0 to 59"),
        (["waterfall", "control[logger/cam:got -> control/act:applied]"], "nothing leads from"),
        (["timeline", "--message", "9999"], "no message with number 9999"),
        (["hops", LOGGED], "hops: no path control["),
    ],
)
def test_a_mistake_says_what_there_is(run: Path, words: list[str], said: str) -> None:
    code, _, err = figure(run, *words)
    assert code == 2 and said in " ".join(err.split()), err


def test_the_page_draws_what_the_table_says(run: Path, tmp_path: Path) -> None:
    results = analyse(open_run(run))
    written = write_report(open_run(run), results)
    page = Page(written.read_text())
    figures = json.loads(page.scripts["figures"])
    assert written.stat().st_size < 4_000_000
    [graph] = results.graphs
    for text, flow in zip((LOGGED, APPLIED, PLANNED), graph.ends, strict=True):
        times = figures[f"response-time-{text}"]["data"]
        unit = {LOGGED: 1000, APPLIED: 1e6, PLANNED: 1e6}[text]
        drawn = [y * unit for trace in samples(times) for y in trace["y"]]
        assert len(drawn) == flow.used
        assert (min(drawn), max(drawn)) == pytest.approx((flow.times["min"], flow.times["max"]))
        lost = [len(trace["x"]) for trace in times if trace["name"] == "lost"]
        assert sum(lost) == flow.lost
        [bars] = figures[f"response-histogram-{text}"]["data"]
        assert sum(bars["y"]) <= flow.used
        names = [trace["name"] for trace in figures[f"ccdf-{text}"]["data"] if "name" in trace]
        assert f"{flow.first} → {flow.last} (n = {flow.used})" in names
        assert (f"age-{text}" in figures) == (flow.age_ns is not None)
        if flow.age_ns is not None:
            ages = [
                y * 1e6 for trace in samples(figures[f"age-{text}"]["data"]) for y in trace["y"]
            ]
            assert max(ages) == pytest.approx(flow.age_ns)
    assert len([t for t in figures["hops-control"]["data"] if t["type"] == "bar"]) == 6
    assert {"waterfall-control", "timeline"} <= set(figures)
    lanes = figures["waterfall-control"]["layout"]["yaxis"]["ticktext"]
    steps = {step.label for fall in usual(results.graph_messages["control"]) for step in fall.steps}
    assert set(lanes) == {html.escape(step, quote=False) for step in steps}
    assert page.plots == list(figures)
    browse(written, page, tmp_path)


def test_many_points_stay_light(tmp_path: Path) -> None:
    run = open_run(made(tmp_path, frames=4000).write())
    page = write_report(run, analyse(run))
    assert page.stat().st_size < 4_000_000
    figures = json.loads(Page(page.read_text()).scripts["figures"])
    over_time = [f for name, f in figures.items() if name.startswith(("response-time", "age-c"))]
    shown = sum(len(trace["x"]) for f in over_time for trace in samples(f["data"]))
    assert 3000 < shown <= 5000 and f"heatmap-{APPLIED}" in figures
    several = [replace(CONTROL, name=f"control{i}") for i in range(5)]
    assert write_report(run, analyse(run, several)).stat().st_size < 4_000_000


def statistic(text: str, stat: str | None, ends: tuple[int, int]) -> Statistic:
    return Statistic(text, "control", Hop(*ends), stat)  # type: ignore[arg-type]


def own(name: str, x: str, *y: Statistic) -> Figure:
    return Figure(name, None, x, y, None, None, {}, (), None, None, None, None)


def test_own_figures_and_tables_of_a_sweep(tmp_path: Path) -> None:
    stats = ("age", "rate", "jitter", "superseded", "p99", "lost", "settling")
    wanted = tuple(statistic(f"{PLANNED}.{stat}", stat, (0, 6)) for stat in stats)
    figures = (
        own("times", "time", statistic(APPLIED, None, (0, 5))),
        own("ages", "time", statistic(f"{APPLIED}.age", "age", (0, 5))),
        own("rates", "n", statistic(f"{APPLIED}.rate", "rate", (0, 5))),
        own("old", "n", wanted[0]),
    )
    points = [({"n": n}, made(tmp_path, frames=n)) for n in (400, 500)]
    root = write_sweep(points, {}, figures=figures, table=wanted)
    from loopscope.analysis import analyse_sweep
    from loopscope.experiment import from_manifest
    from loopscope.report import write_sweep as write_page

    manifest = json.loads((root / "manifest.json").read_text())
    recorder = Recorder(from_manifest(manifest["experiment"]))
    sweep = analyse_sweep(root, recorder.see)
    page = write_page(root, sweep, recorder.drawn(sweep)).read_text()
    for point in sweep.points:
        [graph] = (g for g in point.results.graphs)
        flow = next(f for f in graph.ends if f.last == str(PLAN))
        found = {stat: point.statistic(f"{PLANNED}.{stat}").value for stat in stats}
        assert found["age"] == flow.age_ns and found["jitter"] == flow.jitter_ns
        assert found["rate"] == flow.rate_hz == 10.0
        assert (found["superseded"], found["lost"]) == (flow.superseded, flow.lost)
        assert found["p99"] == flow.times["p99"] and found["settling"] is not None
    for name, figure_ in (("times", None), ("ages", "age of the data"), ("rates", "(Hz)")):
        with (root / "figures" / f"{name}.csv").open(newline="") as lines:
            assert len(list(csv.DictReader(lines))) > 1
        shown = (root / "figures" / f"{name}.svg").read_text()
        assert figure_ is None or figure_ in shown
    flow = sweep.points[0].results.graphs[0].ends[1]
    with (root / "figures" / "ages.csv").open(newline="") as lines:
        ages = [float(row["age of the data (ns)"]) for row in csv.DictReader(lines)]
    assert max(ages) >= flow.age_ns and "10 Hz" in page
    words = ("mean-deviation", APPLIED, APPLIED + ".age", *SVG)
    assert figure(root, *words, "-o", tmp_path / "f")[0] == 0
    with next((tmp_path / "f").glob("*applied.csv")).open(newline="") as lines:
        counts = [int(row["n"]) for row in csv.DictReader(lines)]
    assert counts == [p.results.graphs[0].ends[1].used for p in sweep.points]


def test_an_unknown_half_width_is_no_number(tmp_path: Path) -> None:
    events = [
        Row(*(row.component, row.entity, row.id, row.ts, UNKNOWN_NS, row.host, 1, row.fields))
        if row.component == "tracker" and row.id % 2 else row
        for row in control(30)
    ]  # fmt: skip
    run = open_run(SyntheticRun(tmp_path, events, HOSTS, paths=[CONTROL]).write())
    graph = analyse(run).graph_messages["control"]
    [odd], [even] = named(graph, "3", None), named(graph, "4", None)
    assert [step.err for step in odd.steps[:2]] == [700, None]
    assert all(step.err is not None for step in even.steps)
