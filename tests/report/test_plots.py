"""An experiment's own figures show what plain Python computes, and their files say the same."""

import csv
import dataclasses
import json
import random
import re
import shutil
import statistics
import subprocess

import pytest
from synthetic_run import SECOND, Row, SyntheticRun, event, path, write_sweep

from loopscope.analysis import analyse, analyse_sweep
from loopscope.experiment import Figure, Statistic, Value
from loopscope.report import render_sweep
from loopscope.report import write_report as write_run
from loopscope.report import write_sweep as write_report
from loopscope.report.plots import Recorder
from loopscope.timeline import open_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
PATH = path("loop", "id", [event("a", "s", "out"), event("a", "s", "in")])
ENDS = ((0, "out"), (1, "in"))
RATE = Value("rate", "a", "s", "in", "seq", "mean", "bit/s", 1e6)


def figure(name, x, *y, **more):
    given = {
        "title": None,
        "error": None,
        "series": None,
        "only": {},
        "log": (),
        "compare": None,
        "x_label": None,
        "y_label": None,
        "until_ns": None,
    } | more
    return Figure(name=name, x=x, y=tuple(map(statistic, y)), **given)


def statistic(text):
    name, _, stat = text.partition(".")
    return Statistic(text, name, None, stat or None)


FIGURES = (
    figure("mean", "delay", "loop.mean", error=statistic("loop.deviation"), compare="linear"),
    figure(
        "series", "delay", "loop.p99", "loop.min", series="n", log=("y",), labels=("tail", "least")
    ),
    figure("chosen", "n", "rate", only={"delay": "20ms"}),
    figure("time", "time", "loop", until_ns=5_000_000),
    figure("rates", "time", "rate", only={"n": 1}),
    figure("words", "kind", "loop.count", only={"delay": "0ms"}),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Six points, one of which failed; the lengths of their messages by name."""
    root = tmp_path_factory.mktemp("sweep")
    points, lengths = [], {}
    for delay in (0, 20, 100):
        for n in (1, 2):
            chance = random.Random(delay + n)
            params = {"delay": f"{delay}ms", "n": n, "kind": "ab"[n - 1]}
            of_point = [1_000_000 * delay * n + chance.randrange(10**5, 10**6) for _ in range(20)]
            lengths[f"delay={delay}ms,n={n},kind={'ab'[n - 1]}"] = of_point
            rows = []
            for i, length in enumerate(of_point):
                ts = SECOND + i * 1_000_000
                rows += [Row("a", "s:out", i, ts), Row("a", "s:in", i, ts + length)]
            points.append((params, SyntheticRun(root, rows, paths=[PATH], values=[RATE])))
    failed = {"delay=100ms,n=2,kind=b": "it broke <badly>"}
    table = (statistic("loop.mean"), statistic("rate"))
    write_sweep(points, failed, figures=FIGURES, table=table)
    del lengths["delay=100ms,n=2,kind=b"]
    loaded = json.loads((root / "manifest.json").read_text())
    assert len(loaded["experiment"]["points"]) == 6
    from loopscope.experiment import from_manifest

    recorder = Recorder(from_manifest(loaded["experiment"]))
    sweep = analyse_sweep(root, recorder.see)
    page = write_report(root, sweep, recorder.drawn(sweep))
    return root, sweep, page, lengths


def rows(root, name):
    with (root / "figures" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_figure_is_there_in_every_form(made):
    root, *_ = made
    for each in FIGURES:
        for kind in ("svg", "pdf", "png", "csv"):
            assert (root / "figures" / f"{each.name}.{kind}").stat().st_size > 100
    text = (root / "figures" / "mean.svg").read_text()
    assert "delay (ms)" in text and "mean of loop (ms)" in text


def test_the_numbers_are_those_of_plain_python(made):
    root, _, _, lengths = made
    found = rows(root, "mean")
    assert {row["point"] for row in found} == set(lengths)
    for row in found:
        of_point = lengths[row["point"]]
        delay = int(re.match(r"delay=(\d+)ms", row["point"])[1])
        assert float(row["delay (ns)"]) == delay * 1e6
        mean = float(row["mean of loop (ns)"])
        assert mean == pytest.approx(statistics.fmean(of_point), abs=0.1)
        deviation = float(row["loop.deviation (ns)"])
        assert deviation == pytest.approx(statistics.pstdev(of_point), abs=0.1)
        # Points that differ in another parameter are not joined to one curve.
        assert row["series"] == row["point"].partition(",")[2].replace(",", ", ").replace(
            "=", " = "
        )


def test_series_and_statistics_are_told_apart(made):
    root, _, _, lengths = made
    found = rows(root, "series")
    # What is left of each point besides x and the series, the word, is in the label too.
    expected = {f"{s}, n = {n}, kind = {'ab'[n - 1]}" for s in ("tail", "least") for n in (1, 2)}
    assert {row["series"] for row in found} == expected
    least = {row["point"]: float(row["time (ns)"]) for row in found if "least" in row["series"]}
    assert least == {name: min(of_point) for name, of_point in lengths.items()}


def test_marks_of_a_logarithmic_axis_carry_their_units(made):
    _, sweep, _, _ = made
    points = figure("log", "n", "rate", log=("x",), only={"delay": "20ms"})
    long = figure("long", "delay", "loop.mean", log=("x",), only={"n": 1})
    experiment = dataclasses.replace(sweep.experiment, figures=(points, long))
    first, second = Recorder(experiment).drawn(dataclasses.replace(sweep, experiment=experiment))
    assert first.x.marks == ((1.0, "1"), (2.0, "2"))
    assert [text for _, text in second.x.marks] == ["0ms", "20ms", "100ms"]
    assert (second.x.label, second.y.label) == ("delay", "mean of loop (ms)")


def test_only_the_chosen_points_are_shown(made):
    root, *_ = made
    found = rows(root, "chosen")
    assert [row["point"] for row in found] == ["delay=20ms,n=1,kind=a", "delay=20ms,n=2,kind=b"]
    assert [float(row["n"]) for row in found] == [1, 2]
    assert [float(row["rate (bit/s)"]) for row in found] == [9.5e6, 9.5e6]
    words = rows(root, "words")
    assert [(row["kind"], float(row["count of loop"])) for row in words] == [("a", 20), ("b", 20)]


def test_over_time_each_point_has_its_messages(made):
    root, _, _, lengths = made
    found = rows(root, "time")
    for name, of_point in lengths.items():
        here = [row for row in found if row["point"] == name]
        # One a millisecond, up to five milliseconds after the first.
        assert [float(row["time (s)"]) for row in here] == [i / 1000 for i in range(6)]
        assert [float(row["loop (ns)"]) for row in here] == of_point[:6]
    rates = rows(root, "rates")
    assert {row["point"] for row in rates} == {name for name in lengths if "n=1" in name}


def test_the_fitted_line_is_the_least_squares_one(made):
    _, sweep, _, lengths = made
    recorder = Recorder(sweep.experiment)
    (plot,) = (each for each in recorder.drawn(sweep) if each.figure.name == "mean")
    (curve,) = (each for each in plot.curves if each.label.startswith("n = 1"))
    x = [0, 20e6, 100e6]
    y = [statistics.fmean(of) for name, of in lengths.items() if "n=1" in name]
    slope, intercept = statistics.linear_regression(x, y)
    assert curve.fit == pytest.approx((intercept, slope), rel=1e-6)


def test_the_terminal_shows_each_point(made, capsys):
    _, sweep, _, _ = made
    from rich.console import Console

    render_sweep(sweep, Console(width=300))
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["delay", "n", "kind", "loop.mean", "rate"]
    (row,) = (line for line in out.splitlines() if line.split()[:2] == ["100ms", "2"])
    assert row.split()[-3:] == ["–", "–", "failed"]
    assert "it broke <badly>" in out
    assert "9.500 Mbit/s" in out or "9.5 Mbit/s" in out


def test_the_page_has_the_table_the_figures_and_the_failure(made):
    root, sweep, page, _ = made
    text = page.read_text()
    assert text.count('class="plot"') == len(FIGURES)
    assert "it broke &lt;badly&gt;" in text and "it broke <badly>" not in text.split("<script")[0]
    embedded = re.search(r'id="results">(.*?)</script>', text, re.S)[1]
    assert json.loads(embedded) == json.loads(sweep.to_json())
    again = write_report(root, sweep, ())
    assert 'class="plot"' not in again.read_text()


def test_a_run_without_a_sweep_has_its_figures_over_time(tmp_path):
    rows_ = [Row("a", f"s:{end}", i, SECOND + i * 1000 + j) for i in range(9) for j, end in ENDS]
    run = SyntheticRun(tmp_path, rows_, paths=[PATH])
    root = run.write()
    experiment = dataclasses.replace(run.experiment(), figures=(figure("alone", "time", "loop"),))
    recorder = Recorder(experiment)
    opened = open_run(root)
    results = analyse(opened)
    recorder.see(opened, results)
    page = write_run(opened, results, own=recorder.drawn(None))
    assert 'data-figure="own-alone"' in page.read_text()
    assert [float(row["loop (ns)"]) for row in rows(root, "alone")] == [1.0] * 9


@pytest.mark.full
@pytest.mark.skipif(CHROMIUM is None, reason="SKIPPED LOUDLY: needs chromium")
def test_a_browser_draws_the_figures(made, tmp_path):
    root, sweep, _, _ = made
    recorder = Recorder(sweep.experiment)
    page = write_report(root, sweep, recorder.drawn(sweep))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    against = [each for each in FIGURES if each.x != "time"]
    assert done.stdout.count("main-svg") >= len(against)
