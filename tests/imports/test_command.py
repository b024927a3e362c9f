"""`loopscope import` as a person meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tables import imported, loopscope_import, rows

GOLDEN = Path(__file__).resolve().parents[2] / "schema" / "golden" / "host" / "trace"


def test_without_a_place_it_only_tells(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "trace")
    done = loopscope_import(tmp_path / "trace")
    assert done.returncode == 0
    assert "16 events of 11 kinds" in done.stdout
    assert "lost: 0 events, 0 packets" in done.stdout
    assert "no table was written: name a directory for them with -o" in done.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["trace"]


def test_own_traces_come_in_too(tmp_path: Path) -> None:
    summary = imported(GOLDEN, tmp_path / "out")
    assert summary["events"] == sum(each["rows"] for each in summary["tables"]) == 16
    first = rows(tmp_path / "out", "pipe.received")[0]
    # 2.5 GHz, rounded down; exact where a float would not be.
    assert first["ts"] == 0x0006_0000_0010 * 2 // 5
    assert (first["id"], first["size"], first["stream"]) == (1, 6, "node1-41-42")


def test_misuse_ends_with_2_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("mine")
    for words, said in (
        ([tmp_path / "none"], "no such directory; name one that a tracer wrote"),
        ([tmp_path / "empty"], "nor a directory below it has a file `metadata`"),
        ([GOLDEN, "-o", tmp_path / "full"], "is there already and not empty: remove it, or name"),
    ):
        done = loopscope_import(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert (tmp_path / "full" / "kept").read_text() == "mine"
    done = loopscope_import(GOLDEN, "-o", tmp_path / "empty", "--json")
    assert done.returncode == 0, "an empty directory will do"
    assert json.loads(done.stdout)["out"] == str(tmp_path / "empty")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty", "full"]
