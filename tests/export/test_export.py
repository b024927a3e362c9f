"""What other tools are given is what the tables say."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
from synthetic_run import PIPELINE, SECOND, Host, Row, SyntheticRun, pipeline, with_tables
from test_path_graph_verdicts import HELD, held
from test_path_graphs import USED, Simulation, Towards, made_path, recorded, surely
from typer.testing import CliRunner, Result

from loopscope.cli import app
from loopscope.experiment import MessagePath, PathEvent
from loopscope.timeline import Run, open_run

MESSAGES = 200
KINDS = {"work:step": "interval", "work:queue": "counter"}


def add_entities(run: Path) -> None:
    """`entities.parquet`, and an interval and a counter of h2's."""
    for repeat in open_run(run).repeats.values():
        entities = {f"pipe:{name}": "event" for name in ("sent", "received")} | KINDS
        names = {"entity": list(entities), "kind": list(entities.values())}
        pq.write_table(pa.table(names), repeat / "tables" / "entities.parquet")
        ends = [1_000, 1_500, 1_600, 3_000]
        common = {
            "err_ns": pa.array([5] * 4, pa.int64()),
            "counter": pa.array(ends, pa.uint64()),
            "host": ["h2"] * 4,
            "process": ["node1"] * 4,
            "pid": pa.array([7] * 4, pa.uint32()),
            "tid": pa.array([8] * 4, pa.uint32()),
            "cpu": pa.array([None] * 4, pa.uint16()),
            "id": pa.array(range(4), pa.int64()),
        }
        # The second begins within the first, the third where the first ends.
        spans = {"start": [500, 900, 1_000, 2_000], "duration": [500, 600, 600, 1_000]}
        for name, own in (("step", spans), ("queue", {"value": [3, -4, 2**40, 0]})):
            folder = repeat / "timeline" / "work" / name
            folder.mkdir(parents=True)
            table = {"ts": pa.array(ends, pa.int64()), **common, **own}
            pq.write_table(pa.table(table), folder / "part-0.parquet")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    run = pipeline(tmp_path / "run", messages=MESSAGES, repeats=2, lose_every=9).write()
    with_tables(open_run(run))
    add_entities(run)
    return run


@pytest.fixture
def run(made: Path) -> Run:
    return open_run(made)


def export(run: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(app, ["export", str(run), *map(str, words)])


class Tracks:
    """A trace read back."""

    def __init__(self, file: Path) -> None:
        trace = Trace()
        trace.ParseFromString(file.read_bytes())
        self.descriptors = {
            p.track_descriptor.uuid: p.track_descriptor
            for p in trace.packet
            if p.HasField("track_descriptor")
        }
        self.events = [p for p in trace.packet if p.HasField("track_event")]

    def of(self, kind: int) -> list[Any]:
        return [p for p in self.events if p.track_event.type == kind]

    def process(self, packet: Any) -> str:
        """The process of an event on a thread's track."""
        pid = self.descriptors[packet.track_event.track_uuid].thread.pid
        (name,) = (
            d.process.process_name for d in self.descriptors.values() if d.process.pid == pid
        )
        return str(name)

    def slices(self) -> list[tuple[str, str, int, int, int]]:
        """Track's name, slice's name, begin, end, depth; begins and ends must match."""
        found, open_ = [], defaultdict(list)
        last: dict[int, int] = {}
        for packet in self.events:
            event, track = packet.track_event, packet.track_event.track_uuid
            if event.type in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END):
                # Otherwise a begin belongs to another end than was meant.
                assert last.get(track, 0) <= packet.timestamp
                last[track] = packet.timestamp
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                stack = open_[track]
                assert not stack or stack[-1][1] <= packet.timestamp
                stack.append((event.name, packet.timestamp))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                name, begin = open_[track].pop()
                assert begin <= packet.timestamp
                depth = len(open_[track])
                label = self.descriptors[track].name
                found.append((label, name, begin, packet.timestamp, depth))
        assert not any(open_.values())
        return found


def note(packet: Any, name: str) -> int:
    (value,) = (a.int_value for a in packet.track_event.debug_annotations if a.name == name)
    return int(value)


