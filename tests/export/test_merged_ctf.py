"""A run as one CTF trace.

babeltrace2 and loopscope itself read every event and field as the tables have them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import bt_text
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import pipeline
from typer.testing import CliRunner, Result

from loopscope.cli import app
from loopscope.timeline import Run, open_run

UNKNOWN_NS = 1 << 60
STREAMS_OWN = {"ts", "err_ns", "host", "process"}


def types(first_ts: int) -> pa.Table:
    """Every type that a table can have, with what is null here and there."""
    text = pa.dictionary(pa.int32(), pa.string())
    label = pa.struct([("value", pa.int8()), ("label", text)])
    inner = pa.struct([("n", pa.uint16()), ("deep", pa.struct([("x", pa.float64())]))])
    choice = pa.struct([("number", pa.uint32()), ("word", pa.string())])
    n = 4
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "ts": (pa.int64(), [first_ts + i * 300 for i in range(n)]),
        "err_ns": (pa.int64(), [0, 7, UNKNOWN_NS, 3]),
        "counter": (pa.uint64(), [2**64 - 1, None, 0, None]),
        "host": (text, ["h1", "h2", "h1", 'h "3"']),
        "process": (text, ["a", "a", "b", "b/../c"]),
        "pid": (pa.uint32(), [None, 1, 2**32 - 1, 3]),
        "cpu": (pa.uint16(), [None, 0, 2**16 - 1, None]),
        "id": (pa.int64(), [-(2**63), 2**63 - 1, None, 0]),
        "tiny": (pa.int8(), [-128, 127, None, 0]),
        "byte": (pa.uint8(), [255, None, 1, 2]),
        "short": (pa.int16(), [-(2**15), 0, 1, None]),
        "int": (pa.int32(), [-(2**31), 2**31 - 1, 1, None]),
        "real": (pa.float64(), [1.5, -2.25e-300, None, 0.0]),
        "single": (pa.float32(), [1.5, None, -3.0, 0.5]),
        "flag": (pa.bool_(), [True, False, None, True]),
        "word": (pa.string(), ["grün", None, 'a "quoted" \\', "tab\tnew\nline"]),
        "raw": (pa.binary(), [b"\x00\xff", None, b"", b"abc"]),
        "list": (pa.list_(pa.uint64()), [[1, 2**64 - 1], [], None, [3]]),
        "lists": (pa.list_(pa.list_(pa.int16())), [[[1], [], [-2, 3]], None, [], [[4]]]),
        "words": (pa.list_(pa.string()), [["x", "y"], None, [], ["z"]]),
        "state": (
            label,
            [
                {"value": 1, "label": "on"},
                {"value": 9, "label": None},
                None,
                {"value": 0, "label": "off"},
            ],
        ),
        "nested": (
            inner,
            [
                {"n": 1, "deep": {"x": 0.5}},
                {"n": None, "deep": {"x": 1.0}},
                None,
                {"n": 2, "deep": None},
            ],
        ),
        "states": (
            pa.list_(label),
            [
                [{"value": 3, "label": "u"}, {"value": None, "label": "v"}],
                None,
                [],
                [{"value": 4, "label": "w"}],
            ],
        ),
        "choice": (
            choice,
            [
                {"number": 5, "word": None},
                {"number": None, "word": "five"},
                None,
                {"number": 6, "word": None},
            ],
        ),
        # A name that a list's length would take, and one that is a keyword.
        "list_length": (pa.uint8(), [9, 9, 9, 9]),
        "struct": (pa.uint8(), [1, 2, 3, 4]),
    }
    return pa.table({name: pa.array(values, of) for name, (of, values) in columns.items()})


def made(root: Path, first_ts: int = 1_500) -> Path:
    run = pipeline(root, messages=60, repeats=2, lose_every=7).write()
    folder = run / "base" / "2" / "timeline" / "every" / "type"
    folder.mkdir(parents=True)
    table = types(first_ts)
    # In parts, whose order is not that of their names' letters.
    for part, start in ((2, 0), (10, 2)):
        pq.write_table(table.slice(start, 2), folder / f"part-{part}.parquet")
    # Compressed as a run's tables are.
    for file in run.glob("*/*/timeline/*/*/*.parquet"):
        pq.write_table(pq.read_table(file), file, compression="zstd")
    return run


def export(run: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(app, ["export", str(run), "--to", "ctf", *map(str, words)])


def flagged(value: dict[str, Any], blanks: dict[str, Any]) -> dict[str, Any]:
    """A structure within a list: a flag before each member says whether it is null."""
    found: dict[str, Any] = {}
    for name, member in value.items():
        found |= {
            f"{name}_null": int(member is None),
            name: blanks[name] if member is None else member,
        }
    return found


def shown(name: str, value: Any) -> dict[str, Any]:
    """A column's value as the fields of an event."""
    if value is None:
        return {}
    if isinstance(value, bool):
        return {name: int(value)}
    if isinstance(value, bytes | list):
        items = [each for each in value]
        if name == "lists":
            items = [{"item_length": len(each), "item": each} for each in items]
        if name == "states":
            items = [flagged(each, {"value": 0, "label": ""}) for each in items]
        # The list's own length keeps clear of the column that is called so.
        length = "list_length_2" if name == "list" else f"{name}_length"
        return {length: len(items), name: items}
    if isinstance(value, dict):
        inside: dict[str, Any] = {}
        for member, of_member in value.items():
            inside |= shown(member, of_member)
        return {name: inside}
    return {name: value}


