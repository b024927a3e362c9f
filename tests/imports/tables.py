"""Imported tables, and their comparison with what babeltrace2 prints."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import bt_text
import pyarrow.parquet as pq
from typer.testing import CliRunner

from loopscope.cli import app

CONTEXTS = {
    "packet_context": "stream.packet.context",
    "stream_context": "stream.event.context",
    "event_context": "event.context",
}


def loopscope_import(trace: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in this process: to start the program takes longer than most imports."""
    command = ["import", str(trace), *map(str, words)]
    done = CliRunner().invoke(app, command)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)


def imported(trace: Path, out: Path) -> dict[str, Any]:
    """Imports a trace; its summary."""
    done = loopscope_import(trace, "-o", out, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    summary = json.loads(done.stdout)
    assert json.loads((out / "import.json").read_text()) == summary
    assert isinstance(summary, dict)
    return summary


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    group, _, name = table.partition(".")
    parts = sorted((out / "timeline" / group / name).glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def compare(trace: Path, out: Path) -> dict[str, Any]:
    """Imports a trace and compares every event and value with babeltrace2's; the summary."""
    theirs = bt_text.events(trace)
    summary = imported(trace, out)
    by_name: dict[str, list[bt_text.Event]] = defaultdict(list)
    for event in theirs:
        by_name[event.name].append(event)
    assert {each["event"]: each["rows"] for each in summary["tables"]} == {
        name: len(events) for name, events in by_name.items()
    }
    assert summary["events"] == len(theirs)
    stamps = [event.ts for event in theirs if event.ts is not None]
    expected = (min(stamps), max(stamps)) if stamps else (None, None)
    assert (summary["from_ns"], summary["until_ns"]) == expected
    for each in summary["tables"]:
        ours = rows(out, each["table"])
        assert [row["ts"] for row in ours] == [event.ts for event in by_name[each["event"]]]
        # Events of one instant have no order between streams.
        waiting = list(ours)
        for event in by_name[each["event"]]:
            found = next(
                (
                    index
                    for index, row in enumerate(waiting[:64])
                    if row["ts"] == event.ts and is_event(event, row)
                ),
                None,
            )
            assert found is not None, f"{event}\nis not\n{waiting[0]}"
            del waiting[found]
    lost = bt_text.lost(trace)
    ours_lost = {key: summary["lost"][key] for key in lost}
    assert ours_lost == lost, f"lost: {ours_lost}, by babeltrace2 {lost}"
    return summary


def is_event(event: bt_text.Event, row: dict[str, Any]) -> bool:
    left = {name: value for name, value in row.items() if value is not None}
    for common in ("ts", "trace", "stream"):
        left.pop(common, None)
    cpu = left.pop("cpu", None)
    for ours, theirs in CONTEXTS.items():
        found = left.pop(ours, None)
        if ours == "packet_context" and cpu is not None:
            found = {"cpu_id": cpu, **(found or {})}
        wanted = event.parts.get(theirs)
        if (wanted is None) != (found is None):
            return False
        if wanted is not None and not bt_text.same(wanted, found):
            return False
    fields = event.parts.get("event.fields", {})
    return fields.keys() == left.keys() and all(
        bt_text.same(value, left[name]) for name, value in fields.items()
    )
