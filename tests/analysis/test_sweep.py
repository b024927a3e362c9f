"""Points are judged by themselves; what the table and the figures ask for is measured."""

import dataclasses
import json
import math
import random
import statistics

import pytest
from synthetic_run import SECOND, Row, SyntheticRun, event, expectation, path, pipeline, write_sweep

from loopscope.analysis import Verdict, analyse, analyse_sweep
from loopscope.experiment import Statistic
from loopscope.report.sweep_page import sweep_page
from loopscope.report.sweep_rows import point_rows
from loopscope.timeline import RunError, open_run

PATH = path("loop", "id", [event("a", "s", "out"), event("a", "s", "in")])


def of_lengths(root, lengths, err=0, expect=(), **more):
    """Messages a millisecond apart, each as long under way as told."""
    rows = []
    for i, length in enumerate(lengths):
        ts = SECOND + i * 1_000_000
        rows += [Row("a", "s:out", i, ts, err), Row("a", "s:in", i, ts + length, err)]
    return SyntheticRun(root, rows, paths=[PATH], expect=expect, **more)


def measure(run, stat):
    statistic = Statistic(f"loop.{stat}", "loop", None, stat)
    return analyse(open_run(run.write()), statistics=[statistic]).statistics[f"loop.{stat}"]


def test_deviation_agrees_with_plain_python_and_its_bracket_holds(tmp_path):
    chance = random.Random(3)
    lengths = [int(chance.gauss(50_000, 7_000)) for _ in range(400)]
    found = measure(of_lengths(tmp_path, lengths, err=90), "deviation")
    assert found.value == pytest.approx(statistics.pstdev(lengths), abs=0.1)
    # Whatever the true lengths are within their maximum errors (of one host: 1 ns and the wander).
    moved = [length + chance.choice((-1, 1)) for length in lengths]
    assert abs(statistics.pstdev(moved) - found.value) <= found.err


def test_settling_is_the_length_of_the_burst_at_the_beginning(tmp_path):
    chance = random.Random(4)
    steady = [int(chance.uniform(40_000, 60_000)) for _ in range(2000)]
    burst = [900_000 if i % 3 else 50_000 for i in range(300)]
    found = measure(of_lengths(tmp_path / "burst", burst + steady), "settling")
    # Up to 5 of the 50 messages that have settled may be outside: the last ones of the burst.
    assert found.value == pytest.approx(300e6, abs=10e6)
    assert measure(of_lengths(tmp_path / "none", steady), "settling").value == 0
    assert measure(of_lengths(tmp_path / "few", steady[:99]), "settling").value is None


def sweep_of(tmp_path, failed=(), limits=(10**6, 10**6, 10**6)):
    points = []
    for delay, limit in zip((1, 2, 3), limits, strict=True):
        chance = random.Random(delay)
        lengths = [delay * 1000 + chance.randrange(100) for _ in range(50)]
        expect = [expectation("loop.p99 < x", "p99", "<", limit)]
        points.append(({"delay": f"{delay}us"}, of_lengths(tmp_path, lengths, expect=expect)))
    reasons = {f"delay={delay}us": "the host burnt down" for delay in failed}
    table = (Statistic("loop.mean", "loop", None, "mean"),)
    return write_sweep(points, reasons, table=table), points


def test_each_point_has_its_own_results(tmp_path):
    root, points = sweep_of(tmp_path)
    sweep = analyse_sweep(root)
    document = json.loads(sweep.to_json())
    assert [point["params"] for point in document["points"]] == [params for params, _ in points]
    for point, (_, run) in zip(document["points"], points, strict=True):
        lengths = [b.ts - a.ts for a, b in zip(run.rows[::2], run.rows[1::2], strict=True)]
        assert point["paths"]["loop"]["max_ns"] == max(lengths)
        assert point["statistics"]["loop.mean"]["value"] == pytest.approx(
            statistics.fmean(lengths), abs=0.1
        )
        assert point["paths"]["loop"]["p99_ns"] == sorted(lengths)[math.ceil(0.99 * 50) - 1]
        alone = analyse(open_run(root, point["point"])).to_dict()
        assert {key: point[key] for key in alone if key != "run"} == {
            key: value for key, value in alone.items() if key != "run"
        }


