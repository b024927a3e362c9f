"""Findings of run directories: with kernel activity, without, and where nothing can be searched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import SECOND, Host, Row, SyntheticRun, event, path
from test_ranking import kernel_table
from typer.testing import CliRunner

from loopscope.analysis import analyse
from loopscope.analysis.findings.read import LEAST_MESSAGES
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.cli import app
from loopscope.report.page import page
from loopscope.timeline import open_run

SENDER, RECEIVER, HOG, OTHER = 10, 20, 30, 40
MS = 1_000_000
COUNT = 1200


def command(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def times_of(count: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Send times and response times, ns: messages wait for a hog that runs 8 ms every 300 ms."""
    drawn = np.random.default_rng(5)
    begin = 5 * SECOND + np.arange(count) * 4 * MS + drawn.integers(0, 50_000, count)
    phase = (begin - 5 * SECOND - 100 * MS) % (300 * MS)
    took = drawn.integers(80_000, 120_000, count) + np.where(phase < 8 * MS, 8 * MS - phase, 0)
    return begin, took


def switches(last: int) -> list[dict[str, Any]]:
    """The hog on the receiver's processor when it runs, another thread on it at other times.

    On the sender's processor that other thread runs a quarter of all time: longer messages meet it
    longer, though it holds none of them.
    """
    found = []

    def switch(ts: int, prev: int, come: int, cpu: int = 1) -> None:
        names = {"prev_comm": f"t{prev}", "next_comm": f"t{come}"}
        fields = {"prev_tid": prev, "prev_state": 1, "next_tid": come, **names}
        found.append({"ts": ts, "counter": ts, "cpu": cpu, "tid": prev, **fields})

    for at in range(5 * SECOND, last, 300 * MS):
        switch(at + 20 * MS, RECEIVER, OTHER)
        switch(at + 27 * MS, OTHER, RECEIVER)
        switch(at + 100 * MS, RECEIVER, HOG)
        switch(at + 108 * MS, HOG, RECEIVER)
    for at in range(5 * SECOND, last, MS):
        switch(at, SENDER, OTHER, cpu=2)
        switch(at + MS // 4, OTHER, SENDER, cpu=2)
    return sorted(found, key=lambda row: row["ts"])


def made(root: Path, count: int = COUNT, kernel: bool = True, **given: Any) -> Path:
    rows = []
    for number, (begin, took) in enumerate(zip(*times_of(count), strict=True)):
        rows.append(Row("source", "pipe:sent", number, int(begin), thread=SENDER))
        arrival = Row(
            "sink", "pipe:received", number, int(begin + took), host="h2", thread=RECEIVER
        )
        if number % 100 == 7:
            arrival = replace(arrival, err=given.get("error", 0))
        if number % 100 != 9 or not given.get("lose"):
            rows.append(arrival)
    events = [event("source", "pipe", "sent"), event("sink", "pipe", "received")]
    hosts = [Host("h1", reference=True, max_err_ns=0), Host("h2")]
    run = SyntheticRun(root, rows, hosts, paths=[path("loop", "id", events)]).write()
    if kernel:
        folder = run / "base/1/timeline/kernel"
        kernel_table(folder, "sched_switch", switches(int(times_of(count)[0][-1])))
        waking = {"ts": 0, "counter": 0, "common_flags": 0, "cpu": 0, "tid": 1, "task": 1}
        kernel_table(folder, "sched_waking", [waking])
    return run


def test_the_thread_in_step_is_named(tmp_path: Path) -> None:
    code, out, _ = command("findings", made(tmp_path / "run"))
    assert code == 0
    first, *others = out.splitlines()
    assert first.startswith("loop: 1. every 300 ms some 2 messages are late, by up to 8.0"), out
    assert ": goes with t30 on cpu1 (" in first and others == [], out
    (finding,) = json.loads(command("findings", tmp_path / "run", "--json")[1])["findings"]
    assert [each["what"] for each in finding["activity"]] == ["t30"]


def test_json_has_numbers_with_units(tmp_path: Path) -> None:
    code, out, _ = command("findings", made(tmp_path / "run"), "--path", "loop", "--json")
    assert code == 0
    found = json.loads(out)
    (finding,) = found["findings"]
    assert (found["path"], found["messages"], found["lost"]) == ("loop", COUNT, 0)
    assert finding["kind"] == "periodic" and finding["certain"] and finding["p"] < 1e-4
    period = finding["evidence"]["period"]
    assert period["unit"] == "ns" and period["value"] == pytest.approx(300 * MS, rel=1e-3)
    assert 0.5 < finding["explained"] <= 1
    assert finding["activity"][0]["what"] == "t30" and finding["without_activity"] is None
    assert "rows" not in finding and "fit" not in finding


def test_without_kernel_events_that_is_said(tmp_path: Path) -> None:
    run = made(tmp_path / "run", kernel=False)
    _, out, _ = command("findings", run)
    assert out.splitlines()[0].endswith("of the variance): no kernel events were recorded"), out
    (only,) = json.loads(command("findings", run, "--json")[1])["findings"]
    assert only["activity"] == [] and only["without_activity"] == "no kernel events were recorded"


def test_activity_out_of_step_is_none(tmp_path: Path) -> None:
    run = made(tmp_path / "run", kernel=False)
    folder = run / "base/1/timeline/kernel"
    kept = [row for row in switches(12 * SECOND) if HOG not in (row["prev_tid"], row["next_tid"])]
    kernel_table(folder, "sched_switch", kept)
    waking = {"ts": 0, "counter": 0, "common_flags": 0, "cpu": 0, "tid": 1, "task": 1}
    kernel_table(folder, "sched_waking", [waking])
    assert command("findings", run)[1].splitlines()[0].endswith(": no kernel activity goes with it")


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    run = made(tmp_path / "run", lose=True, error=UNKNOWN_NS)
    _, out, _ = command("findings", run)
    assert out.splitlines()[-1] == (
        "loop: 12 lost messages and 12 messages of unknown error are left out"
    ), out
    found = json.loads(command("findings", run, "--json")[1])
    assert (found["messages"], found["lost"], found["unknown_error"]) == (COUNT - 24, 12, 12)


def test_too_few_messages_are_not_searched(tmp_path: Path) -> None:
    run = made(tmp_path / "run", count=LEAST_MESSAGES, lose=True)
    _, out, _ = command("findings", run)
    assert out == (
        "loop: not searched: 198 messages arrived with a known error, 2 did not; patterns need at "
        "least 200\n"
    )


def test_mistakes_are_told(tmp_path: Path) -> None:
    run = made(tmp_path / "run", count=3, kernel=False)
    code, _, err = command("findings", run, "--path", "lop")
    assert code == 2 and "--path: no path lop (did you mean loop?)" in err
    code, _, err = command("findings", tmp_path / "none")
    assert code == 2 and "no such run directory" in err
    code, _, err = command("figure", run, "findings", "loop", "-o", tmp_path / "f")
    assert code == 2 and "path loop: nothing found" in err


def test_the_page_and_the_figure_have_the_pattern(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    opened = open_run(run)
    text = page(opened, analyse(opened))
    assert '<h2 id="findings">Patterns over time</h2>' in text
    assert "<li>loop: every 300 ms some 2 messages are late" in text
    code, _, err = command("figure", run, "findings", "-o", tmp_path / "f", "--format", "svg")
    assert code == 0, err
    lines = (tmp_path / "f/findings-loop.csv").read_text().splitlines()
    late = [line.split(",") for line in lines if line.startswith("late in step,")]
    slow = np.count_nonzero(times_of(COUNT)[1] > 2 * MS)
    assert abs(len(late) - slow) <= 0.2 * slow
    assert all(float(line[2]) > 1e6 for line in late)
    code, _, err = command("figure", run, "findings", "--finding", 7, "-o", tmp_path / "f")
    assert code == 2 and "--finding 7: path loop has 1" in err


def test_a_page_without_a_certain_pattern_has_no_section(tmp_path: Path) -> None:
    run = made(tmp_path / "run", count=100, kernel=False)
    opened = open_run(run)
    assert "Patterns over time" not in page(opened, analyse(opened))