def tables(run: Run, repeat: int) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for name, parts in run.tables.items():
        if repeat in parts:
            rows = [row for part in parts[repeat] for row in pq.read_table(part).to_pylist()]
            assert [row["ts"] for row in rows] == sorted(row["ts"] for row in rows)
            found[name.replace(".", ":")] = rows
    return found


@pytest.mark.skipif(shutil.which("babeltrace2") is None, reason="SKIPPED LOUDLY: needs babeltrace2")
def test_babeltrace2_reads_every_event_and_field(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    done = export(run, "-o", tmp_path / "out", "--repeat", "2")
    assert done.exit_code == 0, done.output
    wanted = tables(open_run(run), 2)
    events = bt_text.events(tmp_path / "out")
    count = sum(map(len, wanted.values()))
    assert len(events) == count and f"{count} events of repeat 2" in done.output
    stamps = [event.ts for event in events]
    assert stamps == sorted(row["ts"] for rows in wanted.values() for row in rows)
    by_name = defaultdict(list)
    for event in events:
        by_name[event.name].append(event)
    assert by_name.keys() == wanted.keys()
    for name, rows in wanted.items():
        for event, row in zip(
            sorted(by_name[name], key=lambda e: (e.ts, str(e.parts))),
            sorted(rows, key=lambda r: (r["ts"], str(r))),
            strict=True,
        ):
            assert event.ts == row["ts"]
            context = {key: row[key] for key in ("host", "process", "err_ns")}
            assert bt_text.same(event.parts["stream.event.context"], context), (event, row)
            fields: dict[str, Any] = {}
            for key, value in row.items():
                fields |= shown(key, value) if key not in STREAMS_OWN else {}
            printed = event.parts["event.fields"]
            assert printed.keys() == fields.keys()
            for key, value in fields.items():
                assert bt_text.same(printed[key], value), (key, printed[key], value)


def test_loopscope_reads_it_too_and_times_before_zero(tmp_path: Path) -> None:
    run = made(tmp_path / "run", first_ts=-1_000)
    assert export(run, "-o", tmp_path / "out", "--repeat", "2").exit_code == 0
    command = [Path(sys.executable).with_name("loopscope"), "import", tmp_path / "out"]
    done = subprocess.run(
        [*command, "-o", tmp_path / "back", "--json"], capture_output=True, text=True, check=True
    )
    summary = json.loads(done.stdout)
    assert summary["lost"] == {"events": 0, "events_before": 0, "packets": 0}
    for name, rows in tables(open_run(run), 2).items():
        folder = tmp_path / "back" / "timeline" / name.replace(":", "/")
        back = [row for part in sorted(folder.iterdir()) for row in pq.read_table(part).to_pylist()]
        assert [row["ts"] for row in back] == [row["ts"] for row in rows]
        assert sorted(row["err_ns"] for row in rows) == sorted(
            row["stream_context"]["err_ns"] for row in back
        )
    assert summary["from_ns"] == -1_000


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    for out in ("one", "two"):
        assert export(run, "-o", tmp_path / out).exit_code == 0
    one, two = (
        {f.name: f.read_bytes() for f in (tmp_path / out).iterdir()} for out in ("one", "two")
    )
    assert one == two and len(one) > 3


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    done = export(run, "-o", tmp_path / "out")
    assert done.exit_code == 2 and "not empty" in done.stderr
    assert export(run, "-o", tmp_path / "x", "--repeat", "3").exit_code == 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "run"]
