"""The shipped studies in small: their points, what they measure, their figures."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from effort import cases
from machine import ROOT, Machine, without_kernel

pytestmark = pytest.mark.full

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]


def study(machine: Machine, results: Read, name: str, *params: str) -> list[dict[str, Any]]:
    """The points of a study.

    How fast a shared machine is, and what its kernel does, is not these tests' business.
    """
    words = [word for param in params for word in ("-p", param)]
    shutil.copytree(ROOT / "experiments", machine.directory / "experiments")
    file = machine.directory / "experiments" / f"{name}.yaml"
    file.write_text(without_kernel(file.read_text()))
    done = machine.command("run", file, "--json", *words)
    assert done.returncode in (0, 1), done.stderr
    points: list[dict[str, Any]] = results(done)["points"]
    assert all(point["error"] is None for point in points)
    return points


def rows(machine: Machine, name: str, figure: str) -> list[dict[str, str]]:
    path = machine.directory / "runs" / name / "latest" / "figures" / f"{figure}.csv"
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("root")
def test_the_response_grows_with_the_delay_of_both_links(machine: Machine, results: Read) -> None:
    name = "pipeline-delay-sweep"
    points = study(machine, results, name, "delay=0ms,20ms", "count=80")
    for point in points:
        loop = point["paths"]["loop"]
        # The warm-up of two seconds, fifty messages, is in no statistic; the first may be late.
        assert 20 <= loop["count"] <= 30
        assert loop["lost"] == 0
    plain, delayed = (point["paths"]["loop"] for point in points)
    assert delayed["min_ns"] >= 40_000_000 - delayed["err_ns"]
    assert plain["min_ns"] < 40_000_000
    drawn = rows(machine, name, "delay-response")
    assert [float(row["delay of each of the two links (ns)"]) for row in drawn] == [0, 20e6]
    shown = [float(row["mean response time ± standard deviation (ns)"]) for row in drawn]
    assert shown == [point["paths"]["loop"]["mean_ns"] for point in points]


@pytest.mark.usefixtures("root")
def test_frames_take_longer_until_the_window_has_grown(machine: Machine, results: Read) -> None:
    (point,) = study(machine, results, "warm-up", "delay=100ms", "count=120")
    frame = point["paths"]["frame"]
    assert (frame["count"], frame["lost"]) == (120, 0)
    # 64 KiB do not fit a connection's first window of ten packets: two more round trips.
    first = float(rows(machine, "warm-up", "warm-up")[0]["camera to display (ns)"])
    assert first >= 300_000_000 - frame["err_ns"]
    assert 100_000_000 - frame["err_ns"] <= frame["p50_ns"] < first
    settled = rows(machine, "warm-up", "warm-up-duration")
    assert float(settled[0]["duration of the warm-up (ns)"]) > 0


@pytest.mark.usefixtures("root")
def test_each_turn_of_a_thread_beside_busy_ones_is_told(machine: Machine, results: Read) -> None:
    (point,) = study(machine, results, "responsiveness", "policy=batch", "iterations=40")
    values = point["values"]
    assert values["late_p50"]["count"] == 40 and values["late_p99"]["value"] > 0
    assert values["waited"]["count"] == 1 and values["waited"]["value"] > 0


@pytest.mark.usefixtures("root")
def test_what_is_received_was_sent(machine: Machine, results: Read) -> None:
    # `make soak` has a second size of block, which is more of the same.
    blocks = ["8KiB", "1KiB"][: cases(1, 2)]
    block = f"block={','.join(blocks)}"
    points = study(machine, results, "ettcp", "protocol=tcp,udp", block, "duration=2s")
    assert len(points) == 2 * len(blocks)
    for point in points:
        sent, received = (point["values"][name] for name in ("sent", "received"))
        # Two seconds and perhaps the beginning of a third, but for the last of them.
        assert sent["count"] in (1, 2)
        assert received["value"] > 0
    assert len(rows(machine, "ettcp", "throughput")) == len(points)
