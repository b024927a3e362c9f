"""The published bytes of schema/golden, from the desk side. LOOPSCOPE_BLESS=1 writes them anew."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loopscope import _native
from loopscope.provider._proto import agent_pb2 as pb

GOLDEN = Path(__file__).resolve().parents[2] / "schema" / "golden"


def hold(path: Path, content: bytes) -> None:
    """What is made now must be what is published."""
    if "LOOPSCOPE_BLESS" in os.environ:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert path.read_bytes() == content, path


def test_tables_of_the_golden_host(tmp_path: Path) -> None:
    """Columns, their types and every value of the time line, and what its making found."""
    host = tmp_path / "host"
    shutil.copytree(GOLDEN / "host", host)
    summary = json.loads(_native.build_record(host))
    tables = {}
    for file in sorted(host.glob("timeline/*/*/*.parquet")):
        table = pq.read_table(file)
        entity = f"{file.parent.parent.name}:{file.parent.name}"
        tables[entity] = shown(table)
    entities = shown(pq.read_table(host / "tables" / "entities.parquet"))
    made = {"summary": summary, "entities": entities, "tables": tables}
    made = json.dumps(made, indent=1, default=bytes.hex) + "\n"
    hold(GOLDEN / "timeline.json", made.encode())


def shown(table: pa.Table) -> dict[str, Any]:
    columns = {field.name: str(field.type) for field in table.schema}
    return {"columns": columns, "rows": table.to_pylist()}


def babeltrace2(*words: str) -> bytes:
    if shutil.which("babeltrace2") is None:
        pytest.skip("SKIPPED LOUDLY: needs babeltrace2")
    command = ["babeltrace2", *words, GOLDEN / "host" / "trace"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_babeltrace2_reads_the_golden_host() -> None:
    hold(GOLDEN / "host.babeltrace.txt", babeltrace2("--clock-cycles"))


def test_babeltrace2_and_json_read_what_the_golden_entities_say_of_themselves() -> None:
    """The table made of the same metadata is the other side."""
    details = babeltrace2("--component=sink.text.details").decode()
    said = dict(re.findall(r"^ +((?:event|group)_\w+): (\{.*\})$", details, re.MULTILINE))
    group = json.loads(said.pop("group_0"))
    names = dict(re.findall(r"^ +Event class `(pipe:\w+)` \(ID (\d+)\)", details, re.MULTILINE))
    classes = {key: json.loads(text) for key, text in said.items()}
    assert len(classes) == 8
    table = json.loads((GOLDEN / "timeline.json").read_text())["entities"]["rows"]
    for row in table:
        text = classes.get(f"event_0_{names[row['entity']]}", {"kind": "event"})
        assert text.pop("scale", "log") == "log"
        assert row == {
            "entity": row["entity"],
            "group_description": group["description"],
            **dict.fromkeys(("unit", "description", "low", "high", "buckets")),
            **text,
        }


def test_the_controllers_messages() -> None:
    """crates/agent/tests/golden.rs holds the agent to the same files."""
    start = pb.StartRequest(
        component="node1",
        command=["loopscope-host", "pipe", "node"],
        environment={"LANG": "C"},
        config_json='{"to": "node2"}',
        readiness=pb.Readiness(phases=True),
        streams_json='{"version": 1, "streams": [{"entities": ["pipe:*"]}]}',
        inherit=["PATH", "LC_*"],
        user="nobody",
        output_limit=1 << 20,
    )
    hold(GOLDEN / "agent" / "start-request.bin", start.SerializeToString(deterministic=True))
    event = pb.Event(
        component="node1",
        at_monotonic_ns=1_234_567_890_123,
        at=pb.GlobalInstant(global_ns=9_876_543_210, within_ns=1_250),
        exited=pb.Exited(signal=9, stdout_left_out=7),
    )
    hold(GOLDEN / "agent" / "event.bin", event.SerializeToString(deterministic=True))