def test_the_verdict_is_the_worst(tmp_path):
    for name, limits, verdict in (
        ("good", (10**6, 10**6, 10**6), Verdict.PASS),
        ("bad", (10**6, 5, 10**6), Verdict.FAIL),
    ):
        assert analyse_sweep(sweep_of(tmp_path / name, limits=limits)[0]).verdict is verdict


def test_a_failed_point_is_kept_as_failed_and_the_others_count(tmp_path):
    root, _ = sweep_of(tmp_path, failed=[2])
    sweep = analyse_sweep(root)
    assert [point.error for point in sweep.points] == [None, "the host burnt down", None]
    assert [str(point.verdict) for point in sweep.points] == ["PASS", "None", "PASS"]
    assert sweep.verdict is Verdict.UNKNOWN
    document = sweep.to_dict()["points"][1]
    assert document == {
        "point": "delay=2us",
        "params": {"delay": "2us"},
        "verdict": None,
        "error": "the host burnt down",
    }
    worse = analyse_sweep(sweep_of(tmp_path / "b", failed=[1], limits=(9, 9, 9))[0])
    assert worse.verdict is Verdict.FAIL


def test_a_point_that_was_not_reached_says_so(tmp_path):
    root, _ = sweep_of(tmp_path)
    manifest = json.loads((root / "manifest.json").read_text())
    del manifest["points"]["delay=3us"]
    manifest["points"]["delay=2us"] = {"status": "interrupted"}
    (root / "manifest.json").write_text(json.dumps(manifest))
    sweep = analyse_sweep(root)
    errors = [point.error for point in sweep.points]
    assert errors == [None, "it was interrupted", "it was not run"]
    assert [row.ending for row in point_rows(sweep)][1:] == ["interrupted", "not run"]
    assert "3 points, 1 interrupted, 1 not run" in sweep_page(root, sweep, ())


def test_each_point_has_a_file_of_its_own(tmp_path):
    """Runs from before, whose manifest says all of their points, are the others here."""
    root, _ = sweep_of(tmp_path)
    before = analyse_sweep(root).to_json()
    manifest = json.loads((root / "manifest.json").read_text())
    for name, said in manifest.pop("points").items():
        (root / name / "point.json").write_text(json.dumps({"version": 1, **said}))
    (root / "manifest.json").write_text(json.dumps(manifest))
    assert analyse_sweep(root).to_json() == before


def test_several_points_are_not_opened_as_one(tmp_path):
    root, _ = sweep_of(tmp_path)
    with pytest.raises(RunError, match="name one with --point: delay=1us, delay=2us, delay=3us"):
        open_run(root)
    assert open_run(root, "delay=2us").output == root / "delay=2us"
    assert open_run(pipeline(tmp_path / "one").write()).output == tmp_path / "one"


def test_a_warm_up_is_left_out_of_everything(tmp_path):
    lengths = [9_000_000] * 100 + [50_000 + i for i in range(300)]
    whole = of_lengths(tmp_path / "whole", lengths)
    trimmed = of_lengths(tmp_path / "trimmed", lengths)
    # The message that sets out just then is in.
    trimmed.paths = [dataclasses.replace(PATH, trim_ns=100_000_000)]
    loop = analyse(open_run(trimmed.write())).paths[0].loop
    assert (loop.count, loop.lost, loop.times["max"]) == (300, 0, 50_299)
    assert analyse(open_run(whole.write())).paths[0].loop.count == 400


def test_noise_that_is_small_beside_the_burst_has_settled(tmp_path):
    """A quiet second half does not make a noisy first half part of the warm-up."""
    chance = random.Random(5)
    burst = [900_000 - 8_000 * i for i in range(100)]
    noisy = [int(chance.gauss(50_000, 8_000)) for _ in range(900)]
    quiet = [50_000 + chance.randrange(100) for _ in range(1100)]
    found = measure(of_lengths(tmp_path, burst + noisy + quiet), "settling")
    assert found.value == pytest.approx(100e6, abs=10e6)
