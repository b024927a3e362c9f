"""docs/guide/record.md, command by command."""

from __future__ import annotations

import json
import re
import shutil

import pyarrow.parquet as pq
import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/record.md").read_text()


def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    shutil.copytree(ROOT / "docs/guide/record", home / "docs/guide/record")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    # How soon a loaded machine starts a recorder is not known.
    begun = "until grep -qs program long/.journal; do sleep 0.1; done"
    script = "".join(blocks).replace("sleep 2;", f"{begun};")
    assert begun in script
    done = machine.guide(script, timeout_s=120)
    said = re.sub(r" +", " ", done.stderr)
    assert "main: 2 000 emitted = 2 000 recorded + 0 dropped" in said
    assert re.search(r"worker:bytes 0 0 0 \d+ \d+", said), said
    folder = home / "docs/guide/record"

    def rows(output: str, entity: str, column: str) -> list[int]:
        group, name = entity.split(":")
        table = pq.read_table(folder / output / "timeline" / group / name / "part-0.parquet")
        return list(table[column].to_pylist())

    assert rows("all", "worker:taken", "id") == list(range(1, 1001))
    slow = rows("slow", "worker:job", "id")
    # Each hundredth job sleeps 2 ms; others may be late too.
    assert set(range(100, 1001, 100)) <= set(slow)
    assert min(rows("slow", "worker:job", "duration")) > 1_000_000
    sizes = rows("tenth", "worker:taken", "size")
    assert len(sizes) == sum(100 + job % 50 > 120 for job in range(10, 1001, 10))
    triggers = json.loads((folder / "last/streams/recorder/triggers.json").read_text())
    assert [(trigger["cause"], trigger["id"]) for trigger in triggers] == [("entity", 500)]
    assert not (folder / "last/trace").exists()
    assert rows("attached", "worker:taken", "id")
    assert rows("long", "worker:taken", "id") == list(range(1, 20_001))