@pytest.fixture
def tracks(made: Path, tmp_path: Path) -> Tracks:
    file = tmp_path / "out.perfetto-trace"
    done = export(made, "--to", "perfetto", "-o", file, "--repeat", "2")
    assert done.exit_code == 0, done.output
    read = Tracks(file)
    assert f"{file}: {len(read.events)} entries of repeat 2" in done.output
    return read


def test_every_event_is_an_instant_of_its_program(run: Run, tracks: Tracks) -> None:
    wanted: Counter[tuple[Any, ...]] = Counter()
    for name in ("pipe.sent", "pipe.received"):
        table = run.table(name)
        for row in table.filter(table.repeat == 2).to_pyarrow().to_pylist():
            place = f"{row['host']}/{row['process']} ({row['pid']})"
            wanted[name.replace(".", ":"), place, row["ts"], row["id"], row["err_ns"]] += 1
    found = Counter(
        (p.track_event.name, tracks.process(p), p.timestamp, note(p, "id"), note(p, "err_ns"))
        for p in tracks.of(TrackEvent.TYPE_INSTANT)
    )
    assert found == wanted and len(found) > MESSAGES


def test_a_flow_ties_a_message_s_events_together(tracks: Tracks) -> None:
    events: dict[int, list[tuple[int, str]]] = defaultdict(list)
    ended: Counter[int] = Counter()
    ids: dict[int, set[int]] = defaultdict(set)
    for packet in tracks.of(TrackEvent.TYPE_INSTANT):
        (flow,) = [*packet.track_event.flow_ids, *packet.track_event.terminating_flow_ids]
        ended[flow] += len(packet.track_event.terminating_flow_ids)
        place = tracks.process(packet).partition("/")[2].partition(" ")[0]
        events[flow].append((packet.timestamp, f"{place}/{packet.track_event.name}"))
        ids[flow].add(note(packet, "id"))
    whole = [f"{component}/{entity}" for component, entity, _ in PIPELINE]
    lost = 0
    for flow, seen in events.items():
        order = [name for _, name in sorted(seen)]
        assert order == whole[: len(order)] and len(ids[flow]) == 1
        assert ended[flow] == (len(order) == len(whole))
        lost += len(order) < len(whole)
    assert len(events) == MESSAGES and 0 < lost < MESSAGES


def test_paths_are_slices_with_their_hops_inside(run: Run, tracks: Tracks) -> None:
    slices = [each for each in tracks.slices() if each[0] == "loop"]
    outer = {int(name.split()[1]): (begin, end) for _, name, begin, end, d in slices if d == 0}
    loop = run.path_tables["loop"].to_pandas()
    loop = loop[loop.repeat == 2].set_index("id")
    assert sorted(outer) == sorted(loop.index)
    for message, (begin, end) in outer.items():
        stamps = [loop.loc[message, f"ts_{i}"] for i in range(len(PIPELINE))]
        known = [int(ts) for ts in stamps if ts == ts]
        assert (begin, end) == (known[0], max(known))
    inner = sum(depth == 1 for *_, depth in slices)
    hops = run.hops
    assert inner == hops.filter(hops.repeat == 2).count().execute()
    named = [name for _, name, *_, depth in slices if depth == 0 and name.endswith(" lost")]
    assert len(named) == loop.latency.isna().sum() > 0


def test_intervals_that_overlap_are_on_tracks_of_their_own(tracks: Tracks) -> None:
    slices = sorted(each[2:] for each in tracks.slices() if each[1] == "work:step")
    assert slices == [(500, 1000, 0), (900, 1500, 0), (1000, 1600, 0), (2000, 3000, 0)]


