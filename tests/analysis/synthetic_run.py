"""Writes run directories as `schema/run-directory.md` describes them, from plain Python."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from loopscope.analysis import Results, analyse, write_path_tables
from loopscope.analysis.results import LoopResult
from loopscope.experiment import (
    ClockExchange,
    Clocks,
    Emulation,
    Expectation,
    Experiment,
    Hop,
    MessagePath,
    Network,
    PathEvent,
    Pattern,
    Phase,
    Point,
    Value,
)
from loopscope.timeline import Run

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Row:
    """One event on the time line."""

    component: str
    entity: str
    id: int
    ts: int
    err: int = 0
    host: str = "h1"
    repeat: int = 1
    fields: tuple[tuple[str, Any], ...] = ()
    """Fields of its own, with the same names and types in every row of the entity."""
    thread: int = 1


@dataclass(frozen=True)
class Host:
    name: str
    reference: bool = False
    max_err_ns: int = 1000
    drift_ppm: float | None = 1.0
    event_cost_ns: tuple[float, float] | None = None
    """And its spread."""
    rejected: int = 0
    apart_ns: int | None = None


@dataclass(frozen=True)
class ClockReading:
    """A reading of a host's CLOCK_REALTIME.

    `offset` is of the reference's, with its maximum error; None: not known.
    """

    host: str
    ts: int
    offset: tuple[int, int] | None
    repeat: int = 1
    clock: str = "realtime"


@dataclass(frozen=True)
class ClockStep:
    """Something that happened to a clock."""

    host: str
    clock: str = "realtime"
    kind: str = "set"
    at: tuple[int | None, int | None] = (SECOND, SECOND)
    ns: tuple[int, int] | None = None
    what: str = "it was set"
    repeat: int = 1


@dataclass
class SyntheticRun:
    root: Path
    rows: Sequence[Row]
    hosts: Sequence[Host] = (Host("h1", reference=True, max_err_ns=0, drift_ppm=0.0), Host("h2"))
    paths: Sequence[MessagePath] = ()
    expect: Sequence[Expectation] = ()
    values: Sequence[Value] = ()
    components: Iterable[str] = ()
    """Components that give an account of loss though they may have no event."""
    drops: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """`ring-full` drops by component and entity, in the first repeat."""
    torn: Mapping[str, int] = field(default_factory=dict)
    unaccounted: Iterable[str] = ()
    """Components whose account is left out."""
    repeats: int = 1
    subtract_cost: bool = False
    patterns: Sequence[Pattern] = ()
    readings: Sequence[ClockReading] = ()
    clock_steps: Sequence[ClockStep] = ()
    loops: Sequence[LoopResult] = ()
    point: str = "base"
    """Of a sweep; `write_sweep` makes the whole of several."""
    emulation: Emulation | None = None

    def write(self) -> Path:
        for repeat in range(1, self.repeats + 1):
            rows = [row for row in self.rows if row.repeat == repeat]
            directory = self.root / self.point / str(repeat)
            self._timeline(directory, rows)
            self._tables(directory, rows)
            self._clocks(directory, repeat)
            self._hosts(directory, rows, first=repeat == 1)
        manifest = {"version": 1, "experiment": self.experiment().to_manifest()}
        (self.root / "manifest.json").write_text(json.dumps(manifest))
        return self.root

    def experiment(self) -> Experiment:
        return Experiment(
            name="synthetic",
            description="",
            testbed="local",
            hosts=tuple(host.name for host in self.hosts),
            clocks=Clocks("plain", None),
            clock=ClockExchange("clock", 100.0, 100, None, 30 * SECOND, 1.0, True),
            network=Network("10.77.0.0/24", "10.78.0.0/24", None, self.emulation),
            params={},
            components=(),
            phases=(Phase("run", SECOND, True, ()),),
            trace=("*",),
            paths=tuple(self.paths),
            expectations=tuple(self.expect),
            repeat=self.repeats,
            subtract_cost=self.subtract_cost,
            patterns=tuple(self.patterns),
            values=tuple(self.values),
        )

    def _timeline(self, directory: Path, rows: Sequence[Row]) -> None:
        tables = defaultdict(list)
        for row in rows:
            tables[row.entity].append(row)
        text = pa.dictionary(pa.int32(), pa.string())
        for entity, of_entity in tables.items():
            of_entity.sort(key=lambda row: row.ts)
            n = len(of_entity)
            group, name = entity.split(":")
            own = [dict(row.fields) for row in of_entity]
            table = pa.table(
                {
                    "ts": pa.array([row.ts for row in of_entity], pa.int64()),
                    "err_ns": pa.array([row.err for row in of_entity], pa.int64()),
                    "counter": pa.array([abs(row.ts) for row in of_entity], pa.uint64()),
                    "host": pa.array([row.host for row in of_entity], text),
                    "process": pa.array([row.component for row in of_entity], text),
                    "pid": pa.array([1] * n, pa.uint32()),
                    "tid": pa.array([row.thread for row in of_entity], pa.uint32()),
                    "cpu": pa.array([None] * n, pa.uint16()),
                    "id": pa.array([row.id for row in of_entity], pa.int64()),
                    "seq": pa.array([row.id for row in of_entity], pa.uint32()),
                    "size": pa.array([0.5] * n, pa.float64()),
                    **{key: own_column([each[key] for each in own]) for key in own[0]},
                }
            )
            folder = directory / "timeline" / group / name
            folder.mkdir(parents=True)
            pq.write_table(table, folder / "part-0.parquet")

    def _tables(self, directory: Path, rows: Sequence[Row]) -> None:
        (directory / "tables").mkdir(parents=True)
        hosts = {
            "host": [host.name for host in self.hosts],
            "reference": [host.reference for host in self.hosts],
            "max_err_ns": pa.array([host.max_err_ns for host in self.hosts], pa.int64()),
            "drift_ppm": pa.array([host.drift_ppm for host in self.hosts], pa.float64()),
            "exchanges": pa.array([100 for _ in self.hosts], pa.int64()),
            "rejected": pa.array([host.rejected for host in self.hosts], pa.int64()),
        }
        if any(host.event_cost_ns for host in self.hosts):
            costs = [host.event_cost_ns or (None, None) for host in self.hosts]
            hosts["event_cost_ns"] = pa.array([cost for cost, _ in costs], pa.float64())
            hosts["event_cost_err_ns"] = pa.array([spread for _, spread in costs], pa.float64())
        if any(host.apart_ns is not None for host in self.hosts):
            hosts["apart_ns"] = pa.array([host.apart_ns for host in self.hosts], pa.int64())
        pq.write_table(pa.table(hosts), directory / "tables" / "hosts.parquet")
        start = min((row.ts for row in rows), default=0)
        end = max((row.ts for row in rows), default=0)
        knots = []
        for index, host in enumerate(self.hosts):
            chance = random.Random(index)
            offset, rate = 0.0, 0.0 if host.reference else chance.uniform(-20, 20)
            count = 1 if host.reference else 60
            for knot in range(count):
                ts = start + (end - start) * knot // 59
                last = knot == count - 1
                knots.append((host.name, ts, offset, None if last else rate, host.max_err_ns))
                offset += rate * 1e-6 * (end - start) / 59 + chance.gauss(0, 50)
                rate += chance.gauss(0, 0.02)
        columns = list(zip(*knots, strict=False))
        clock = {
            "host": columns[0],
            "counter": pa.array([abs(ts) for ts in columns[1]], pa.uint64()),
            "ts": pa.array(columns[1], pa.int64()),
            "offset_ns": pa.array(columns[2], pa.float64()),
            "rate_ppm": pa.array(columns[3], pa.float64()),
            "err_ns": pa.array(columns[4], pa.int64()),
            "calibrated_ns": pa.array([err // 3 for err in columns[4]], pa.int64()),
            "epoch": pa.array([0] * len(knots), pa.uint32()),
        }
        pq.write_table(pa.table(clock), directory / "tables" / "clock.parquet")
        events = Counter(row.entity for row in rows)
        summary = {"events": events, "problems": [], "foreign": []}
        (directory / "tables" / "summary.json").write_text(json.dumps(summary))

    def _clocks(self, directory: Path, repeat: int) -> None:
        readings = [each for each in self.readings if each.repeat == repeat]
        offsets = [each.offset or (None, None) for each in readings]
        text, integer = pa.string(), pa.int64()
        foreign = {
            "host": pa.array([each.host for each in readings], text),
            "clock": pa.array([each.clock for each in readings], text),
            "ts": pa.array([each.ts for each in readings], integer),
            "err_ns": pa.array([100 for _ in readings], integer),
            "gained_ns": pa.array([0 for _ in readings], integer),
            "gained_err_ns": pa.array([100 for _ in readings], integer),
            "offset_ns": pa.array([offset for offset, _ in offsets], integer),
            "offset_err_ns": pa.array([err for _, err in offsets], integer),
        }
        pq.write_table(pa.table(foreign), directory / "tables" / "foreign_clocks.parquet")
        steps = [each for each in self.clock_steps if each.repeat == repeat]
        sizes = [each.ns or (None, None) for each in steps]
        events = {
            "host": pa.array([each.host for each in steps], text),
            "clock": pa.array([each.clock for each in steps], text),
            "kind": pa.array([each.kind for each in steps], text),
            "from_ts": pa.array([each.at[0] for each in steps], integer),
            "until_ts": pa.array([each.at[1] for each in steps], integer),
            "least_ns": pa.array([least for least, _ in sizes], integer),
            "most_ns": pa.array([most for _, most in sizes], integer),
            "what": pa.array([each.what for each in steps], text),
        }
        pq.write_table(pa.table(events), directory / "tables" / "clock_events.parquet")
        loops = [each.to_dict() for each in self.loops if each.repeat == repeat]
        columns = [each for each in fields(LoopResult) if each.name != "repeat"]
        of_loops = {
            each.name: pa.array(
                [loop[each.name] for loop in loops], text if "str" in str(each.type) else integer
            )
            for each in columns
        }
        pq.write_table(pa.table(of_loops), directory / "tables" / "loop_residuals.parquet")

    def _hosts(self, directory: Path, rows: Sequence[Row], first: bool) -> None:
        recorded = Counter((row.host, row.component) for row in rows)
        for component in self.components:
            if not any(process == component for _, process in recorded):
                recorded[self.hosts[0].name, component] = 0
        for host in self.hosts:
            folder = directory / "hosts" / host.name
            folder.mkdir(parents=True)
            environment = {
                "kernel": "6.18.0",
                "clocksource": "tsc",
                "binaries": {"source": f"sha256:{host.name}"},
                "counter": {"kind": "tsc", "frequency_hz": 2_400_000_000},
            }
            (folder / "env.json").write_text(json.dumps(environment))
            processes = []
            for (where, component), n in sorted(recorded.items()):
                if where != host.name or component in self.unaccounted:
                    continue
                torn = self.torn.get(component, 0) if first else 0
                sites = [
                    {"entity": entity, "file": "x.c", "line": 1, "dropped": {"ring-full": k}}
                    for (process, entity), k in self.drops.items()
                    if first and process == component
                ]
                dropped = torn + sum(site["dropped"]["ring-full"] for site in sites)
                account = {"process": component, "pid": 1, "torn": torn, "sites": sites}
                account |= {"emitted": n + dropped, "recorded": n, "dropped": dropped}
                processes.append(account)
            keys = ("emitted", "recorded", "dropped", "torn")
            totals = {key: sum(each[key] for each in processes) for key in keys}
            document = {"version": 1, **totals, "processes": processes}
            (folder / "loss.json").write_text(json.dumps(document))


def own_column(values: Sequence[Any]) -> pa.Array:
    """Whole numbers with a sign where they fit, other values as they are."""
    some = [value for value in values if value is not None]
    if any(isinstance(value, int) for value in some) or not some:
        large = any(value > (1 << 63) - 1 for value in some)
        return pa.array(values, pa.uint64() if large else pa.int64())
    return pa.array(values)


PIPELINE = (
    ("source", "pipe:sent", "h1"),
    ("node1", "pipe:received", "h2"),
    ("node1", "pipe:sent", "h2"),
    ("node2", "pipe:received", "h3"),
    ("node2", "pipe:sent", "h3"),
    ("sink", "pipe:received", "h1"),
)


def event(component: str, group: str, name: str) -> PathEvent:
    return PathEvent(component, "h1", group, name)


def path(name: str, key: str, events: Iterable[PathEvent]) -> MessagePath:
    return MessagePath(name, key, tuple(events))


def expectation(
    text: str, stat: str, op: str, value: int, hop: int | None = None, is_time: bool = True
) -> Expectation:
    """An expectation of the path `loop`; `hop` counts neighbouring events from 0."""
    between = None if hop is None else Hop(hop, hop + 1)
    return Expectation(text, "loop", between, stat, op, value, is_time)


def pipeline(
    root: Path,
    messages: int = 200,
    repeats: int = 1,
    lose_every: int = 0,
    seed: int = 1,
    **more: Any,
) -> SyntheticRun:
    """A three-hop control loop with a few slow messages, as a whole run."""
    chance = random.Random(seed)
    errors = {"h1": 0, "h2": 900, "h3": 1400}
    rows = []
    for repeat in range(1, repeats + 1):
        for message in range(messages):
            ts = 5 * SECOND + message * 2_000_000
            lost_at = 3 if lose_every and message % lose_every == 1 else len(PIPELINE)
            for component, entity, host in PIPELINE[:lost_at]:
                rows.append(Row(component, entity, message, ts, errors[host], host, repeat))
                ts += int(chance.lognormvariate(10.6, 0.15))
                ts += 3_000_000 if chance.random() < 0.001 else 0
    hosts = [
        Host("h1", reference=True, max_err_ns=0, drift_ppm=0.0),
        Host("h2", max_err_ns=900, drift_ppm=0.05),
        Host("h3", max_err_ns=1400, drift_ppm=0.08),
    ]
    expect = [
        expectation("loop.lost == 0", "lost", "==", 0, is_time=False),
        expectation("loop.p99 < 5ms", "p99", "<", 5_000_000),
    ]
    events = [event(component, *entity.split(":")) for component, entity, _ in PIPELINE]
    given: dict[str, Any] = {"paths": [path("loop", "id", events)], "expect": expect} | more
    return SyntheticRun(root, rows, hosts, repeats=repeats, **given)


def write_sweep(
    points: Sequence[tuple[dict[str, Any], SyntheticRun]], failed: Mapping[str, str], **whole: Any
) -> Path:
    """A sweep of runs that share their root.

    `failed` are points with a reason, `whole` the keys of the experiment as a whole, such as its
    figures.
    """
    made, said = [], {}
    for params, run in points:
        name = ",".join(f"{key}={value}" for key, value in params.items())
        run.point = name
        made.append(Point(name, params, dataclasses.replace(run.experiment(), params=params)))
        said[name] = {"status": "failed", "error": failed[name]} if name in failed else {}
        if name not in failed:
            run.write()
            said[name] = {"status": "complete"}
    root = points[0][1].root
    experiment = dataclasses.replace(made[0].experiment, points=tuple(made), **whole)
    manifest = {"version": 1, "experiment": experiment.to_manifest(), "points": said}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


def with_tables(run: Run, *what: Any) -> Results:
    """What is found in a run, whose path tables are written; `what` as for `analyse`."""
    results = analyse(run, *what)
    write_path_tables(run, results)
    return results
