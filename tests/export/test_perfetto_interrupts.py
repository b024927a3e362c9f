"""Interrupts of a Perfetto trace are the entries and exits of the tables."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from synthetic_run import pipeline, with_tables
from test_export import Tracks, add_entities, export, note

from loopscope.timeline import open_run

ERR_NS = 7
NET_RX, UNHEARD_OF = 3, 42
Event = dict[str, Any]
Ends = tuple[list[Event], list[Event]]
"""Entries and exits."""


def table(run: Path, event: str, rows: list[Event], repeat: int = 1) -> None:
    own = [{"ts": 0} | row for row in sorted(rows, key=lambda row: row["ts"])]
    common = {"err_ns": ERR_NS, "process": "kernel", "pid": None, "id": None}
    columns = pa.Table.from_pylist([{**common, "counter": 3 * row["ts"], **row} for row in own])
    types = {"cpu": pa.uint16(), "tid": pa.uint32(), "pid": pa.uint32(), "id": pa.int64()}
    fields = [pa.field(each.name, types.get(each.name, each.type)) for each in columns.schema]
    folder = run / f"base/{repeat}/timeline/kernel" / event
    folder.mkdir(parents=True)
    pq.write_table(columns.cast(pa.schema(fields)), folder / "part-0.parquet")


def drawn_ends(drawn: random.Random, **fields: list[Any]) -> Ends:
    """Those of two hosts with two processors each; some are lost, also at begin and end."""
    entries, exits = [], []
    for host in ("h1", "h2"):
        for cpu in (0, 1):
            at = drawn.randrange(1_000)
            for _ in range(60):
                end = at + drawn.randrange(1, 200)
                own = {name: drawn.choice(values) for name, values in fields.items()}
                row = {"host": host, "cpu": cpu, "tid": drawn.randrange(50), **own}
                lost = drawn.choice([None] * 6 + [entries, exits])
                entries += [row | {"ts": at}] if lost is not entries else []
                exits += [row | {"ts": end}] if lost is not exits else []
                at = end + drawn.randrange(1, 300)
    return entries, exits


def pairs(ends: Ends, name: str) -> Iterator[tuple[str, int, str, int, int, int]]:
    """Host, processor, name, begin, end and thread of each entry that its exit follows."""
    open_: dict[tuple[str, int], Event] = {}
    every = [(row["ts"], entry, row) for entry, of in enumerate(reversed(ends)) for row in of]
    for ts, enters, row in sorted(every, key=lambda each: each[:2]):
        place = row["host"], row["cpu"]
        before = open_.pop(place, None)
        if enters:
            open_[place] = row
        elif before is not None:
            vector = "NET_RX" if before.get("vec") == NET_RX else f"vector {before.get('vec')}"
            text = name.format(vector=vector, **{"irq": "", "name": "", **before})
            yield *place, text, before["ts"], ts, before["tid"]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    run = pipeline(tmp_path / "run", messages=3, repeats=2).write()
    with_tables(open_run(run))
    add_entities(run)
    return run


def exported(made: Path) -> Tracks:
    file = made.parent / "trace"
    done = export(made, "--to", "perfetto", "-o", file)
    assert done.exit_code == 0, done.output
    return Tracks(file)


def place_of(tracks: Tracks, uuid: int) -> tuple[str, str]:
    """The process and the thread that a track is in."""
    thread = tracks.descriptors[tracks.descriptors[uuid].parent_uuid].thread
    (process,) = (
        each.process.process_name
        for each in tracks.descriptors.values()
        if each.process.pid == thread.pid
    )
    return process, thread.thread_name


def told(tracks: Tracks, track: str) -> list[tuple[str, int, str, int, int, int]]:
    """What `pairs` has, of the tracks of a name."""
    found, open_ = [], defaultdict(list)
    for packet in tracks.events:
        event = packet.track_event
        name = tracks.descriptors[event.track_uuid].name
        if not name.endswith(f" {track}") or (track == "interrupts" and " soft " in name):
            continue
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_[event.track_uuid].append(packet)
            continue
        begin = open_[event.track_uuid].pop()
        process, thread = place_of(tracks, event.track_uuid)
        assert note(begin, "err_ns") == ERR_NS
        cpu = name.removeprefix("CPU ").removesuffix(f" {track}")
        assert process.endswith("/kernel") and thread == f"kernel {cpu}"
        text, tid = begin.track_event.name, note(begin, "tid")
        ns = begin.timestamp, packet.timestamp
        found.append((process.removesuffix("/kernel"), int(cpu), text, *ns, tid))
    return sorted(found)


@pytest.mark.parametrize("seed", range(5))
def test_each_entry_and_its_exit_are_a_slice_on_their_processor(made: Path, seed: int) -> None:
    """Those of different handlers overlap, which have tracks of their own then."""
    drawn = random.Random(seed)
    of = {
        "irq_handler": drawn_ends(drawn, irq=[5, 9], name=["virtio0-input.0", "nvme0q1"]),
        "local_timer": drawn_ends(drawn),
        "softirq": drawn_ends(drawn, vec=[NET_RX, UNHEARD_OF]),
    }
    for event, ends in of.items():
        for end, rows in zip(("entry", "exit"), ends, strict=True):
            table(made, f"{event}_{end}", rows)
            later = [row | {"ts": row["ts"] + 13} for row in rows]
            table(made, f"{event}_{end}", later, repeat=2)
    table(made, "softirq_raise", of["softirq"][0])
    tracks = exported(made)
    hard = [*pairs(of["irq_handler"], "irq {irq} {name}"), *pairs(of["local_timer"], "local_timer")]
    soft = sorted(pairs(of["softirq"], "{vector}"))
    assert told(tracks, "interrupts") == sorted(hard)
    assert told(tracks, "soft interrupts") == soft
    assert 100 < len(soft) < len(of["softirq"][0])
    # No slice is in another one, and what is a slice is nothing else.
    assert {depth for name, *_, depth in tracks.slices() if "interrupts" in name} == {0}
    instants = {each.track_event.name for each in tracks.of(TrackEvent.TYPE_INSTANT)}
    assert "kernel:softirq_raise" in instants and "kernel:softirq_entry" not in instants


def test_they_are_in_the_group_of_what_ran_on_the_processor(made: Path) -> None:
    entry = {"ts": 500, "host": "h1", "cpu": 1, "tid": 8, "vec": NET_RX}
    table(made, "softirq_entry", [entry])
    table(made, "softirq_exit", [entry | {"ts": 600}])
    names = {"prev_tid": 0, "prev_comm": "swapper/1", "next_comm": "loop", "next_tid": 8}
    switches = [{**entry, **names, "ts": ts} for ts in (100, 900)]
    table(made, "sched_switch", switches)
    by_name = {each.name: each for each in exported(made).descriptors.values() if each.name}
    assert by_name["CPU 1"].parent_uuid == by_name["CPU 1 soft interrupts"].parent_uuid


def test_entries_that_do_not_say_of_what_are_events(made: Path) -> None:
    """A foreign trace may have other fields."""
    row = {"ts": 500, "host": "h1", "cpu": 0, "tid": 8, "number": NET_RX}
    table(made, "softirq_entry", [row])
    table(made, "softirq_exit", [row | {"ts": 600}])
    tracks = exported(made)
    instants = [each.track_event.name for each in tracks.of(TrackEvent.TYPE_INSTANT)]
    assert instants.count("kernel:softirq_entry") == instants.count("kernel:softirq_exit") == 1
    assert not told(tracks, "soft interrupts")
