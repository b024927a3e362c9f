"""Two hosts whose programs LTTng traces, and whose packets tcpdump captures, on a run's time line.

loopscope's own events stand before and after each of LTTng's tracepoints: they say when it was. The
hosts' clocks are hidden ones, so that a stamp that was taken for what it is not is far off.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernel_trace
import pyarrow.parquet as pq
import pytest
from lttng_tools import ALONE, missing
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

pytestmark = pytest.mark.full

HERE = Path(__file__).resolve().parent / "two_hosts"
GUIDE = HERE.parents[2] / "docs" / "guide"
SCRIPT = GUIDE / "import" / "record-lttng.sh"
BIN = Path(sys.executable).parent
LOOPSCOPE = BIN / "loopscope"
COUNT = 300
UNKNOWN_NS = 1 << 60


def test_the_guide_shows_what_runs_here(tmp_path: Path) -> None:
    page = (GUIDE / "import.md").read_text()
    blocks = re.findall(r"^```(yaml|sh)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert ("sh", SCRIPT.read_text()) in blocks
    components, measure = (text for kind, text in blocks if kind == "yaml")
    nodes = "".join(f"  {name}: {{host: h1, run: 'true'}}\n" for name in ("talker", "listener"))
    file = tmp_path / "guide.yaml"
    shutil.copy2(SCRIPT, tmp_path)
    rest = "phases: [{name: run, timeout: 60s}]\n"
    file.write_text(f"name: guide\nhosts: [h1]\n{components}{nodes}{measure}{rest}")
    done = loopscope("check", file)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where an experiment was run."""
    why = missing("tcpdump")
    if why:
        pytest.skip(f"SKIPPED LOUDLY: {why}")
    place = tmp_path_factory.mktemp("hosts")
    for file in (SCRIPT, HERE / "topic.yaml"):
        shutil.copy2(file, place)
    flags = [f"-I{HERE}", f"-I{BIN.parent}/include", f"-L{BIN.parent}/lib"]
    link = ["-llttng-ust", "-lloopscope", f"-Wl,-rpath,{BIN.parent}/lib"]
    source = HERE / "topic.c"
    command = ["cc", "-std=c99", "-O1", *flags, "-o", place / "topic", source, *link]
    subprocess.run(command, check=True)
    (place / "lttng").mkdir()
    state = {"LOOPSCOPE_STATE_DIR": str(place / "state")}
    done = subprocess.run(
        [*ALONE, place / "lttng", LOOPSCOPE, "run", "topic.yaml"],
        cwd=place,
        env={**os.environ, **state, "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    yield place


@pytest.fixture
def run(home: Path) -> Path:
    return (home / "runs" / "topic" / "latest").resolve()


def loopscope(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LOOPSCOPE, *words], capture_output=True, text=True, check=False)


def rows(run: Path, table: str) -> list[dict[str, Any]]:
    folder = run / "base" / "1" / "timeline" / table.replace(".", "/")
    parts = sorted(folder.glob("*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def span(row: dict[str, Any]) -> tuple[int, int]:
    """When an event was at the earliest and at the latest."""
    assert row["err_ns"] < UNKNOWN_NS, row
    return row["ts"] - row["err_ns"], row["ts"] + row["err_ns"]


def by_id(run: Path, table: str) -> dict[int, dict[str, Any]]:
    found = {row["id"]: row for row in rows(run, table)}
    assert sorted(found) == list(range(1, COUNT + 1))
    return found


@pytest.mark.parametrize(
    ("event", "host", "component"),
    [("publish", "h1", "publisher"), ("callback", "h2", "subscriber")],
)
def test_a_stamp_is_where_loopscopes_own_events_say(
    run: Path, event: str, host: str, component: str
) -> None:
    before, after = (by_id(run, f"oracle.{when}_{event}") for when in ("before", "after"))
    table = rows(run, f"topic.{event}")
    assert [row["ts"] for row in table] == sorted(row["ts"] for row in table)
    for number, row in by_id(run, f"topic.{event}").items():
        earliest, latest = span(row)
        assert span(before[number])[0] <= latest, row
        assert earliest <= span(after[number])[1], row
        own = (row["host"], row["process"], row["pid"], row["tid"])
        assert own == tuple(before[number][key] for key in ("host", "process", "pid", "tid"))
        assert own[:2] == (host, component)
        assert (row["counter"], row["name"]) == (None, "scan")
        assert row["stream_context"]["procname"] == "topic" and row["cpu"] is not None
    widths = sorted(row["err_ns"] for row in table)
    # What the host's clock is known to, and what the readings of the other one add: microseconds.
    assert widths[len(widths) // 2] < 1_000_000


def test_a_packet_is_between_its_message_s_ends(run: Path) -> None:
    sent, came = by_id(run, "oracle.after_publish"), by_id(run, "oracle.before_callback")
    packets = [row for row in rows(run, "pcap.packet") if row["destination_port"] == 5000]
    assert len(packets) == COUNT
    for number, packet in enumerate(packets, start=1):
        earliest, latest = span(packet)
        assert span(sent[number])[0] <= latest, packet
        assert earliest <= span(came[number])[1], packet
        assert (packet["source"], packet["destination"]) == ("10.77.0.1", "10.77.0.2")
        assert (packet["host"], packet["process"], packet["protocol"]) == ("h2", "tcpdump", 17)
        # Linux's cooked header, IP, UDP, and the message.
        assert packet["frame_length"] == 20 + 20 + 8 + 16 == packet["captured_length"]


def test_a_path_goes_from_publish_to_callback(run: Path) -> None:
    paths = json.loads((run / "results.json").read_text())["paths"]
    table = pq.read_table(run / "base" / "1" / "tables" / "path-topic.parquet").to_pylist()
    publish, callback = by_id(run, "topic.publish"), by_id(run, "topic.callback")
    assert (paths["topic"]["count"], paths["topic"]["lost"]) == (COUNT, 0)
    assert len(table) == COUNT
    for row in table:
        ends = publish[row["id"]], callback[row["id"]]
        assert row["latency"] == ends[1]["ts"] - ends[0]["ts"]
        assert row["latency_err"] == ends[0]["err_ns"] + ends[1]["err_ns"]
    # Both errors of two stamps of one host count, since one of them is another clock's.
    mixed = pq.read_table(run / "base" / "1" / "tables" / "path-mixed.parquet").to_pylist()
    for row in mixed:
        assert row["hop_err_0"] >= publish[row["id"]]["err_ns"]
        assert row["hop_0"] + row["hop_err_0"] >= 0 and row["hop_2"] + row["hop_err_2"] >= 0


def test_a_path_of_ros_2_s_tracepoints(run: Path) -> None:
    """A message is recognised by its source timestamp.

    A callback has no number; it gets the message that was taken last.
    """
    publish, take, start = (
        rows(run, f"ros2.{event}") for event in ("rmw_publish", "rmw_take", "callback_start")
    )
    assert [row["timestamp"] for row in publish] == [row["source_timestamp"] for row in take]
    table = pq.read_table(run / "base" / "1" / "tables" / "path-ros.parquet").to_pylist()
    assert len(table) == len(start) == COUNT
    decided = [row for row in table if not row["undecided"]]
    # The two stamps are a millisecond apart, their maximum errors microseconds where nothing
    # disturbs.
    assert len(decided) > COUNT / 2
    number = {row["ts_2"]: i for i, row in enumerate(table)}
    for row in decided:
        i = number[row["ts_2"]]
        assert (row["key_0"], row["key_1"]) == (publish[i]["timestamp"], publish[i]["timestamp"])
        stamps = tuple(each[i]["ts"] for each in (publish, take, start))
        assert (row["ts_0"], row["ts_1"], row["ts_2"]) == stamps


def test_the_summary_tells_of_every_source(run: Path) -> None:
    summary = json.loads((run / "base" / "1" / "tables" / "summary.json").read_text())
    found = {(each["host"], each["process"]): each for each in summary["foreign"]}
    assert {key: (e["kind"], e["clock"], e["tables"]) for key, e in found.items()} == {
        ("h1", "lttng1"): ("ctf", "monotonic", ["ros2.rmw_publish", "topic.publish"]),
        ("h2", "lttng2"): (
            "ctf",
            "monotonic",
            ["ros2.callback_start", "ros2.rmw_take", "topic.callback"],
        ),
        ("h2", "tcpdump"): ("pcap", "realtime", ["pcap.packet"]),
    }
    for each in found.values():
        assert each["whole"] and each["unknown"] == 0 and each["problems"] == []
        assert each["lost"] == {"events": 0, "events_before": 0, "packets": 0}
        assert each["from_ts"] < each["until_ts"]
    assert summary["problems"] == []


def test_what_is_brought_afterwards_is_kept(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "runs" / "topic" / "run"
    shutil.copytree(run, copy, symlinks=True)
    trace = tmp_path / "elsewhere"
    shutil.move(copy / "base/1/hosts/h2/components/lttng2/files/lttng", trace)
    before = rows(run, "topic.callback")
    done = loopscope("report", copy, "--json")
    assert json.loads(done.stdout)["paths"]["topic"]["lost"] == COUNT
    assert any("nothing was recorded" in each for each in json.loads(done.stdout)["problems"])
    done = loopscope("import", trace, "--run", copy, "--host", "h2", "--json")
    assert done.returncode == 0, done.stderr
    added = json.loads(done.stdout)
    assert (added["process"], added["clock"]) == ("elsewhere", "monotonic")
    assert added["events"] == 3 * COUNT
    shutil.rmtree(trace)
    assert rows(copy, "topic.callback") == before
    done = loopscope("report", copy, "--json")
    results = json.loads(done.stdout)
    assert results["paths"]["topic"]["lost"] == 0
    # What the component should have left may have had more.
    assert (done.returncode, results["verdict"]) == (3, "UNKNOWN")
    assert rows(copy, "topic.callback") == before


def test_what_the_kernel_ran_is_beside_it_in_perfetto(run: Path, tmp_path: Path) -> None:
    """A kernel's trace, made by hand of the callbacks' stamps: each is while its thread ran."""
    copy = tmp_path / "runs" / "topic" / "run"
    shutil.copytree(run, copy, symlinks=True)
    users = copy / "base/1/hosts/h2/components/lttng2/files/lttng"
    words = ["babeltrace2", users, "--component=sink.text.details"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    boot = re.search(r"Default clock class:.*?UUID: ([-0-9a-f]{36})", told, re.DOTALL)
    first = re.search(r"\[([0-9,]+) cycles, ([0-9,]+) ns from origin\]", told)
    assert boot is not None and first is not None, told
    cycles, ns = (int(each.replace(",", "")) for each in first.groups())
    offset = ns - cycles
    done = loopscope("import", users, "-o", tmp_path / "users")
    assert done.returncode == 0, done.stderr
    [part] = (tmp_path / "users/timeline/topic/callback").glob("*.parquet")
    idle, topic = ("swapper/1", 0), ("topic", rows(copy, "topic.callback")[0]["tid"])
    switches = []
    for row in pq.read_table(part).to_pylist():
        for before, after, moved in ((idle, topic, -30_000), (topic, idle, 30_000)):
            names = ("prev_comm", "prev_tid", "next_comm", "next_tid")
            fields = dict(zip(names, (*before, *after), strict=True))
            stamp = row["ts"] - offset + moved
            switches.append(kernel_trace.Event(1, stamp, "sched_switch", fields))
    place = tmp_path / "kernel"
    kernel_trace.write(place, switches, boot=boot[1], offset=offset, per_packet=50)
    done = loopscope("import", place, "--run", copy, "--host", "h2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == 2 * COUNT
    done = loopscope("export", copy, "--to", "perfetto", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    [file] = [tmp_path / "out"] if (tmp_path / "out").is_file() else (tmp_path / "out").iterdir()
    trace = Trace.FromString(file.read_bytes())
    described = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet}
    tracks = {uuid for uuid, track in described.items() if track.name == "CPU 1"}
    events = [p for p in trace.packet if p.HasField("track_event")]
    on_cpu = [p for p in events if p.track_event.track_uuid in tracks]
    begins, ends = (
        sorted(p.timestamp for p in on_cpu if p.track_event.type == kind)
        for kind in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END)
    )
    assert {p.track_event.name for p in on_cpu} == {"subscriber of h2", ""}
    callbacks = sorted(p.timestamp for p in events if p.track_event.name == "topic:callback")
    assert len(begins) == len(ends) == len(callbacks) == COUNT
    for begin, callback, end in zip(begins, callbacks, ends, strict=True):
        assert begin < callback < end
        assert abs(end - begin - 60_000) < 1_000


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--host", "h3"], "the run has no host 'h3'; it has: h1, h2"),
        ([], "--host: name the host"),
        (["--host", "h2", "--clock", "realtime"], '"monotonic", not "realtime"'),
        (["--host", "h2", "--clock", "ptp77"], '"monotonic", not "ptp77"'),
        (["--host", "h2", "--repeat", "2"], "--repeat 2: the run has 1"),
        (["--host", "h2", "-o", "out"], "exclude each other"),
        (["--host", "h2", "--name", "../x"], "a letter or a digit first"),
    ],
)
def test_what_cannot_be_added_leaves_nothing(run: Path, words: list[str], wanted: str) -> None:
    trace = run / "base/1/hosts/h2/components/lttng2/files/lttng"
    done = loopscope("import", trace, "--run", run, *words)
    assert done.returncode == 2 and wanted in done.stderr, done.stderr
    assert not list(run.glob("base/1/hosts/*/imports/*"))


def test_files_that_are_no_trace_are_refused(run: Path, tmp_path: Path) -> None:
    empty, other = tmp_path / "empty", tmp_path / "notes.txt"
    empty.mkdir()
    other.write_text("no capture")
    for path, wanted in (
        (empty, "no trace"),
        (other, "nor a capture"),
        (tmp_path / "x", "no such"),
    ):
        done = loopscope("import", path, "--run", run, "--host", "h1")
        assert done.returncode == 2 and wanted in done.stderr, done.stderr
    done = loopscope("import", other)
    assert done.returncode == 2 and "with --run" in done.stderr, done.stderr
    done = loopscope("import", empty, "--host", "h1")
    assert done.returncode == 2 and "--host is of a run" in done.stderr, done.stderr
