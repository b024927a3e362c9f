"""`loopscope import` as a person meets it."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tables import compare, imported, rows

from loopscope import _native

LOOPSCOPE = Path(sys.executable).with_name("loopscope")
GOLDEN = Path(__file__).resolve().parents[2] / "schema" / "golden" / "host" / "trace"


def loopscope_import(trace: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The installed program; other files of these tests call the command in their own process."""
    command = [LOOPSCOPE, "import", trace, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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
        ([GOLDEN / "metadata"], "of a CTF trace name the directory with the file `metadata`"),
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


METADATA = """/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le; };
event { name = e; fields := struct { integer { size = 64; } n; }; };
"""


STAMPED = """/* CTF 1.8 */
typealias integer { size = 32; align = 8; } := uint32_t;
typealias integer { size = 64; align = 8; } := uint64_t;
trace { major = 1; minor = 8; byte_order = le; };
stream {
    packet.context := struct { uint64_t timestamp_begin; uint64_t timestamp_end; };
    event.header := struct {
        enum : uint32_t { compact = 0 ... 9, extended = 10 } id;
        variant <id> {
            struct { uint32_t timestamp; } compact;
            struct { uint32_t id; uint64_t timestamp; } extended;
        } v;
    };
};
event { name = e; id = 3; fields := struct { uint32_t n; }; };
"""


@pytest.mark.skipif(shutil.which("babeltrace2") is None, reason="SKIPPED LOUDLY: needs babeltrace2")
@pytest.mark.parametrize("clock", ["", "clock { name = c; freq = 1000000000; offset_s = 70; };\n"])
def test_stamps_that_name_no_clock_are_babeltrace2_s(clock: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    (trace / "metadata").write_text(STAMPED.replace("stream {", clock + "stream {", 1))
    begin = 3 << 32
    events = struct.pack("<III", 3, 7, 1) + struct.pack("<III", 3, 2, 2)  # The clock wraps.
    events += struct.pack("<IIQI", 10, 3, 9 << 32, 3)
    (trace / "stream").write_bytes(struct.pack("<QQ", begin, 10 << 32) + events)
    summary = compare(trace, tmp_path / "out")
    offset = 70_000_000_000 if clock else 0
    stamps = [row["ts"] for row in rows(tmp_path / "out", "trace.e")]
    expected = [begin + 7, begin + (1 << 32) + 2, 9 << 32]
    assert stamps == [stamp + offset for stamp in expected]
    assert summary["problems"] == []


@pytest.mark.skipif(shutil.which("babeltrace2") is None, reason="SKIPPED LOUDLY: needs babeltrace2")
@pytest.mark.parametrize("context", ["", "struct { } a;", "struct { struct { } b; } a;"])
def test_contexts_without_values_are_there(context: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    stream = f"stream {{ packet.context := struct {{ {context} }}; }};\n"
    (trace / "metadata").write_text(METADATA.replace("event {", stream + "event {"))
    (trace / "stream").write_bytes(bytes(8))
    compare(trace, tmp_path / "out")


def test_a_trace_without_events_has_no_tables(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    (trace / "metadata").write_text(METADATA)
    (trace / "stream").write_bytes(b"")
    for words in ([], ["-o", tmp_path / "out"]):
        done = loopscope_import(trace, *words)
        assert done.returncode == 0
        assert "0 events" in done.stdout
        assert done.stdout.splitlines()[-1] == "no events: there is no table", words
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["import.json"]


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    (trace / "metadata").write_text(METADATA)
    (trace / "stream").write_bytes(bytes(8) * 20_000_000)
    told = []

    def interrupt(done: int, total: int) -> None:
        told.append((done, total))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _native.import_ctf(trace, tmp_path / "out", interrupt)
    assert told == [(0, 160_000_000)]
    assert [each.name for each in tmp_path.iterdir()] == ["trace"]
