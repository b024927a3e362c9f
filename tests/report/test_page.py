"""The page says what the JSON says, by itself, and its figures appear."""

import dataclasses
import html
import json
import re
import shutil
import subprocess
import warnings
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic_run import SECOND, ClockReading, ClockStep, Row, SyntheticRun, pipeline
from test_patterns import ONE, good

from loopscope.analysis import analyse
from loopscope.analysis.results import TIMES
from loopscope.report import write_report
from loopscope.timeline import open_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")

if CHROMIUM is None:
    warnings.warn("SKIPPED: no chromium, so no browser opens the page", stacklevel=1)


class Page(HTMLParser):
    """Tables by id, as rows of `data-value`s; scripts; every address that a browser would load."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.scripts, self.loads, self.plots = {}, {}, [], []
        self._table = self._script = None
        self.source = text
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.loads += [(tag, name) for name in given if name in ("src", "href", "srcset", "data")]
        if "data-figure" in given:
            self.plots.append(given["data-figure"])
        if tag == "table":
            self._table = self.tables.setdefault(given.get("id"), [])
        elif tag == "tr" and self._table is not None:
            self._table.append([])
        elif "data-value" in given:
            self._table[-1].append(given["data-value"])
        self._script = given.get("id") if tag == "script" else None

    def handle_data(self, data):
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with duplicates, losses, drops, a pattern, and names that need escaping."""
    synthetic = pipeline(tmp_path_factory.mktemp("run"), messages=6000, repeats=2, lose_every=500)
    synthetic.drops = {("source", "other:<script>"): 3}
    synthetic.rows = [*synthetic.rows, Row("sink", "pipe:received", 0, 6_000_000_000, 0, "h1")]
    of_type = dataclasses.replace(ONE.types[0], name="a<b>")
    synthetic.patterns = [dataclasses.replace(ONE, types=(of_type,))]
    synthetic.components = ["p", "c", "d"]
    synthetic.rows += [row for row in good() if (row.component, row.id) != ("d", 7)]
    synthetic.readings = [
        ClockReading(host, 5 * SECOND + i * 100_000_000, offset(i), repeat)
        for repeat in (1, 2)
        for host, offset in CLOCKS.items()
        for i in range(100)
    ]
    synthetic.clock_steps = [
        ClockStep("h2", at=at(50, 51), ns=(21_999_000, 22_000_900), what="<set>"),
        ClockStep("h3", "counter", "step", at(70, 73), what="disturbed"),
    ]
    run = open_run(synthetic.write())
    results = analyse(run)
    path = write_report(run, results)
    return run, results, path, Page(path.read_text())


def samples(data):
    """The traces that show samples: no whiskers, and nothing that was lost."""
    return [t for t in data if "hovertemplate" in t and t["name"] != "lost"]


CLOCKS = {
    "h2": lambda i: (22_000_000 * (i > 50), 900),
    "h3": lambda i: None if 70 <= i < 73 else (-i, 1400),
}
"""CLOCK_REALTIME against the reference's."""


def at(*tenths):
    return tuple(5 * SECOND + i * 100_000_000 for i in tenths)


def test_the_page_embeds_the_results(made):
    _, results, _, page = made
    assert json.loads(page.scripts["results"]) == json.loads(results.to_json())


def test_the_table_shows_what_the_results_say(made):
    _, results, _, page = made
    found = results.to_dict()["paths"]["loop"]
    expected = [
        [part[key] for key in ("count", "lost", "duplicates")]
        + [part[f"{name}_ns"] for name in TIMES]
        + [part["err_ns"]]
        for part in (found, *found["by_repeat"].values(), *found["hops"])
    ]
    head, *rows = page.tables["intervals"]
    assert head == []
    assert [[json.loads(value) for value in row] for row in rows] == expected
    assert found["duplicates"] == 1
    *judged, targets = page.tables["expectations"][1:]
    judged = [json.loads(value) for (value,) in judged]
    assert judged == [each["measured"] for each in results.to_dict()["expectations"]]
    assert targets == []


