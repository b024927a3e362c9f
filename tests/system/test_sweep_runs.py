"""A sweep of real runs: a result for each point, and the others go on when one fails."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

STUDY = """\
sweep: {size: [6B, 600B], period: [1ms, 2ms]}
figures:
  mean: {x: size, y: loop.mean, error: loop.deviation, series: period}
  rate: {x: period, y: bytes, only: {size: 6B}}
  start: {x: time, y: loop, until: 20ms}
"""
VALUES = """\
measure:
  values:
    bytes: {of: "pipe:sent", field: size, component: node1, stat: sum, unit: B}
"""


def study(machine: Machine, *replacements: tuple[str, str]) -> Path:
    """The shipped pipeline, swept over size and period, without the kernel's events."""
    text = (ROOT / "experiments" / "pipeline.yaml").read_text()
    own = [
        ("components:", f"{STUDY}components:"),
        ("measure:\n", VALUES),
        ('*"]}', '*"], kernel: off}'),
    ]
    for old, new in (*own, *replacements):
        assert old in text, old
        text = text.replace(old, new, 1)
    return machine.write("study.yaml", text.replace("p99 < 5ms", "p99 < 5s"))


@pytest.mark.usefixtures("root")
def test_every_point_is_run_and_judged(machine: Machine, results: Read) -> None:
    file = study(machine)
    done = machine.command("run", file, "--json", "-p", "count=50")
    read = results(done)
    assert done.returncode == 0, done.stderr
    assert [point["point"] for point in read["points"]] == [
        "size=6B,period=1ms",
        "size=6B,period=2ms",
        "size=600B,period=1ms",
        "size=600B,period=2ms",
    ]
    run = machine.directory / "runs" / "pipeline" / "latest"
    for point in read["points"]:
        assert (point["verdict"], point["paths"]["loop"]["count"]) == ("PASS", 50)
        # The programs got the point's parameters: every message has the size that was asked for.
        size = int(point["params"]["size"].removesuffix("B"))
        assert point["values"]["bytes"]["value"] == 50 * size
        sent = run / point["point"] / "1" / "timeline" / "pipe" / "sent"
        rows = pq.read_table(next(sent.glob("*.parquet"))).to_pydict()
        source = [ts for ts, at in zip(rows["ts"], rows["process"], strict=True) if at == "source"]
        period = int(point["params"]["period"].removesuffix("ms")) * 1_000_000
        # A late send is made up for, so the whole keeps to the period but for one lateness.
        assert source[-1] - source[0] > 49 * period * 0.8
    assert [f"point {i} of 4" in done.stderr for i in range(1, 5)] == [True] * 4
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "complete"
    assert "points" not in manifest
    said = [
        json.loads((run / point["point"] / "point.json").read_text()) for point in read["points"]
    ]
    assert {each["status"] for each in said} == {"complete"}
    assert {len(each["phases"]) for each in said} == {1}
    drawn = {path.name for path in (run / "figures").glob("*.csv")}
    assert drawn == {"mean.csv", "rate.csv", "start.csv"}

    again = machine.command("report", "runs/pipeline/latest", "--json")
    assert results(again) == read
    (run / "figures" / "mean.csv").unlink()
    shown = machine.command("report", "runs/pipeline/latest")
    assert shown.stdout.count("PASS") == 5, shown.stdout
    assert (run / "figures" / "mean.csv").exists()
    one = machine.command(
        "report", "runs/pipeline/latest", "--point", "size=6B,period=2ms", "--json"
    )
    alone = results(one)
    assert {key: read["points"][1][key] for key in alone if key != "run"} == {
        key: value for key, value in alone.items() if key != "run"
    }
    assert (run / "size=6B,period=2ms" / "report.html").exists()


@pytest.mark.usefixtures("root")
def test_a_failed_point_does_not_end_the_sweep(machine: Machine, results: Read) -> None:
    # A size below what a message's number needs: the program refuses it.
    file = study(machine, ("[6B, 600B]", "[2B, 6B]"), ("period: [1ms, 2ms]", "period: [1ms]"))
    done = machine.command("run", file, "--json", "-p", "count=20")
    assert done.returncode == 4, done.stderr
    failed, good = results(done)["points"]
    assert (failed["verdict"], good["verdict"]) == (None, "PASS")
    assert "source on h1 failed" in failed["error"]
    assert "1 of 2 points failed: size=2B,period=1ms" in done.stderr
    run = machine.directory / "runs" / "pipeline" / "latest"
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    said = [json.loads(file.read_text()) for file in sorted(run.glob("*/point.json"))]
    assert [each["status"] for each in said] == ["failed", "complete"]
    again = machine.command("report", "runs/pipeline/latest", "--json")
    assert results(again) == results(done)

    stopped = machine.command("run", file, "--json", "--stop", "-p", "count=20")
    assert stopped.returncode == 4
    assert [point["error"] for point in results(stopped)["points"]][1] == "it was not run"


@pytest.mark.usefixtures("root")
def test_an_interrupt_keeps_the_points_that_are_done(machine: Machine, results: Read) -> None:
    file = study(machine)
    running = machine.start("run", file, "-p", "count=1000", "-p", "size=6B,7B,8B")
    assert running.stderr is not None
    for line in running.stderr:
        if "point 2 of" in line:
            break
    for line in running.stderr:
        if "phase run" in line:
            break
    running.send_signal(signal.SIGINT)
    _, rest = running.communicate(timeout=60)
    assert running.returncode == 130, rest
    again = machine.command("report", "runs/pipeline/latest", "--json")
    points = results(again)["points"]
    assert points[0]["paths"]["loop"]["count"] == 1000
    assert [point["error"] for point in points[:3]] == [
        None,
        "it was interrupted",
        "it was not run",
    ]
    shown = machine.command("report", "runs/pipeline/latest").stdout
    assert "interrupted" in shown and "not run" in shown and "failed" not in shown


def test_mistakes_of_points_are_found_before_anything_runs(machine: Machine) -> None:
    file = study(machine, ("timeout: 60s", "timeout: $period"), ("[1ms, 2ms]", "[1ms, 0.1ms]"))
    done = machine.command("run", file)
    assert done.returncode == 2
    assert "at the point size=6B,period=0.1ms and 1 more: 0.1ms is too small" in done.stderr
    assert not (machine.directory / "runs").exists()
