"""`loopscope figure`: what can be drawn of a run, by what a person calls it."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from synthetic_run import (
    PIPELINE,
    SECOND,
    Row,
    SyntheticRun,
    event,
    path,
    pipeline,
    write_sweep,
)
from test_figures import fonts
from test_page import CLOCKS
from test_patterns import ONE, good
from test_sweep import sweep_of
from typer.testing import CliRunner

from loopscope.analysis import analyse
from loopscope.analysis.quantity_text import number
from loopscope.cli import app
from loopscope.experiment import PathEvent, Value
from loopscope.report.canvas import logarithmic
from loopscope.report.catalogue import KINDS
from loopscope.report.chart_file import file_figure
from loopscope.report.figure_source import FigureSource
from loopscope.report.figures import draw
from loopscope.report.waterfall import chart, usual
from loopscope.timeline import open_run

pytestmark = pytest.mark.full

HOP = "loop[source/pipe:sent -> node1/pipe:received]"
FILES = ("svg", "pdf", "png", "csv")
# For tests that read numbers: all formats of a figure take four times as long.
SVG = ("--format", "svg")


def figure(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["figure", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repeats with losses, a value, a pattern, clock readings."""
    from synthetic_run import ClockReading

    made = pipeline(tmp_path_factory.mktemp("run"), messages=900, repeats=2, lose_every=100)
    made.patterns = [ONE]
    events = [PathEvent(program, host, *entity.split(":")) for program, entity, host in PIPELINE]
    made.paths = [path("loop", "id", events)]
    made.rows = [*made.rows, *good()]
    made.rows += [
        Row("source", "pace:second", i, 5 * SECOND + i * 10**8, fields=(("rate", 100 + i % 7),))
        for i in range(40)
    ]
    made.values = [Value("rate", "source", "pace", "second", "rate", "mean", "bit/s", 8.0)]
    made.readings = [
        ClockReading(host, 5 * SECOND + i * 10**8, offset(i), repeat)
        for repeat in (1, 2)
        for host, offset in CLOCKS.items()
        for i in range(100)
    ]
    return made.write()


def test_everything_is_drawn_where_nothing_is_named(run: Path, tmp_path: Path) -> None:
    code, out, err = figure(run)
    assert code == 0, err
    names = [f"{kind}-loop" for kind in ("scatter", "histogram", "ccdf", "heatmap", "hops")]
    names += ["waterfall-loop", "timeline", "patterns-bed"]
    names += ["clock", "clock-width", "clock-realtime", "clock-allan"]
    assert re.findall(r"([\w-]+)\.svg \(and pdf, png, csv\)", out) == names
    folder = run / "figures"
    assert {file.name for file in folder.iterdir()} == {f"{n}.{f}" for n in names for f in FILES}
    for name in names:
        assert fonts(folder / f"{name}.pdf") == {"/CIDFontType2": True}, name
        assert len(rows(folder / f"{name}.csv")) > 1, name
        text = (folder / f"{name}.svg").read_text()
        shown = " ".join(re.findall(r"<text[^>]*>(.*?)</text>", text))
        # A unit on an axis, or a word that has none.
        assert re.search(r"\((ns|µs|ms|s|ppm)\)|\b(s|ns|µs|ms) since|\b[µmn]?s\b", shown), name
        sizes = re.findall(r"font(?:-size)?: (?:[a-z0-9]+ )?([\d.]+)px", text)
        assert min(map(float, sizes)) >= 6.5, name
        assert (folder / f"{name}.svg").stat().st_size < 700_000
    # Again: what is not of `draw` has the same bytes too.
    again = ("hops", "waterfall", "timeline", "patterns", "clock", "--format", "svg")
    assert figure(run, *again, "-o", tmp_path)[0] == 0
    files = sorted(tmp_path.iterdir())
    assert len(files) == 10
    for file in files:
        assert file.read_bytes() == (folder / file.name).read_bytes(), file.name


