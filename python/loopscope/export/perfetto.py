"""One repeat of a run as a Perfetto trace (protos/perfetto/trace/perfetto_trace.proto).

A host's program is a process, named `host/program`. Its threads have their events as instants, with
the fields, and their intervals as slices; counters are counter tracks. A message's events along a
path are tied together by a flow. The paths are a process of their own, with a slice for every
message and one in it for every hop. In a branching path a flow goes from each message to each
that was made of it, and every edge has a track, with a slice for every message until its first use
there. Where a kernel's switches of threads were recorded, each
processor of the host has a track with what ran on it; where interrupts and soft interrupts were,
tracks of those that it served. Times are ns on the run's time line.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from loopscope.analysis.keys import shown
from loopscope.analysis.message_dag import read_graph
from loopscope.analysis.threads import Threads
from loopscope.experiment.measures import fields_of
from loopscope.export.perfetto_dag import GraphFlows, Slice, slices
from loopscope.export.perfetto_interrupts import interrupts, recorded

if TYPE_CHECKING:
    import pyarrow as pa

    from loopscope.experiment import MessagePath
    from loopscope.timeline import Run

# Columns that are not an event's own.
_COMMON = {"repeat", "ts", "counter", "host", "process", "pid", "tid", "cpu", "entity_kind"}
# The table of context switches in a kernel's trace.
SWITCHES = "kernel.sched_switch"
_SERVED = {"interrupt": "interrupts", "softirq": "soft interrupts"}
_LEAST, _MOST = -(2**63), 2**63 - 1


def write_perfetto(
    run: Run,
    repeat: int,
    paths: Sequence[MessagePath],
    file: Path,
    seen: Callable[[str], None],
) -> int:
    """Writes `file` and returns the number of its events.

    ``seen`` is told of each table before it is written. Raises `OSError`, and `RunError` where a
    table is missing.
    """
    unfinished = file.with_name(file.name + ".unfinished")
    try:
        with unfinished.open("wb") as sink:
            count = _Writer(sink).write(run, repeat, paths, seen)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


class _Writer:
    def __init__(self, sink: IO[bytes]) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self._trace = StreamingTraceProtoBuilder(sink)
        self._types = TrackEvent
        self._tracks: dict[tuple[Any, ...], int] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._count = 0
        self._begun = False

    def write(
        self,
        run: Run,
        repeat: int,
        paths: Sequence[MessagePath],
        seen: Callable[[str], None],
    ) -> int:
        kernels = (
            run.relation(SWITCHES)
            .filter(f"repeat = {repeat}")
            .project("host")
            .distinct()
            .fetchall()
            if SWITCHES in run.tables
            else ()
        )
        threads = {host: Threads(run, repeat, host) for (host,) in kernels}
        # One repeat at a time has its flows in memory.
        flows: list[_Flows | GraphFlows] = [_Flows(paths)]
        graphs = {}
        for number, path in enumerate(paths):
            if path.edges:
                graph, _ = read_graph(run, path, repeat)
                keys = [graph.keys_at(event) for event in range(len(path.events))]
                graphs[number] = graph.repeats[repeat], keys
                flows.append(GraphFlows(_first_flow(number), *graphs[number]))
        served = recorded(run)
        paired = {table for source in served for table in source.tables}
        for name in run.tables:
            if name in paired:
                continue
            seen(name)
            table = run.table(name)
            kinds = _kinds(run, name)
            order = ("ts", "counter", "id")
            rows = table.filter(table.repeat == repeat).order_by(order)
            if name == SWITCHES and {"next_comm", "next_tid"} <= set(table.columns):
                self._scheduling(rows.to_pyarrow_batches(), threads)
                continue
            self._entity(name.replace(".", ":", 1), kinds, rows.to_pyarrow_batches(), flows)
        if served:
            seen("interrupts")
            self._interrupts(interrupts(run, repeat, served))
        for number, path in enumerate(paths):
            if number in graphs:
                seen(f"paths.{path.name}")
                self._graph(number, slices(graphs[number][0], repeat, graphs[number][1]))
            elif path.name in run.path_tables:
                seen(f"paths.{path.name}")
                table = run.path_tables[path.name]
                rows = table.filter(table.repeat == repeat).order_by("ts_0")
                self._path(number, path, rows.to_pyarrow_batches())
        return self._count

    def _entity(
        self,
        entity: str,
        kinds: set[str],
        batches: Iterator[pa.RecordBatch],
        flows: Sequence[_Flows | GraphFlows],
    ) -> None:
        lanes: dict[tuple[Any, ...], _Lanes] = {}
        for batch in batches:
            columns = batch.to_pydict()
            own = [name for name in columns if name not in _COMMON]
            for i, ts in enumerate(columns["ts"]):
                row = {name: columns[name][i] for name in own}
                place = tuple(columns[name][i] for name in ("host", "process", "pid", "tid"))
                kind = columns["entity_kind"][i] if "entity_kind" in columns else next(iter(kinds))
                if kind == "counter":
                    self._counter(entity, place, ts, row["value"])
                elif kind == "interval" and row["start"] is not None:
                    lane = lanes.setdefault(place, _Lanes()).of(row["start"], ts)
                    self._slice(entity, self._lane(place, entity, lane), row["start"], ts, row)
                else:
                    of_paths = [each.of(entity, place[1], row) for each in flows]
                    leaves = [flow for begun, _ in of_paths for flow in begun]
                    ends = [flow for _, ended in of_paths for flow in ended]
                    self._instant(entity, self._thread(place), ts, row, leaves, ends)

    def _scheduling(
        self, batches: Iterator[pa.RecordBatch], threads: Mapping[str, Threads]
    ) -> None:
        """A slice for each stretch of a thread on a processor, from one switch to the next.

        Threads of components are named by these. Where it is not told when idling ended, the slice
        begins with that.
        """
        since: dict[tuple[Any, ...], dict[str, Any]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                place = (row["host"], "kernel", None, row["cpu"])
                began = since.get(place)
                since[place] = row
                if began is None:
                    continue
                # Thread 0 is the processor's idling. Some machines do not tell when that ends.
                idled = began["next_tid"] == 0
                tid, comm = (
                    (row.get("prev_tid"), row.get("prev_comm"))
                    if idled
                    else (began["next_tid"], began["next_comm"])
                )
                if tid:
                    name = threads[row["host"]].named(tid, comm, at=began["ts"])
                    track = self._lane(place, f"CPU {row['cpu']}", 0)
                    fields = {"tid": tid, "err_ns": began["err_ns"]}
                    text = f"idle, then {name}" if idled else name
                    self._slice(text, track, began["ts"], row["ts"], fields)

    def _interrupts(self, found: Iterator[Mapping[str, Any]]) -> None:
        """A slice for each interrupt and soft interrupt that a processor served."""
        lanes: dict[tuple[Any, ...], _Lanes] = {}
        for each in found:
            place = (each["host"], "kernel", None, each["cpu"])
            kind, begin, end = each["kind"], each["ts"], each["until"]
            lane = lanes.setdefault((*place, kind), _Lanes()).of(begin, end)
            track = self._lane(place, f"CPU {each['cpu']} {_SERVED[kind]}", lane)
            fields = {"tid": each["tid"], "err_ns": each["err_ns"]}
            self._slice(each["name"], track, begin, end, fields)

    def _path(self, number: int, path: MessagePath, batches: Iterator[pa.RecordBatch]) -> None:
        process = ("path", number)
        lanes = _Lanes()
        events = range(len(path.events))
        for batch in batches:
            columns = batch.to_pydict()
            keys = columns.get("key", columns["id"])
            for i, message in enumerate(shown([key]) for key in keys):
                stamps = [columns[f"ts_{event}"][i] for event in events]
                times = [ts for ts in stamps if ts is not None]
                end = max(times)
                track = self._lane(process, path.name, lanes.of(times[0], end))
                hops = [
                    (
                        str(path.events[last]),
                        stamps[first],
                        stamps[last],
                        columns[f"hop_err_{hop}"][i],
                    )
                    for hop, (first, last) in enumerate(path.hops)
                    if stamps[first] is not None and stamps[last] is not None
                ]
                lost = stamps[-1] is None
                name = f"{path.name} {message}{' lost' if lost else ''}"
                err = columns["latency_err"][i]
                self._begin(name, track, times[0], {"id": message, "err_ns": err})
                now = times[0]
                for name, start, stop, err in hops:
                    # Within the clocks' error a hop may end before it began: it has no length then.
                    begin = max(start, now)
                    now = max(stop, begin)
                    self._slice(f"→ {name}", track, begin, now, {"err_ns": err})
                self._end(track, end)

    def _graph(self, number: int, found: Iterator[Slice]) -> None:
        lanes: dict[str, _Lanes] = {}
        for each in found:
            lane = lanes.setdefault(each.track, _Lanes()).of(each.begin, each.end)
            track = self._lane(("path", number), each.track, lane)
            self._slice(each.name, track, each.begin, each.end, each.fields)

    # Tracks

    def _process(self, place: tuple[Any, ...]) -> int:
        """The track of a program on a host, or of a path.

        Process numbers are the trace's own, since hosts have the same ones.
        """
        key = ("process", *place[:3])
        if key not in self._tracks:
            packet, uuid = self._track(key)
            process = packet.track_descriptor.process
            process.pid = self._number(("pid",), key)
            if place[0] == "path":
                process.process_name = "paths"
            else:
                # Other tools' events may have no process of their own.
                number = "" if place[2] is None else f" ({place[2]})"
                process.process_name = f"{place[0]}/{place[1]}{number}"
            self._trace.write_packet(packet)
            return uuid
        return self._tracks[key]

    def _thread(self, place: tuple[Any, ...]) -> int:
        key = ("thread", *place)
        if key not in self._tracks:
            self._process(place)
            packet, uuid = self._track(key)
            thread = packet.track_descriptor.thread
            thread.pid = self._number(("pid",), ("process", *place[:3]))
            thread.tid = self._number(("tid",), key)
            thread.thread_name = place[1] if place[3] is None else f"{place[1]} {place[3]}"
            self._trace.write_packet(packet)
            return uuid
        return self._tracks[key]

    def _lane(self, place: tuple[Any, ...], name: str, lane: int) -> int:
        """For slices that overlap those on other lanes of the same name."""
        key = ("lane", *place, name, lane)
        if key not in self._tracks:
            parent = self._process(place) if place[0] == "path" else self._thread(place)
            packet, uuid = self._track(key)
            packet.track_descriptor.parent_uuid = parent
            packet.track_descriptor.name = name
            self._trace.write_packet(packet)
            return uuid
        return self._tracks[key]

    def _counter(self, entity: str, place: tuple[Any, ...], ts: int, value: int) -> None:
        key = ("counter", *place[:3], entity)
        if key not in self._tracks:
            parent = self._process(place)
            packet, _ = self._track(key)
            packet.track_descriptor.parent_uuid = parent
            packet.track_descriptor.name = entity
            packet.track_descriptor.counter.SetInParent()
            self._trace.write_packet(packet)
        packet = self._event(self._types.TYPE_COUNTER, self._tracks[key], ts)
        packet.track_event.counter_value = value
        self._trace.write_packet(packet)

    def _track(self, key: tuple[Any, ...]) -> tuple[Any, int]:
        uuid = self._tracks[key] = len(self._tracks) + 1
        packet = self._packet()
        packet.track_descriptor.uuid = uuid
        return packet, uuid

    def _number(self, kind: tuple[str], key: tuple[Any, ...]) -> int:
        return self._numbers.setdefault(kind + key, len(self._numbers) + 1)

    # Events

    def _instant(
        self,
        name: str,
        track: int,
        ts: int,
        row: Mapping[str, Any],
        leaves: Sequence[int],
        ends: Sequence[int],
    ) -> None:
        packet = self._event(self._types.TYPE_INSTANT, track, ts, name, row)
        packet.track_event.flow_ids.extend(leaves)
        packet.track_event.terminating_flow_ids.extend(ends)
        self._trace.write_packet(packet)

    def _slice(self, name: str, track: int, start: int, end: int, row: Mapping[str, Any]) -> None:
        self._begin(name, track, start, row)
        self._end(track, end)

    def _begin(self, name: str, track: int, ts: int, row: Mapping[str, Any]) -> None:
        self._trace.write_packet(self._event(self._types.TYPE_SLICE_BEGIN, track, ts, name, row))

    def _end(self, track: int, ts: int) -> None:
        packet = self._event(self._types.TYPE_SLICE_END, track, ts)
        self._trace.write_packet(packet)

    def _event(
        self,
        kind: int,
        track: int,
        ts: int,
        name: str = "",
        row: Mapping[str, Any] | None = None,
    ) -> Any:
        self._count += 1
        packet = self._packet()
        packet.timestamp = ts
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        if name:
            event.name = name
        for field, value in (row or {}).items():
            if value is not None:
                _annotate(event.debug_annotations.add(name=field), value)
        return packet

    def _packet(self) -> Any:
        packet = self._trace.create_packet()
        packet.trusted_packet_sequence_id = 1
        if not self._begun:
            packet.sequence_flags = packet.SEQ_INCREMENTAL_STATE_CLEARED
            self._begun = True
        return packet


class _Lanes:
    """Puts slices side by side that overlap. They come in the order of their ends or begins."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []
        self._used = 0

    def of(self, start: int, end: int) -> int:
        """The lane of a slice."""
        if self._free and self._free[0][0] <= start:
            _, lane = heapq.heappop(self._free)
        else:
            lane, self._used = self._used, self._used + 1
        heapq.heappush(self._free, (end, lane))
        return lane


