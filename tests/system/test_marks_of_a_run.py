"""Triggers and changes of links: a row each on the time line, and marks on figures over time."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from linked_pipeline import linked_pipeline
from machine import Machine

from loopscope.timeline import open_run

pytestmark = pytest.mark.full

RECORDER = """\
trace:
  user: ["pipe:*"]
  kernel: off
  streams:
    recorder:
      kind: flight-recorder
      triggers: [{entities: "pipe:received", where: "id == 200"}]
      on_death: false
"""
STEPS = "h1 -> h2: {at 500ms: {delay: 20ms}, at 1s: {delay: 5ms}}"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("clocks", ["plain", "{synthetic: {seed: 20071213}}"])
def test_triggers_and_changes_are_where_they_were(machine: Machine, clocks: str) -> None:
    text = linked_pipeline(STEPS, clocks=clocks, count=300)
    old = 'trace: {user: ["pipe:*"], kernel: off}\n'
    assert old in text
    machine.write("marks.yaml", text.replace(old, RECORDER))
    done = machine.command("run", "marks.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    path = machine.directory / "runs" / "links" / "latest"
    run = open_run(path)
    assert run.problems == ()

    asked = machine.ask("query", "runs/links/latest", "select * from triggers")
    rows = [json.loads(line) for line in asked.stdout.splitlines()]
    hosts = path / "base" / "1" / "hosts"
    lists = {host: hosts / host / "streams" / "recorder" for host in ("h1", "h2", "h3")}
    received = run.table("pipe.received").to_pyarrow().to_pylist()
    clock = run.clock.to_pandas()
    for host, folder in lists.items():
        mine = [row for row in rows if row["host"] == host]
        listed = json.loads((folder / "triggers.json").read_text())
        assert mine and [row["counter"] for row in mine] == [each["counter"] for each in listed]
        written = json.loads((folder / "loss.json").read_text())["recorded"]
        assert sum(row["events"] for row in mine) == written > 0
        knots = clock[clock.host == host]
        for row in mine:
            # By hand, from the knots of the map: without what is lost in floats of large numbers.
            first = int(knots.counter.iloc[0])
            since = (knots.counter - first).astype(float), row["counter"] - first
            at = np.interp(since[1], since[0], (knots.ts - int(knots.ts.iloc[0])).astype(float))
            if 0 <= since[1] <= since[0].max():
                assert abs(row["ts"] - int(knots.ts.iloc[0]) - at) <= 2, row
            assert (row["repeat"], row["stream"]) == (1, "recorder")
    hits = [row for row in rows if row["cause"] == "entity"]
    assert hits and {(row["entity"], row["id"]) for row in hits} == {("pipe:received", 200)}
    for row in hits:
        (event,) = (e for e in received if (e["host"], e["id"]) == (row["host"], 200))
        assert abs(row["ts"] - event["ts"]) <= row["err_ns"] + event["err_ns"]
        assert (row["process"], row["pid"]) == (event["process"], event["pid"])

    drawn = machine.command("figure", "runs/links/latest", "scatter", "loop")
    assert drawn.returncode == 0, drawn.stderr
    with (path / "figures" / "scatter-loop.csv").open(newline="") as lines:
        told = [(row["series"], row) for row in csv.DictReader(lines) if row["series"]]
    seconds = {name: int(next(iter(list(row.values())[1:]))) / 1e9 for name, row in told}
    names = ["h1→h2: delay 20 ms", "h1→h2: delay 5 ms"]
    slow, quick = (seconds[name] for name in names)
    # Messages tell by themselves when their link had changed: one that reaches the link before the
    # second change has the longer delay, one that its machine holds until then ends no earlier than
    # one that is sent at the change. A link is never early.
    hop = run.hops.filter(run.hops.hop == 0).order_by("start").to_pandas()
    since = (hop.start - hop.start.min()) / 1e9
    delayed = (since > slow + 0.001) & (since < quick - 0.001)
    before = since + hop.duration / 1e9 < slow
    assert 50 < delayed.sum() < 150 and before.sum() > 50
    seconds_late = hop.duration[delayed] / 1e9
    earliest = np.minimum(0.019, quick + 0.004 - since[delayed])
    assert (seconds_late > earliest).all()
    assert (seconds_late > 0.019).mean() > 0.8
    assert hop.duration[before].quantile(0.8) < 19e6
    assert 0.45 < quick - slow < 0.55
    (trigger,) = (at for name, at in seconds.items() if name.startswith("recorder: "))
    first = min(hits, key=lambda row: row["ts"])
    assert trigger == pytest.approx((first["ts"] - int(hop.start.min())) / 1e9, abs=1e-6)

    figures = on_page(path / "report.html")
    for name in ("response-time-loop", "hops-loop"):
        layout, data = figures[name]["layout"], figures[name]["data"]
        places = {shape["x0"] for shape in layout["shapes"]}
        assert places == {round(at, 6) for at in (slow, quick, trigger)}
        marks = [trace for trace in data if trace.get("name") == "links changed"]
        assert [trace["text"] for trace in marks] == [names]


def on_page(page: Path) -> dict[str, dict[str, list[dict[str, object]]]]:
    """The figures of a page, by name."""
    found = re.search(r'id="figures">(.*?)</script>', page.read_text(encoding="utf-8"), re.S)
    assert found is not None
    figures: dict[str, dict[str, list[dict[str, object]]]] = json.loads(found[1])
    return figures