def test_the_numbers_are_those_of_the_results(run: Path, tmp_path: Path) -> None:
    assert figure(run, "histogram", "loop", "ccdf", "loop", HOP, *SVG, "-o", tmp_path)[0] == 0
    results = analyse(open_run(run))
    loop, (hop, *_) = results.paths[0].loop, results.paths[0].hops
    for stem, part in (("ccdf-loop", loop), ("ccdf-" + _slug(HOP), hop)):
        by_repeat: dict[str, list[dict[str, str]]] = {}
        for row in rows(tmp_path / f"{stem}.csv"):
            by_repeat.setdefault(row["series"], []).append(row)
        counts = [int(each[0]["samples at least as large"]) for each in by_repeat.values()]
        assert set(by_repeat) == {"1", "2"}
        assert sum(counts) == part.count - part.lost if part is loop else part.count
        column = next(name for name in rows(tmp_path / f"{stem}.csv")[0] if "(ns)" in name)
        values = [int(row[column]) for each in by_repeat.values() for row in each]
        assert (min(values), max(values)) == (part.times["min"], part.times["max"])
    arrived = sum(int(row["samples"]) for row in rows(tmp_path / "histogram-loop.csv"))
    beyond = re.search(r"(\d+) above", (tmp_path / "histogram-loop.svg").read_text())
    assert arrived + int(beyond[1] if beyond else 0) == loop.count - loop.lost


def test_a_histogram_by_decades_and_what_a_legend_is_about(run: Path, tmp_path: Path) -> None:
    words = ("histogram", "loop", "ccdf", "loop", "hops", "--format", "svg", "-o", tmp_path)
    assert figure(run, *words, "--log", "x")[0] == 0
    shown = {
        file.stem: re.findall(r"<text[^>]*>(.*?)</text>", file.read_text())
        for file in tmp_path.glob("*.svg")
    }
    counted = sum(int(row["samples"]) for row in rows(tmp_path / "histogram-loop.csv"))
    part = analyse(open_run(run)).paths[0].loop
    beyond = re.search(r"(\d+) above", " ".join(shown["histogram-loop"]))
    assert counted + int(beyond[1] if beyond else 0) == part.count - part.lost
    # Curves 1 and 2 are of the two repeats.
    assert {"repeat", "1 (n = 891)", "2 (n = 891)"} <= set(shown["ccdf-loop"])
    assert any(re.fullmatch(r".*time.* \((ns|µs|ms)\)", text) for text in shown["hops-loop"])


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-")


def test_lost_messages_are_marked_and_told(run: Path, tmp_path: Path) -> None:
    assert figure(run, "scatter", "loop", *SVG, "-o", tmp_path)[0] == 0
    lost = [row for row in rows(tmp_path / "scatter-loop.csv") if row["series"] == "lost"]
    assert len(lost) == analyse(open_run(run)).paths[0].loop.lost == 18
    # Every hundredth message from the first on, one each 2 ms.
    whens = sorted({int(row["time since the first message (ns)"]) for row in lost})
    assert whens == [(1 + 100 * i) * 2_000_000 for i in range(9)]
    assert {row["response time (ns)"] for row in lost} == {""}
    assert "18 lost: marks along the top" in (tmp_path / "scatter-loop.svg").read_text()


def test_a_stretch_of_time_and_a_repeat(run: Path, tmp_path: Path) -> None:
    words = ("scatter", "loop", "--from", "0.5s", "--until", "600ms", "--repeat", 2)
    assert figure(run, *words, *SVG, "-o", tmp_path)[0] == 0
    times = [
        int(row["time since the first message (ns)"]) for row in rows(tmp_path / "scatter-loop.csv")
    ]
    assert len(times) == 50 and min(times) >= 500_000_000 - 10**6 and max(times) < 600_000_000


def test_values_and_fields_of_events(run: Path, tmp_path: Path) -> None:
    words = ("scatter", "rate", "pace:second.rate", "source/pace:second.rate", "-o", tmp_path)
    assert figure(run, *words, *SVG)[0] == 0
    of_value = rows(tmp_path / "scatter-rate.csv")
    rates = [100 + i % 7 for i in range(40)]
    assert [float(row["rate (bit/s)"]) for row in of_value] == [8 * rate for rate in rates]
    for stem in ("scatter-pace-second.rate", "scatter-source-pace-second.rate"):
        found = rows(tmp_path / f"{stem}.csv")
        assert [float(row["rate"]) for row in found] == rates