class _Flows:
    """The flows of an event: those of the messages whose path, a list, it is on."""

    def __init__(self, paths: Sequence[MessagePath]) -> None:
        self._at: dict[tuple[str, str], list[tuple[int, str, bool]]] = {}
        for number, path in enumerate(paths):
            for event in path.events if not path.edges else ():
                last = event == path.events[-1]
                of_event = self._at.setdefault((event.entity, event.component), [])
                of_event.append((number, path.key, last))

    def of(self, entity: str, process: str, row: Mapping[str, Any]) -> tuple[list[int], list[int]]:
        """Flows that go on, and those that end here."""
        leaves: list[int] = []
        ends: list[int] = []
        for number, key, last in self._at.get((entity, process), ()):
            message = _number([row.get(field) for field in fields_of(key)])
            if message is not None:
                flow = _first_flow(number) | message & (1 << 56) - 1
                (ends if last else leaves).append(flow)
        return leaves, ends


def _number(key: Sequence[Any]) -> int | None:
    """A number for a message's key; None where a field of it has no value."""
    if None in key:
        return None
    if len(key) == 1 and isinstance(key[0], int):
        return key[0]
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=7).digest(), "big")


def _first_flow(path: int) -> int:
    """The first flow number of a path; the numbers of no two paths meet."""
    return (path + 1) << 56


def _kinds(run: Run, name: str) -> set[str]:
    """The kinds of the call sites of an entity."""
    entities = run.entities
    chosen = entities.filter(entities.entity == name.replace(".", ":", 1))
    return set(chosen.kind.to_pyarrow().to_pylist()) or {"event"}


def _annotate(annotation: Any, value: Any) -> None:
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int) and _LEAST <= value <= _MOST:
        annotation.int_value = value
    elif isinstance(value, int):
        annotation.uint_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    elif isinstance(value, bytes):
        annotation.string_value = value.hex()
    else:
        annotation.string_value = str(value)