def test_a_pattern_has_a_row_for_each_receiver(made):
    _, results, path, page = made
    (pattern,) = results.to_dict()["patterns"].values()
    head, *rows = page.tables["pattern-bed"]
    keys = ("count", "lost", "max_ns", "target_ns")
    assert [[json.loads(value) for value in row if value] for row in rows] == [
        [row[key] for key in keys] for row in pattern["rows"]
    ]
    assert [row["verdict"] for row in pattern["rows"]] == ["PASS", "FAIL"]
    text = path.read_text()
    assert "1 of 2 targets met" in text
    assert "a&lt;b&gt;" in text
    assert "<td>a<b>" not in text
    figure = json.loads(page.scripts["figures"])["pattern-bed"]
    drawn = {trace["name"]: trace["y"] for trace in figure["data"]}
    assert drawn["max"] == [row["max_ns"] / 1e6 for row in pattern["rows"]]
    assert drawn["target"] == [10.0, 10.0]


def test_the_page_loads_nothing(made):
    _, _, path, page = made
    assert page.loads == []
    text = path.read_text()
    assert "default-src 'none'" in text
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert "url(" not in style
    assert "@import" not in style
    # Plotly's own bar would offer to send a chart away.
    assert 'plotlyServerURL: ""' in text
    assert '"sendChartToCloud"' in text


def test_the_page_is_light_and_names_its_licence(made):
    *_, path, _ = made
    assert path.stat().st_size < 4_000_000
    assert "Licensed under the MIT license" in path.read_text()


def test_the_bundle_is_the_one_that_the_script_fetches():
    from hashlib import sha256
    from importlib.resources import files

    script = (Path(__file__).parents[2] / "scripts/plotly").read_text()
    version = re.search(r"^package=plotly\.js-cartesian-dist-min@([\d.]+)$", script, re.M)[1]
    bundle = (files("loopscope.report") / "plotly/plotly-cartesian.min.js").read_bytes()
    assert sha256(bundle).hexdigest() == re.search(r"^sha256=(\w+)$", script, re.M)[1]
    assert f"v{version}\n".encode() in bundle[:200]


def test_names_from_the_run_are_escaped(made):
    _, _, path, _ = made
    text = path.read_text()
    assert "other:&lt;script&gt;" in text
    assert "other:<script>" not in text
    assert "&lt;set&gt;" in text


def test_plotly_accepts_the_figures(made):
    import plotly.graph_objects as go

    *_, page = made
    figures = json.loads(page.scripts["figures"])
    names = ["pattern-bed", "response-time-loop", "response-histogram-loop", "ccdf-loop"]
    names += ["heatmap-loop", "waterfall-loop", "hops-loop", "timeline"]
    names += ["clock", "clock-width", "clock-realtime", "clock-allan"]
    assert list(figures) == page.plots == names
    for figure in figures.values():
        go.Figure(figure)
        assert {trace["type"] for trace in figure["data"]} <= {"scatter", "bar", "heatmap"}


def test_figures_draw_what_was_measured(made):
    _, results, _, page = made
    figures = json.loads(page.scripts["figures"])
    loop = results.paths[0].loop
    response = samples(figures["response-time-loop"]["data"])
    drawn = [y * 1000 for trace in response for y in trace["y"]]
    assert min(drawn) == pytest.approx(loop.times["min"])
    assert max(drawn) == pytest.approx(loop.times["max"])
    assert len(drawn) <= 5000
    assert [trace["name"] for trace in response] == ["repeat 1", "repeat 2"]
    (lost,) = (t for t in figures["response-time-loop"]["data"] if t["name"] == "lost")
    assert len(lost["x"]) == loop.lost == 24
    (bars,) = figures["response-histogram-loop"]["data"]
    beyond = int(re.search(r"(\d+) above [\d.]+ µs not shown", made[2].read_text()).group(1))
    assert sum(bars["y"]) + beyond == loop.count - loop.lost
    hops = figures["hops-loop"]
    assert len([t for t in hops["data"] if t["type"] == "bar"]) == len(results.paths[0].hops)
    hosts = [each["text"].split(":")[0] for each in figures["clock"]["layout"]["annotations"]]
    assert hosts == ["h2", "h3"]