def test_the_waterfall_is_the_message(run: Path, tmp_path: Path) -> None:
    assert figure(run, "waterfall", "--message", 512, "--repeat", 2, *SVG, "-o", tmp_path)[0] == 0
    messages = analyse(open_run(run)).messages["loop"]
    (row,) = np.flatnonzero((messages.id == 512) & (messages.repeat == 2))
    stamps = [int(ts[row]) for ts in messages.ts]
    found = rows(tmp_path / "waterfall-loop.csv")
    assert [(row["from"], row["to"]) for row in found] == [
        (f"{a[0]}/{a[1]}", f"{b[0]}/{b[1]}") for a, b in zip(PIPELINE, PIPELINE[1:], strict=False)
    ]
    assert [int(r["start (ns)"]) for r in found] == [ts - stamps[0] for ts in stamps[:-1]]
    assert [int(r["time (ns)"]) for r in found] == np.diff(stamps).tolist()
    assert int(found[0]["clock error (ns)"]) == 900 and int(found[2]["clock error (ns)"]) == 2300


def test_the_usual_waterfall_shows_median_p99_and_slowest(run: Path, tmp_path: Path) -> None:
    assert figure(run, "waterfall", *SVG, "-o", tmp_path)[0] == 0
    times = analyse(open_run(run)).paths[0].loop.times
    total: dict[str, int] = {}
    for row in rows(tmp_path / "waterfall-loop.csv"):
        total[row["of"]] = total.get(row["of"], 0) + int(row["time (ns)"])
    assert total == {name: times[name] for name in ("p50", "p99", "max")}


def test_a_lost_message_falls_as_far_as_it_came(run: Path, tmp_path: Path) -> None:
    words = ("waterfall", "--message", 101, "--repeat", 1, "--format", "svg", "-o", tmp_path)
    assert figure(run, *words)[0] == 0
    found = rows(tmp_path / "waterfall-loop.csv")
    assert [row["to"] for row in found] == ["node1/pipe:received", "node1/pipe:sent"]
    assert "message 101, lost" in (tmp_path / "waterfall-loop.svg").read_text()


def test_where_nothing_arrived_the_rest_is_drawn(tmp_path: Path) -> None:
    made = pipeline(tmp_path / "run", messages=20)
    made.rows = [row for row in made.rows if row.component == "source"]
    root = made.write()
    assert figure(root, "--format", "svg", "-o", tmp_path / "f")[0] == 0
    names = {file.stem for file in (tmp_path / "f").iterdir()}
    assert names == {"timeline", "clock", "clock-width", "clock-allan"}
    code, _, err = figure(root, "ccdf")
    assert code == 2 and "has no path of which a message arrived" in err


def test_what_clocks_leave_unknown_is_blank_and_told(tmp_path: Path) -> None:
    from dataclasses import replace

    from loopscope.analysis.quantity_text import UNKNOWN_NS

    made = pipeline(tmp_path / "run", messages=300)
    made.rows = [
        replace(row, err=UNKNOWN_NS) if row.host == "h3" and row.id % 3 == 0 else row
        for row in made.rows
    ]
    root = made.write()
    hop = "loop[node1/pipe:sent -> node2/pipe:received]"
    words = ("scatter", hop, "ccdf", hop, "waterfall", "--format", "svg", "-o", tmp_path)
    assert figure(root, *words)[0] == 0
    found = rows(tmp_path / f"scatter-{_slug(hop)}.csv")
    assert [row["clock error (ns)"] == "" for row in found] == [i % 3 == 0 for i in range(300)]
    assert "of 100 unknown" in (tmp_path / f"scatter-{_slug(hop)}.svg").read_text()
    tails = rows(tmp_path / f"ccdf-{_slug(hop)}.csv")
    # A hundred of three hundred may be anything: so the greatest is open.
    lengths = [int(row["time of the hop (ns)"]) for row in tails]
    assert max(float(row["most by the clocks (ns)"]) for row in tails) > max(lengths)
    for row in rows(tmp_path / "waterfall-loop.csv"):
        unknown = int(row["id"]) % 3 == 0 and "node2" in row["from"] + row["to"]
        one_host = row["from"].split("/")[0] == row["to"].split("/")[0]
        assert (row["clock error (ns)"] == "") == unknown or one_host


