"""Paths that branch, join, renumber and sample, against a simulation in plain Python.

The simulation plays random graphs event by event: what a sampler holds is a variable that arrivals
overwrite. What became of each message is then asked message by message, without an array.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from synthetic_run import SECOND, Host, Row, SyntheticRun, with_tables
from test_statistic import plain

from loopscope.experiment import MessagePath, PathEvent
from loopscope.experiment.path_dag import Join, Step, graph
from loopscope.timeline import open_run

LOST, UNUSED, SUPERSEDED, UNDECIDED, USED = range(5)
DRIFT = {"h1": 0.0, "h2": 4.9e5, "h3": None}
APART = {"h1": 2, "h2": 0, "h3": 1}
"""What the counters of two processors are apart, ns."""
HOSTS = [Host(n, n == "h1", 9, drift, apart_ns=APART[n]) for n, drift in DRIFT.items()]


@dataclass(eq=False)
class Message:
    number: int
    ts: int
    err: int
    sure: dict[int, list[Message]] = field(default_factory=dict)
    """By input, what it surely was made of, and what it may have been."""
    possible: dict[int, list[Message]] = field(default_factory=dict)
    fields: dict[str, int] = field(default_factory=dict)
    times: int = 1


@dataclass
class Node:
    kind: str
    host: str
    inputs: list[int]
    window: int = 0
    messages: list[Message] = field(default_factory=list)

    @property
    def in_time(self) -> list[Message]:
        return sorted(self.messages, key=lambda each: (each.ts, each.number))


class Simulation:
    """One repeat of a random graph; the graph itself depends on the seed alone."""

    def __init__(self, seed: int, repeat: int, doubt: bool) -> None:
        shape, self.chance = random.Random(seed), random.Random(f"{seed} {repeat}")
        self.doubt = doubt
        self.nodes = [Node("source", shape.choice(["h2", "h3"]), [])]
        self.nodes += [Node("source", self.nodes[0].host, [])] if shape.random() < 0.3 else []
        for _ in range(shape.randint(2, 6)):
            self._grow(shape)
        if len(self.nodes[1].inputs) == 0 and not any(
            {0, 1} <= {*self._roots(i)} for i in range(len(self.nodes))
        ):
            # Two sources that nothing joins would be two paths.
            self.nodes.append(Node("latest", self.nodes[0].host, [0, 1]))
        self.events = [f"c{i}/g:n{i}" for i in range(len(self.nodes))]
        for index, node in enumerate(self.nodes):
            getattr(self, f"_{node.kind}")(index, node)

    def _roots(self, index: int) -> set[int]:
        node = self.nodes[index]
        return set().union(*map(self._roots, node.inputs)) if node.inputs else {index}

    def _grow(self, shape: random.Random) -> None:
        kind = shape.choice(["follow", "follow", "renumber", "latest", "named", "window", "every"])
        source = shape.randrange(len(self.nodes))
        if kind in ("follow", "renumber"):
            self.nodes.append(Node(kind, shape.choice(list(DRIFT)), [source]))
            return
        host = self.nodes[source].host
        beside = [i for i, each in enumerate(self.nodes) if each.host == host]
        inputs = sorted({source, shape.choice(beside)})
        self.nodes.append(Node(kind, host, inputs, window=shape.choice([35, 90]) * 10))

    def _err(self) -> int:
        return self.chance.randint(0, 60) if self.doubt else 0

    def _ts(self, ts: int) -> int:
        """No two stamps are alike, unless doubt is wanted."""
        return ts if self.doubt else ts * 1000 + self.chance.randrange(1000)

    def _source(self, index: int, node: Node) -> None:
        for n in range(self.chance.randint(0, 20)):
            ts = self._ts(1000 + 330 * n + self.chance.randint(0, 150))
            node.messages.append(Message(100 * index + n, ts, self._err()))

    def _follow(self, index: int, node: Node) -> None:
        for each in self.nodes[node.inputs[0]].messages:
            if self.chance.random() < 0.8:
                # Up to two periods: messages overtake each other.
                ts = each.ts + self._ts(self.chance.randint(1, 700))
                made = Message(each.number, ts, self._err(), {node.inputs[0]: [each]})
                made.times += self.chance.random() < 0.1
                node.messages.append(made)

    def _renumber(self, index: int, node: Node) -> None:
        numbers = self.chance.sample(range(1000), 200)
        for each in self.nodes[node.inputs[0]].messages:
            for _ in range(self.chance.choice([0, 1, 1, 1, 2])):
                ts = each.ts + self._ts(self.chance.randint(1, 90))
                made = Message(numbers.pop(), ts, self._err(), {node.inputs[0]: [each]})
                made.fields[f"of{node.inputs[0]}"] = each.number
                node.messages.append(made)

    def _ticks(self, node: Node) -> None:
        start = self.chance.randint(0, 3000)
        for n in range(self.chance.randint(1, 40)):
            node.messages.append(Message(n, self._ts(start + 210 * n), self._err()))
        node.messages = [tick for tick in node.messages if self.chance.random() < 0.95]
        # Without a number of their own they are numbered by time.
        for n, tick in enumerate(node.in_time):
            tick.number = n

    def _latest(self, index: int, node: Node) -> None:
        self._ticks(node)
        for source in node.inputs:
            arrivals = [(each.ts, 0, each.number, each) for each in self.nodes[source].messages]
            ticks = [(each.ts, 1, each.number, each) for each in node.messages]
            held: Message | None = None
            for _, what, _, each in sorted(arrivals + ticks, key=lambda event: event[:3]):
                if what == 0:
                    held = each
                else:
                    each.sure[source] = [] if held is None else [held]
        if self.doubt:
            self._doubt(node)

    def _named(self, index: int, node: Node) -> None:
        """It says what it used, which need not be the latest."""
        self._ticks(node)
        for source in node.inputs:
            for tick in node.messages:
                come = [each for each in self.nodes[source].in_time if each.ts < tick.ts][-3:]
                tick.sure[source] = [self.chance.choice(come)] if come else []
                used = tick.sure[source][0].number if come else -1
                tick.fields[f"of{source}"] = used

    def _window(self, index: int, node: Node) -> None:
        self._ticks(node)
        long = node.window if self.doubt else node.window * 1000
        for source in node.inputs:
            for tick in node.messages:
                tick.sure[source] = [
                    each
                    for each in self.nodes[source].in_time
                    if tick.ts - long <= each.ts <= tick.ts
                ]
        if self.doubt:
            self._doubt(node, long)

    def _every(self, index: int, node: Node) -> None:
        by_number: dict[int, dict[int, Message]] = defaultdict(dict)
        for source in node.inputs:
            for each in self.nodes[source].messages:
                by_number[each.number][source] = each
        for number, found in by_number.items():
            if len(found) == len(node.inputs) and self.chance.random() < 0.9:
                ts = max(each.ts for each in found.values()) + self._ts(self.chance.randint(1, 50))
                sure = {source: [each] for source, each in found.items()}
                node.messages.append(Message(number, ts, self._err(), sure))

    def _width(self, node: Node, source: int, err: int, at: int, distance: int | None) -> int:
        """Distance to an instant at which the order of an arrival and that instant is open.

        At a distance, the order of the arrival and its beginning is open.
        """
        drift, least = DRIFT[node.host], APART[node.host] + 1
        arrivals = self.nodes[source].in_time
        before = [each for each in arrivals if each.ts <= at][-1:]
        after = [each for each in arrivals if each.ts > at][:1]
        around = max((each.err for each in before + after), default=0)
        if drift is None:
            return err + around
        if distance is not None:
            return min(err + around, math.ceil(2 * Fraction(drift) / 10**6 * distance) + least)
        apart = 0
        while apart + 1 <= math.ceil(2 * Fraction(drift) / 10**6 * (apart + 1)) + least:
            apart += 1
        return min(err + around, apart)

    def tied(self, node: Node, source: int, message: Message) -> int:
        return self._width(node, source, message.err, message.ts, None)

    def _doubt(self, node: Node, long: int | None = None) -> None:
        """What the maximum errors leave open, from their definition."""
        for source in node.inputs:
            arrivals = self.nodes[source].in_time
            for tick in node.messages:
                w = self._width(node, source, tick.err, tick.ts, None)
                if long is None:
                    surely = [each for each in arrivals if each.ts < tick.ts - w]
                    perhaps = [each for each in arrivals if tick.ts - w <= each.ts <= tick.ts + w]
                    if surely:
                        newest = surely[-1]
                        from_ = newest.ts - self.tied(node, source, newest)
                        surely = [each for each in surely if each.ts >= from_]
                    tick.possible[source] = surely + perhaps
                    tick.sure[source] = surely if len(surely) == 1 and not perhaps else []
                else:
                    begin = tick.ts - long
                    v = self._width(node, source, tick.err, begin, long)
                    tick.sure[source] = [
                        each for each in arrivals if begin + v < each.ts < tick.ts - w
                    ]
                    tick.possible[source] = [
                        each for each in arrivals if begin - v <= each.ts <= tick.ts + w
                    ]

    def steps(self) -> list[Step]:
        found = []
        for index, node in enumerate(self.nodes):
            event = self.events[index]
            inputs = [self.events[i] for i in node.inputs]
            by_number = ("follow", "renumber", "named", "every")
            asked = any(index in each.inputs and each.kind in by_number for each in self.nodes)
            key = "number" if asked or node.kind in ("source", "renumber", "every") else None
            if node.kind == "source":
                found.append(Step(event, key, source=True))
            elif node.kind == "follow":
                found.append(Step(event, after=inputs[0], field="number"))
            elif node.kind == "renumber":
                of = f"of{node.inputs[0]}"
                found.append(Step(event, key, field=of, after=inputs[0]))
            else:
                use = "latest" if node.kind == "named" else node.kind
                long = node.window * (1 if self.doubt else 1000) if use == "window" else None
                joins = {
                    each: Join(
                        use,
                        f"of{i}" if node.kind == "named" else "number" if use == "every" else None,
                        long,
                    )
                    for i, each in zip(node.inputs, inputs, strict=True)
                }
                found.append(Step(event, key, joins=joins))
        return found

    def rows(self, repeat: int) -> list[Row]:
        made = []
        for index, node in enumerate(self.nodes):
            for each in node.messages:
                fields = {"number": each.number, **each.fields}
                for n in range(each.times):
                    row = Row(
                        f"c{index}",
                        f"g:n{index}",
                        7,
                        5 * SECOND + each.ts + 1700 * n,
                        each.err,
                        node.host,
                        repeat,
                        tuple(sorted(fields.items())),
                    )
                    made.append(row)
        return made


def possible(message: Message, source: int) -> list[Message]:
    return message.possible.get(source, message.sure.get(source, []))


class Towards:
    """What became of messages as far as one event."""

    def __init__(self, simulation: Simulation, end: int) -> None:
        self.simulation, self.nodes, self.end = simulation, simulation.nodes, end
        self.leads = {end}
        for index in reversed(range(end)):
            if any(index in self.nodes[later].inputs for later in self.leads):
                self.leads.add(index)
        self.known: dict[int, int] = {}

    def users(self, index: int, message: Message, later: int, how) -> list[Message]:
        return [each for each in self.nodes[later].messages if message in how(each, index)]

    def fate(self, index: int, message: Message) -> int:
        if index == self.end:
            return USED
        if id(message) not in self.known:
            ways = [i for i in self.leads if index in self.nodes[i].inputs]
            self.known[id(message)] = max(self._over(index, message, later) for later in ways)
        return self.known[id(message)]

    def _over(self, index: int, message: Message, later: int) -> int:
        surely = self.users(index, message, later, lambda each, source: each.sure[source])
        perhaps = self.users(index, message, later, possible)
        reached = [self.fate(later, each) for each in surely]
        if any(self.fate(later, each) >= UNDECIDED for each in perhaps):
            reached.append(UNDECIDED)
        if surely:
            return max(reached)
        if perhaps:
            return UNDECIDED
        if self.nodes[later].kind in ("follow", "renumber"):
            return LOST
        every = self.nodes[index].in_time
        used = [m for m in every if self.users(index, m, later, lambda each, s: each.sure[s])]
        maybe = [m for m in every if self.users(index, m, later, possible)]
        node = self.nodes[later]
        if used and message.ts < used[-1].ts - self.simulation.tied(node, index, used[-1]):
            return SUPERSEDED
        bounds = (m.ts + self.simulation.tied(node, index, m) for m in (*used[-1:], *maybe[-1:]))
        return UNDECIDED if any(message.ts <= bound for bound in bounds) else UNUSED

    def uses(self, index: int, message: Message, how) -> list[Message]:
        """The messages at the end that it went into."""
        if index == self.end:
            return [message]
        return [
            use
            for later in self.leads
            if index in self.nodes[later].inputs
            for each in self.users(index, message, later, how)
            for use in self.uses(later, each, how)
        ]


def surely(message: Message, source: int) -> list[Message]:
    return message.sure[source]


def origins(simulation: Simulation, index: int, message: Message, start: int):
    """Messages at an earlier event that it was made of, and whether that is open."""
    if index == start:
        return [message], False
    found, doubt = [], False
    for source in simulation.nodes[index].inputs:
        if start not in leading(simulation, source):
            continue
        doubt |= message.sure[source] != possible(message, source)
        for each in message.sure[source]:
            further, open_ = origins(simulation, source, each, start)
            found += further
            doubt |= open_
    return found, doubt


def leading(simulation: Simulation, index: int) -> set[int]:
    found = {index}
    for source in simulation.nodes[index].inputs:
        found |= leading(simulation, source)
    return found


def width(nodes, start: int, a: Message, end: int, b: Message) -> int:
    drift = DRIFT[nodes[start].host]
    stamps = a.err + b.err
    if nodes[start].host != nodes[end].host or drift is None:
        return stamps
    wander = math.ceil(2 * Fraction(drift) / 10**6 * abs(b.ts - a.ts))
    return min(stamps, wander + APART[nodes[start].host] + 1)


JOINS = ("latest", "named", "window", "every")


def leads(nodes, start: int, end: int) -> bool:
    return start == end or any(leads(nodes, start, i) for i in nodes[end].inputs)


def kinds(nodes, start: int, end: int) -> set[str]:
    """The kinds of the nodes behind the start, up to the end."""
    if start == end:
        return set()
    ways = [i for i in nodes[end].inputs if leads(nodes, start, i)]
    return {nodes[end].kind}.union(*(kinds(nodes, start, i) for i in ways))


def compare(flow, simulations: list[Simulation], start: int, end: int) -> None:
    """Counts and times of a part, of all repeats."""
    fates, lengths, ages = [0] * 5, [], []
    empty = undecided = again = 0
    for each in simulations:
        towards = Towards(each, end)
        for message in each.nodes[start].messages:
            fates[towards.fate(start, message)] += 1
            uses = towards.uses(start, message, surely)
            if uses:
                first = min(uses, key=lambda use: (use.ts, use.number))
                earliest = min(use.ts for use in towards.uses(start, message, possible))
                err = width(each.nodes, start, message, end, first) + first.ts - earliest
                lengths.append((first.ts - message.ts, err))
        for use in each.nodes[end].messages:
            found, open_ = origins(each, end, use, start)
            undecided += open_
            empty += not found and not open_
            if found and not open_:
                oldest = min(found, key=lambda m: (m.ts, m.number))
                age = use.ts - oldest.ts
                ages.append((age, width(each.nodes, start, oldest, end, use)))
                again += use.times - 1
    got = (flow.lost, flow.unused, flow.superseded, flow.undecided, flow.used)
    assert got == tuple(fates)
    assert flow.sent == sum(got) == sum(len(each.nodes[start].messages) for each in simulations)
    assert flow.received == flow.sent - flow.lost
    assert (flow.empty, flow.duplicates) == (empty, again)
    hidden = fates[UNDECIDED]
    for stat in ("min", "p50", "p99", "max"):
        assert flow.times[stat] == (plain(stat, [x for x, _ in lengths]) if lengths else None)
    assert flow.err_ns == max((e for _, e in lengths), default=None)
    if not kinds(simulations[0].nodes, start, end) & {*JOINS}:
        # What nobody uses has no age at its use.
        assert flow.age_ns is None
        return
    assert flow.age_ns == max((x for x, _ in ages), default=None)
    if ages and not undecided:
        top = max(x for x, _ in ages)
        highest, lowest = max(x + e for x, e in ages), max(x - e for x, e in ages)
        assert flow.age_err_ns == max(highest - top, top - lowest)
    elif ages:
        assert flow.age_err_ns is None and hidden >= 0


def made_path(simulation: Simulation) -> tuple[MessagePath, list[int]]:
    made, mistakes = graph(simulation.steps(), "number", {})
    assert not mistakes, mistakes
    events = tuple(
        PathEvent(
            component, simulation.nodes[int(component[1:])].host, "g", component.replace("c", "n")
        )
        for component in (event.partition("/")[0] for event in made.events)
    )
    place = [simulation.events.index(event) for event in made.events]
    return (
        MessagePath("way", "number", events, keys=tuple(made.keys), edges=tuple(made.edges)),
        place,
    )


def recorded(folder: Path, simulations: list[Simulation], path: MessagePath, **more) -> tuple:
    rows = [row for i, each in enumerate(simulations) for row in each.rows(i + 1)]
    components = [event.component for event in path.events]
    made = SyntheticRun(
        folder, rows, HOSTS, components=components, repeats=len(simulations), **more
    )
    run = open_run(made.write())
    return run, made


@pytest.mark.parametrize("doubt", [False, True], ids=["exact", "doubtful"])
@pytest.mark.parametrize("seed", range(12))
def test_a_random_graph_is_what_was_simulated(tmp_path: Path, seed: int, doubt: bool) -> None:
    simulations = [Simulation(seed, repeat, doubt) for repeat in (1, 2)]
    path, place = made_path(simulations[0])
    run, _ = recorded(tmp_path, simulations, path)
    [found] = with_tables(run, [path], []).graphs
    for flow, (start, end) in zip(found.edges, path.hops, strict=True):
        compare(flow, simulations, place[start], place[end])
    for flow, (start, end) in zip(found.ends, path.ends, strict=True):
        compare(flow, simulations, place[start], place[end])
    tables = [pq.read_table(file) for file in sorted(tmp_path.rglob("path-way.parquet"))]
    for simulation, table in zip(simulations, tables, strict=True):
        compare_rows(simulation, path, place, table.to_pylist())
    hops = run.hops.to_pyarrow().to_pylist()
    for number, (_, end) in enumerate(path.hops):
        reached = [row for row in hops if row["hop"] == number]
        assert all(row["duration"] >= 0 or doubt for row in reached)
        ids = {row["id"] for row in reached}
        assert ids <= {m.number for s in simulations for m in s.nodes[place[end]].messages}


def compare_rows(simulation: Simulation, path: MessagePath, place: list[int], rows) -> None:
    wanted = []
    for sink in path.sinks:
        for use in simulation.nodes[place[sink]].in_time:
            row = {"sink": str(path.events[sink]), f"key_{sink}": use.number}
            row[f"ts_{sink}"], row[f"err_{sink}"] = 5 * SECOND + use.ts, use.err
            sources, doubt = [], False
            for event in range(len(path.events)):
                if event == sink or event not in path.before(sink):
                    continue
                found, open_ = origins(simulation, place[sink], use, place[event])
                oldest = min(found, key=lambda m: (m.ts, m.number)) if found and not open_ else None
                row[f"key_{event}"] = oldest and oldest.number
                row[f"ts_{event}"] = oldest and 5 * SECOND + oldest.ts
                row[f"err_{event}"] = oldest and oldest.err
                if (event, sink) in path.ends:
                    doubt |= open_
                    sources += [(oldest.ts, event, oldest)] if oldest else []
            row["undecided"] = doubt
            row["age"] = row["latency"] = None
            if sources and not doubt:
                ts, source, oldest = min(sources, key=lambda each: each[:2])
                row["age"] = use.ts - ts
                towards = Towards(simulation, place[sink])
                uses = towards.uses(place[source], oldest, possible)
                if min(uses, key=lambda m: (m.ts, m.number)) is use:
                    row["latency"] = row["age"]
            wanted.append(row)
    assert len(rows) == len(wanted)
    for row, want in zip(rows, wanted, strict=True):
        assert {key: row[key] for key in want} == want
        others = {key for key in row if key.startswith(("key_", "ts_"))} - set(want)
        assert all(row[key] is None for key in others)