def test_each_processor_has_a_track_of_what_ran_on_it(made: Path, tmp_path: Path) -> None:
    switches = [  # ts, host, cpu, next
        (1_000, "h1", 0, 7, "loop"),
        (1_100, "h1", 1, 8, "burn"),
        (1_200, "h2", 0, 7, "loop"),
        (1_300, "h1", 0, 0, "swapper/0"),
        (1_500, "h1", 0, 8, "burn"),
        (1_600, "h1", 0, 7, "loop"),
    ]
    ts, hosts, cpus, tids, names = zip(*switches, strict=True)
    columns = {
        "ts": pa.array(ts, pa.int64()),
        "err_ns": pa.array([9] * len(ts), pa.int64()),
        "counter": pa.array([None] * len(ts), pa.uint64()),
        "host": hosts,
        "process": ["lttng"] * len(ts),
        "pid": pa.array([None] * len(ts), pa.uint32()),
        "tid": pa.array([None] * len(ts), pa.uint32()),
        "cpu": pa.array(cpus, pa.uint16()),
        "id": pa.array([None] * len(ts), pa.int64()),
        "next_comm": names,
        "next_tid": pa.array(tids, pa.int32()),
    }
    folder = made / "base" / "1" / "timeline" / "kernel"
    for name in ("sched_switch", "sched_waking"):
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / name / "part-0.parquet")
    done = export(made, "--to", "perfetto", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    tracks = Tracks(tmp_path / "out")
    ran = [each[:4] for each in tracks.slices() if each[0].startswith("CPU ")]
    # What ran before the first switch, after the last and while idling is nobody's.
    assert sorted(ran, key=lambda each: each[2]) == [
        ("CPU 0", "loop", 1_000, 1_300),
        ("CPU 0", "burn", 1_500, 1_600),
    ]
    processes = {d.process.process_name for d in tracks.descriptors.values()}
    assert "h1/kernel" in processes and "h1/lttng" in processes
    waking = [
        p for p in tracks.of(TrackEvent.TYPE_INSTANT) if p.track_event.name == "kernel:sched_waking"
    ]
    assert len(waking) == len(switches)


def test_a_counter_is_a_counter_track(tracks: Tracks) -> None:
    counted = tracks.of(TrackEvent.TYPE_COUNTER)
    values = [(p.timestamp, p.track_event.counter_value) for p in counted]
    assert values == [(1_000, 3), (1_500, -4), (1_600, 2**40), (3_000, 0)]
    (track,) = {p.track_event.track_uuid for p in counted}
    described = tracks.descriptors[track]
    assert described.HasField("counter") and described.name == "work:queue"
    parent = tracks.descriptors[described.parent_uuid]
    assert parent.process.process_name == "h2/node1 (7)"


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv"])
def test_every_table_is_a_file(made: Path, run: Run, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "tables"
    done = export(made, "--to", form, "-o", folder)
    assert done.exit_code == 0, done.output
    files = {file.name.removesuffix(f".{form}"): file for file in folder.iterdir()}
    assert {"pipe.sent", "work.step", "paths.loop", "hops", "hosts"} <= set(files)
    wanted = run.table("pipe.sent").order_by("repeat", "ts").to_pyarrow()
    if form == "csv":
        rows = list(csv.DictReader(files["pipe.sent"].open()))
        assert len(rows) == len(wanted)
        key = [(int(row["repeat"]), int(row["ts"]), int(row["id"])) for row in rows]
        columns = (wanted[name].to_pylist() for name in ("repeat", "ts", "id"))
        assert sorted(key) == sorted(zip(*columns, strict=True))
    else:
        read = (
            pq.read_table(files["pipe.sent"])
            if form == "parquet"
            else pa.ipc.open_file(files["pipe.sent"]).read_all()
        )
        assert read.sort_by([("repeat", "ascending"), ("ts", "ascending")]).equals(wanted)
    # What is there is not written over.
    again = export(made, "--to", form, "-o", folder)
    assert again.exit_code == 2 and "exists" in again.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--to", "perfetto", "--repeat", "3"], "the run has 1, 2"),
        (["--to", "csv", "--repeat", "1"], "in the column repeat"),
        (["--to", "perfetto", "-o", "nowhere/out"], "there is no such folder"),
        (["--to", "chrome"], "'chrome' is not one of"),
        (["--to", "csv", "--point", "x"], "no point 'x'"),
    ],
)
def test_mistakes_are_told(
    made: Path,
    words: list[str],
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = export(made, *words)
    assert done.exit_code == 2 and wanted in done.stderr, done.stderr


def test_a_run_without_messages_is_exported(tmp_path: Path) -> None:
    rows = [Row("a", "m:x", 1, 1000)]
    run = SyntheticRun(tmp_path / "run", rows).write()
    entities = pa.table({"entity": ["m:x"], "kind": ["event"]})
    pq.write_table(entities, run / "base" / "1" / "tables" / "entities.parquet")
    done = export(run, "--to", "perfetto", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert len(Tracks(tmp_path / "out").of(TrackEvent.TYPE_INSTANT)) == 1


def test_a_hop_that_ends_before_it_began_has_no_length(tmp_path: Path) -> None:
    stamps = {"a": 1_000, "b": 990, "c": 1_500}
    rows = [Row(name, f"m:{name}", 1, ts, err=50, host=name) for name, ts in stamps.items()]
    loop = MessagePath("loop", "id", tuple(PathEvent(n, n, "m", n) for n in stamps))
    hosts = [Host(name, reference=name == "a") for name in stamps]
    run = SyntheticRun(tmp_path / "run", rows, hosts, components=[*stamps], paths=[loop]).write()
    with_tables(open_run(run))
    entities = pa.table({"entity": [f"m:{n}" for n in stamps], "kind": ["event"] * 3})
    pq.write_table(entities, run / "base" / "1" / "tables" / "entities.parquet")
    done = export(run, "--to", "perfetto", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    slices = sorted(
        (begin, end, depth) for *_, begin, end, depth in Tracks(tmp_path / "out").slices()
    )
    assert slices == [(1_000, 1_000, 1), (1_000, 1_500, 0), (1_000, 1_500, 1)]


def flows_of(tracks: Tracks) -> dict[int, list[tuple[bool, str, int, int]]]:
    """The instants of each flow: whether it ends there, of which entity, the number, the time."""
    found: dict[int, list[tuple[bool, str, int, int]]] = defaultdict(list)
    for packet in tracks.of(TrackEvent.TYPE_INSTANT):
        event = packet.track_event
        here = event.name, note(packet, "number"), packet.timestamp
        for flow in event.flow_ids:
            found[flow].append((False, *here))
        for flow in event.terminating_flow_ids:
            found[flow].append((True, *here))
    return found


@pytest.mark.parametrize("doubt", [False, True], ids=["exact", "doubtful"])
@pytest.mark.parametrize("seed", range(8))
def test_a_graph_has_a_flow_for_each_use_and_a_slice_for_each_edge(
    tmp_path: Path, seed: int, doubt: bool
) -> None:
    simulations = [Simulation(seed, repeat, doubt) for repeat in (1, 2)]
    simulation = simulations[1]
    path, place = made_path(simulation)
    run, written = recorded(tmp_path / "run", simulations, path, paths=[path])
    for repeat in run.repeats.values():
        names = [event.entity for event in path.events]
        entities = {"entity": names, "kind": ["event"] * len(names)}
        pq.write_table(pa.table(entities), repeat / "tables" / "entities.parquet")
    done = export(written.root, "--to", "perfetto", "-o", tmp_path / "out", "--repeat", "2")
    assert done.exit_code == 0, done.output
    tracks = Tracks(tmp_path / "out")
    entity = [f"g:n{i}" for i in range(len(simulation.nodes))]
    uses = {
        ((False, entity[source], a.number, 5 * SECOND + a.ts),
         (True, entity[index], b.number, 5 * SECOND + b.ts))
        for index, node in enumerate(simulation.nodes)
        for b in node.messages
        for source in node.inputs
        for a in b.sure[source]
    }  # fmt: skip
    unnumbered = {e.entity for e, key in zip(path.events, path.keys, strict=True) if key is None}
    flows = flows_of(tracks)
    assert len(flows) == len(uses)
    assert {_sorted(each, unnumbered) for each in flows.values()} == {
        _sorted(each, unnumbered) for each in uses
    }
    slices = Counter((track, begin, end) for track, _, begin, end, _ in tracks.slices())
    wanted: Counter[tuple[str, int, int]] = Counter()
    for start, end in path.hops:
        towards = Towards(simulation, place[end])
        track = f"way: {path.events[start]} → {path.events[end]}"
        for message in simulation.nodes[place[start]].messages:
            if towards.fate(place[start], message) == USED:
                first = min(u.ts for u in towards.uses(place[start], message, surely))
                ends = 5 * SECOND + max(first, message.ts)
                wanted[track, 5 * SECOND + message.ts, ends] += 1
    names = {}
    for source in path.sources:
        whole = "way" if len(path.sources) == 1 else f"way: {path.events[source]}"
        later = [i for i in range(len(path.events)) if source in path.before(i)]
        sinks = [Towards(simulation, place[end]) for first, end in path.ends if first == source]
        for message in simulation.nodes[place[source]].messages:
            reached = [
                use.ts
                for first in (
                    Towards(simulation, place[i]).uses(place[source], message, surely)
                    for i in later
                    if Towards(simulation, place[i]).fate(place[source], message) == USED
                )
                for use in [min(first, key=lambda m: (m.ts, m.number))]
            ]
            ends = 5 * SECOND + max([message.ts, *reached])
            wanted[whole, 5 * SECOND + message.ts, ends] += 1
            best = max(each.fate(place[source], message) for each in sinks)
            fate = ("lost", "unused", "superseded", "undecided", "")[best]
            names[whole, 5 * SECOND + message.ts] = f"way {message.number} {fate}".strip()
    assert slices == wanted
    seen = {(track, begin): name for track, name, begin, *_ in tracks.slices()}
    assert {key: seen[key] for key in names} == names


def _sorted(ends: Any, unnumbered: set[str]) -> tuple[Any, ...]:
    """What has no number is known by its time."""
    return tuple(
        sorted((last, name, None if name in unnumbered else id, ts) for last, name, id, ts in ends)
    )


def test_a_graph_s_flows_and_slices_and_its_table(tmp_path: Path) -> None:
    """A message that no step was near enough to is superseded; a list in the run has its own."""
    rows = held([0, 5000], [6000, 7000])
    both = [HELD, MessagePath("list", "id", HELD.events[:2])]
    run = SyntheticRun(tmp_path / "run", rows, [Host("h1", True, 0, 0.0)], paths=both).write()
    with_tables(open_run(run))
    for repeat in open_run(run).repeats.values():
        names = {"entity": ["a:sent", "a:received", "b:step"], "kind": ["event"] * 3}
        pq.write_table(pa.table(names), repeat / "tables" / "entities.parquet")
    done = export(run, "--to", "perfetto", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    seen = Tracks(tmp_path / "out")
    assert len(seen.of(TrackEvent.TYPE_INSTANT)) == len(rows)
    of_graph = [(t, name, b - SECOND, e - SECOND) for t, name, b, e, _ in seen.slices()
                if t.startswith("way")]  # fmt: skip
    sent, used = "source/a:sent → control/a:received", "control/a:received → control/b:step"
    assert sorted(of_graph) == [
        ("way", "way 0 superseded", -1000, 0),
        ("way", "way 1", 4000, 6000),
        (f"way: {used}", "→ control/b:step", 5000, 6000),
        (f"way: {sent}", "→ control/a:received", -1000, 0),
        (f"way: {sent}", "→ control/a:received", 4000, 5000),
    ]
    ends = Counter[int]()
    for packet in seen.of(TrackEvent.TYPE_INSTANT):
        event = packet.track_event
        ends.update(event.terminating_flow_ids)
        if event.name == "b:step":
            assert len(event.terminating_flow_ids) == 1 and not event.flow_ids
    # Two messages over the first edge, one of them twice over the second; the list's two.
    assert len(ends) == 6 and set(ends.values()) == {1}
    done = export(run, "--to", "csv", "-o", tmp_path / "tables")
    assert done.exit_code == 0, done.output
    row, _ = csv.DictReader((tmp_path / "tables" / "paths.way.csv").open())
    assert (row["sink"], row["key_1"], row["age"]) == ("control/b:step", "1", "2000")
    hops = list(csv.DictReader((tmp_path / "tables" / "hops.csv").open()))
    mine = sorted((hop["hop"], hop["duration"]) for hop in hops if hop["path"] == "way")
    assert mine == [("0", "1000"), ("1", "1000"), ("1", "2000")]


def test_a_perfetto_trace_is_a_file_in_a_folder(made: Path, tmp_path: Path) -> None:
    for place, said in ((tmp_path, "is a folder"), (tmp_path / "no/x", "no such folder")):
        words = ["export", str(made), "--to", "perfetto", "-o", str(place)]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2 and said in done.stderr, done.output