def test_a_hop_is_between_hosts_or_on_one(run: Path) -> None:
    falls = usual(analyse(open_run(run)).messages["loop"])
    for fall in falls:
        assert [step.between_hosts for step in fall.steps] == [True, False, True, False, True]


def test_a_legend_has_what_is_drawn(run: Path, tmp_path: Path) -> None:
    falls = usual(analyse(open_run(run)).messages["loop"])
    for kept, wanted in ((5, ["between hosts", "on one host"]), (1, ["between hosts"])):
        some = [replace(fall, steps=fall.steps[:kept]) for fall in falls]
        drawn = file_figure(chart(some), 7)
        assert [text.get_text() for text in drawn.legends[0].get_texts()] == wanted
    # Matplotlib takes a name such as that of the router for one that no legend shall have.
    table = pa.table({"x": [1, 2, 3, 4], "y": [5, 6, 7, 9], "series": ["_router", "h1"] * 2})
    for kind in ("scatter", "histogram", "ccdf", "mean-deviation"):
        columns = {"x": "x", "y": "y", "series": "series"}
        if kind in ("histogram", "ccdf"):
            columns = {"x": "y", "series": "series"}
        draw(kind, table, tmp_path, kind, columns=columns, title="")
        assert "_router" in (tmp_path / f"{kind}.svg").read_text(), kind


@pytest.mark.parametrize("height", [0.8, 3.0])
def test_numbers_of_a_logarithmic_axis_do_not_overlap(height: float) -> None:
    figure = Figure(figsize=(4, height), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1, 2], [4, 60, 2500], ".")
    axes.tick_params(labelsize=7)
    logarithmic(axes, axes.yaxis)
    figure.canvas.draw()
    low, high = axes.get_ylim()
    numbers = [
        label.get_window_extent()
        for label, at in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
        if low <= at <= high
    ]
    assert len(numbers) >= 3
    assert all(one.y1 <= other.y0 for one, other in zip(numbers, numbers[1:], strict=False))


def test_the_time_line_has_each_event_of_its_stretch(run: Path, tmp_path: Path) -> None:
    opened = open_run(run)
    events: list[tuple[str, str, str, int]] = []
    for name in opened.tables:
        table = opened.table(name).filter(lambda t: t.repeat == 1).to_pyarrow()
        columns = (table[each].to_pylist() for each in ("host", "process", "ts"))
        entity = name.replace(".", ":", 1)
        events += [(host, program, entity, ts) for host, program, ts in zip(*columns, strict=True)]
    first = min(ts for *_, ts in events)
    begin, end = 5 * SECOND + 10**8 - first, 5 * SECOND + 11 * 10**7 - first
    expected = sorted((*e[:3], e[3] - first) for e in events if begin <= e[3] - first <= end)
    words = ("timeline", "--from", f"{begin}ns", "--until", f"{end}ns", "--repeat", 1)
    assert figure(run, *words, *SVG, "-o", tmp_path)[0] == 0
    since = "time since the first event (ns)"
    found = rows(tmp_path / "timeline.csv")
    assert sorted((r["host"], r["program"], r["event"], int(r[since])) for r in found) == expected
    assert len(expected) > 20


def test_a_width_and_formats(run: Path, tmp_path: Path) -> None:
    from pypdf import PdfReader

    words = ("--width", "one", "--format", "pdf", "-o", tmp_path)
    code, _, err = figure(run, "hops", "waterfall", "timeline", "clock", *words)
    assert code == 0, err
    assert {file.suffix for file in tmp_path.iterdir()} == {".pdf", ".csv"}
    for file in tmp_path.glob("*.pdf"):
        page = PdfReader(file).pages[0].mediabox
        assert float(page.width) == pytest.approx(3.5 * 72, abs=1)


def test_the_list_names_kinds_and_what_they_can_be_of(run: Path) -> None:
    code, out, _ = figure(run, "--list", "--json")
    told: dict[str, Any] = json.loads(out)
    assert code == 0 and list(told["kinds"]) == list(KINDS)
    assert {HOP, "loop", "rate"} <= set(told["of"])
    assert told["of"]["pace:second.rate"] == "a field of events"
    text = figure(run, "--list")[1]
    for name in (*KINDS, *told["of"]):
        assert name in text
    assert not (run / "nothing").exists()


