"""Files that hosts had no room for come with their agents' replies and are written later."""

from __future__ import annotations

import json
from pathlib import Path

from loopscope.control.unwritten import write_unwritten
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.timeline.loss import read_loss

SUMS = {"emitted": 30, "recorded": 10, "dropped": 20, "torn": 0}


def reply() -> pb.FinishTraceReply:
    sites = [{"entity": "a:b", "file": "x.c", "line": 1, "dropped": {"disk-full": 20}}]
    process = {"process": "p", "pid": 1, "sites": sites, **SUMS}
    document = {"version": 2, **SUMS, "processes": [process]}
    content = json.dumps(document).encode()
    return pb.FinishTraceReply(
        emitted=30, recorded=10, dropped=20, unwritten={"loss.json": content}
    )


def test_an_account_is_written_later(tmp_path: Path) -> None:
    (tmp_path / "h2").mkdir()
    (line,) = write_unwritten(tmp_path, {"h1": pb.FinishTraceReply(emitted=1), "h2": reply()})
    assert line.startswith("host h2: ") and "loss.json" in line
    (account,) = read_loss(tmp_path / "h2" / "loss.json", 1, "h2")
    assert (account.emitted, account.recorded, account.dropped) == (30, 10, 20)
    assert account.sites[0].dropped == {"disk-full": 20}
    assert not (tmp_path / "h1").exists()


def test_where_there_is_no_room_still_its_numbers_are_told(tmp_path: Path) -> None:
    (line,) = write_unwritten(tmp_path, {"h2": reply()})
    assert str(tmp_path / "h2" / "loss.json") in line
    assert "emitted 30, recorded 10, dropped 20" in line