def test_the_clocks_figures_draw_the_tables(made):
    run, _, _, page = made
    figures = json.loads(page.scripts["figures"])
    knots = run.clock.order_by("host", "repeat", "ts").to_pyarrow().to_pylist()
    of_h2 = [row for row in knots if row["host"] == "h2"]
    widths = figures["clock-width"]["data"]
    hard = [y for t in widths if t["name"] == "hard maximum error" for y in t["y"]]
    calibrated = [y for t in widths if t["name"] == "calibrated error bound" for y in t["y"]]
    assert hard[: len(of_h2)] == [row["err_ns"] for row in of_h2] == [900] * 120
    assert calibrated[: len(of_h2)] == [row["calibrated_ns"] for row in of_h2]
    offsets = [t for t in figures["clock-realtime"]["data"] if t["mode"] == "markers"]
    h2, _, h3, _ = offsets
    assert (min(h2["y"]), max(h2["y"])) == (0, 22)
    # What is not known is not drawn.
    assert (len(h2["y"]), len(h3["y"])) == (100, 97)
    assert set(h3["customdata"]) == {"± 1.4 µs"}
    begin = min(row["ts"] for row in knots)
    for name, axis, times in (("clock-realtime", "x", at(50, 51)), ("clock", "x2", at(70, 73))):
        (stripe,) = figures[name]["layout"]["shapes"]
        assert [stripe["x0"], stripe["x1"]] == [(ts - begin) / 1e9 for ts in times]
        assert stripe["xref"] == axis
    assert {t["name"] for t in figures["clock-allan"]["data"]} == {"h2", "h3"}
    assert len(page.tables["clock-events"]) == 3


def test_a_run_without_messages_has_a_page(tmp_path):
    template = pipeline(tmp_path / "unused", messages=1)
    made = SyntheticRun(tmp_path / "run", [], paths=template.paths, expect=template.expect)
    root = made.write()
    (root / "base" / "1" / "hosts" / "h1" / "env.json").write_text('{"odd": [1, null], "x": {}}')
    run = open_run(root)
    text = write_report(run, analyse(run)).read_text()
    assert "No message was seen." in text
    assert "? UNKNOWN" in text


def browse(path, page, folder):
    """Opens a page in a browser, which must draw every point and complain of nothing."""
    ran = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=1280,3200",
            "--virtual-time-budget=20000",
            "--enable-logging=stderr",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "CONSOLE" not in ran.stderr, ran.stderr
    plots = re.split(r'data-figure="', ran.stdout.split("<script type=")[0])[1:]
    assert len(plots) == len(page.plots)
    figures = json.loads(page.scripts["figures"])
    for plot in plots:
        name = html.unescape(plot[: plot.index('"')])
        data = figures[name]["data"]
        kinds = [trace.get("mode", trace["type"]) for trace in data]
        of_points = zip(kinds, data, strict=True)
        points = sum(
            len(trace["x"]) for kind, trace in of_points if kind == "bar" or "markers" in kind
        )
        assert len(re.findall(r'class="point[ "]', plot)) == points, name
        assert plot.count('class="hm"') == plot.count("data:image/png") == kinds.count("heatmap")
        assert points or "heatmap" in kinds
        assert ("js-line" in plot) == any("lines" in kind for kind in kinds), name
        assert "Reset axes" in plot
        assert "Share chart" not in plot


@pytest.mark.full
@pytest.mark.skipif(CHROMIUM is None, reason="SKIPPED LOUDLY: needs chromium")
def test_a_browser_shows_the_figures_and_has_no_complaint(made, tmp_path):
    *_, path, page = made
    browse(path, page, tmp_path)