def test_a_reader_who_went_away_is_told_nothing(run: Path) -> None:
    command = [Path(sys.executable).with_name("loopscope"), "figure", run, "--list"]
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **given) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_completion_knows_kinds_and_what_they_can_be_of(run: Path) -> None:
    from types import SimpleNamespace

    from loopscope.cli.figure import _complete

    given = SimpleNamespace(params={"run": str(run)})
    assert _complete(given, "cc") == ["ccdf"]
    assert _complete(given, "loop[source") == [HOP]
    assert "pace:second.rate" in _complete(given, "pace:")
    for elsewhere in ("nowhere", None):
        assert _complete(SimpleNamespace(params={"run": elsewhere}), "c") == []


def test_json_names_the_files(run: Path, tmp_path: Path) -> None:
    code, out, _ = figure(run, "ccdf", "loop", "-o", tmp_path, "--json")
    (only,) = json.loads(out)["figures"]
    assert code == 0 and (only["kind"], only["of"]) == ("ccdf", "loop")
    assert only["files"] == [str(tmp_path / f"ccdf-loop.{each}") for each in FILES]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cdf"], "no figure cdf (did you mean ccdf?)"),
        (["ccdf", "lop"], "no path, value or field of events lop (did you mean loop?)"),
        (["hops", "lop"], "hops: no path lop (did you mean loop?)"),
        (
            ["scatter", "loop[source/pipe:sent -> sink/pipe:receivd]"],
            "did you mean sink/pipe:received",
        ),
        (["scatter", "loop[sink/pipe:received -> source/pipe:sent]"], "does not come before"),
        (["scatter", "pace:secnd.rate"], "did you mean pace:second?"),
        (["scatter", "pace:second.rat"], "no number rat (did you mean rate?)"),
        (["waterfall", "--message", "9999"], "no message with id 9999: they are 0 to 899"),
        (["ccdf", "--message", "1"], "--message is for waterfall, causes, timeline"),
        (["ccdf", "--repeat", "3"], "--repeat 3: the run has 1, 2"),
        (["ccdf", "--from", "5"], "--from: '5' has no unit"),
        (["ccdf", "--from", "5s", "--until", "4s"], "--until must be later than --from"),
        (["ccdf", "--from", "1h"], "nothing is left of it"),
        (["ccdf", "--width", "tow"], "--width: no width tow (did you mean two?)"),
        (["ccdf", "--format", "svg,jpg"], "--format: no format jpg"),
        (["ccdf", "--log", "z"], "log: z is neither"),
        (["mean-deviation", "loop"], "this run sweeps none"),
        (["pattern-points"], "this run sweeps nothing"),
        (["pattern-points", "bad"], "no pattern bad (did you mean bed?)"),
        (["clock", "loop"], "no kind of figure loop"),
    ],
)
def test_mistakes_are_told(run: Path, words: list[str], said: str, tmp_path: Path) -> None:
    code, out, err = figure(run, *words, "-o", tmp_path)
    assert code == 2 and said in err, err
    assert "Traceback" not in err and not out and not list(tmp_path.iterdir())


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    code, _, err = figure(tmp_path / "no")
    assert code == 2 and "no such run directory" in err


def test_a_path_may_be_called_like_a_kind(tmp_path: Path) -> None:
    events = [event(name, "s", "at") for name in ("a", "b")]
    made = [Row(c, "s:at", i, SECOND + i * 1000 + j) for i in range(9) for j, c in enumerate("ab")]
    root = SyntheticRun(tmp_path / "run", made, paths=[path("ccdf", "id", events)]).write()
    assert figure(root, "ccdf", "ccdf", "histogram", *SVG, "-o", tmp_path / "f")[0] == 0
    names = {file.stem for file in (tmp_path / "f").iterdir()}
    assert names == {"ccdf-ccdf", "histogram-ccdf"}


def test_mean_and_deviation_against_the_swept_parameter(tmp_path: Path) -> None:
    root, _ = sweep_of(tmp_path / "sweep", limits=(10**6, 10**6, 10**6))
    code, _, err = figure(root, *SVG, "-o", tmp_path / "f")
    assert code == 0, err
    found = rows(tmp_path / "f" / "mean-deviation-loop.csv")
    assert [float(row["delay (ns)"]) for row in found] == [1000, 2000, 3000]
    for row, name in zip(found, ("delay=1us", "delay=2us", "delay=3us"), strict=True):
        loop = analyse(open_run(root, name)).paths[0].loop
        assert int(row["n"]) == loop.count - loop.lost
        assert float(row["clock error of the mean (ns)"]) == loop.err_ns == 0
        assert round(float(row["mean response time (ns)"]), 1) == loop.times["mean"]
    # What does not compare points is drawn for each.
    code, _, err = figure(root, "ccdf", "loop", *SVG, "-o", tmp_path / "each")
    assert code == 0, err
    drawn = sorted(file.parent.name for file in (tmp_path / "each").glob("*/ccdf-loop.csv"))
    assert drawn == ["delay=1us", "delay=2us", "delay=3us"]
    assert figure(root, "ccdf", "loop", "--point", "delay=2us", *SVG, "-o", tmp_path / "g")[0] == 0
    code, _, err = figure(root, "mean-deviation", "--against", "dely")
    assert code == 2 and "did you mean delay?" in err


def test_types_of_messages_are_compared_by_the_points_of_a_sweep(tmp_path: Path) -> None:
    points = []
    for delay in (1, 2):
        made = pipeline(tmp_path / "sweep", messages=9)
        made.patterns = [ONE]
        made.rows += [
            replace(row, ts=row.ts + delay * 10**6) if row.entity == "m:received" else row
            for row in good()
        ]
        points.append(({"delay": f"{delay}ms"}, made))
    root = write_sweep(points, {})
    code, _, err = figure(root, *SVG, "-o", tmp_path / "f")
    assert code == 0, err
    found = rows(tmp_path / "f" / "pattern-points-bed.csv")
    assert [(row["point"], row["type"], row["receiver"]) for row in found] == [
        (point, "a", receiver) for point in ("delay=1ms", "delay=2ms") for receiver in ("c", "d")
    ]
    for row in found:
        result = analyse(open_run(root, row["point"])).patterns[0]
        (mine,) = (each for each in result.rows if each.receiver == row["receiver"])
        for column, time in (("p50 (ns)", "p50"), ("p99 (ns)", "p99"), ("max (ns)", "max")):
            assert int(row[column]) == mine.times[time]
        assert int(row["target (ns)"]) == mine.target_ns
    assert int(found[-1]["p50 (ns)"]) - int(found[0]["p50 (ns)"]) == 10**6
    text = (tmp_path / "f" / "pattern-points-bed.svg").read_text()
    for shown in ("delay=1ms", "delay=2ms", "target", "median (ms)", "p99 (ms)", "maximum (ms)"):
        assert f">{shown}<" in text, shown


def test_a_figure_of_hops_says_how_many_points_it_shows_and_keeps_the_extremes(
    tmp_path: Path,
) -> None:
    run = pipeline(tmp_path / "run", messages=5000).write()
    assert figure(run, "hops", *SVG, "-o", tmp_path)[0] == 0
    of_hop: dict[str, list[int]] = {}
    for row in rows(tmp_path / "hops-loop.csv"):
        of_hop.setdefault(row["hop"], []).append(int(row["time (ns)"]))
    hops = analyse(open_run(run)).paths[0].hops
    assert len(of_hop) == len(hops)
    text = (tmp_path / "hops-loop.svg").read_text()
    for hop, shown in zip(hops, of_hop.values(), strict=True):
        assert len(shown) < hop.count == 5000
        assert f"n = {number(5000)}, {number(len(shown))} points, extremes kept" in text
        assert (min(shown), max(shown)) == (hop.times["min"], hop.times["max"])


def test_time_begins_with_the_first_message_though_a_warm_up_is_left_out(tmp_path: Path) -> None:
    tables = []
    for name, trim_ns in (("whole", 0), ("trimmed", 50_000_000)):
        made = pipeline(tmp_path / name, messages=60)
        made.paths = [replace(each, trim_ns=trim_ns) for each in made.paths]
        tables.append(FigureSource(made.write()).samples("loop").table)
    since, trimmed = (table["since"].to_pylist() for table in tables)
    assert trimmed == [each for each in since if each >= 50_000_000] and len(trimmed) < len(since)
