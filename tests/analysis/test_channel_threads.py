"""How threads spend their time at channels, against schedules that are known."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import pytest
from synthetic_run import Row, SyntheticRun

from loopscope.analysis.channel_layers import measure_layer
from loopscope.analysis.channel_result import ThreadTimes
from loopscope.analysis.channel_threads import read_threads
from loopscope.experiment import LAYERS, Value
from loopscope.timeline import open_run

US = 1000
# The parts of a turn of a program: what it is in, the channel's event that says so, if one does.
PROGRAM = {
    "application": None,
    "runtime": None,
    "memory": "memory",
    "synchronisation": "synchronisation",
    "blocked": "get_wait",
    "put_wait": "put_wait",
}
RELAY = {
    "runtime": None,
    "memory": "memory",
    "synchronisation": "synchronisation",
    "blocked": "message_wait",
    "put_wait": "put_wait",
    "messaging": "message",
}


class Schedule:
    """What a thread did at channels `a` and `b`, in rows, and for how long it did it."""

    def __init__(self, draw: random.Random, component: str, thread: int, inside: bool) -> None:
        self._draw, self._component, self._thread, self._inside = draw, component, thread, inside
        self.rows: list[Row] = []
        self.spent: Counter[str] = Counter()
        self.at = draw.randrange(10**9, 2 * 10**9)

    def part(self, channel: str, kind: str, event: str | None) -> None:
        begin = self.at
        self.at += self._draw.randrange(1, 50 * US)
        self.spent[kind] += self.at - begin
        if event is not None:
            self.row(channel, event, begin, self.at)

    def row(self, channel: str, event: str, begin: int, end: int) -> None:
        if event in ("memory", "synchronisation"):
            channel += "_inside"
            if not self._inside:
                return
        fields = (("start", begin), ("duration", end - begin))
        self.rows.append(
            Row(self._component, f"{channel}:{event}", 0, end, thread=self._thread, fields=fields)
        )

    def waits(self, channel: str, event: str) -> None:
        """A wait in which it takes a lock, too, which is part of the wait."""
        begin = self.at
        self.part(channel, "blocked", None)
        if self._draw.random() < 0.5:
            before = self.at
            self.part(channel, "blocked", None)
            self.row(channel, "synchronisation", before, self.at)
        self.row(channel, event, begin, self.at)

    def messages(self, channel: str) -> None:
        """A message for which it takes a lock."""
        begin = self.at
        self.part(channel, "messaging", None)
        before = self.at
        self.part(channel, "messaging", None)
        self.spent["of messaging"] += self.at - before
        self.row(channel, "synchronisation", before, self.at)
        self.part(channel, "messaging", None)
        self.row(channel, "message", begin, self.at)

    def calls(self, count: int) -> None:
        """Calls of the library with whatever parts; between them the application works."""
        for number in range(count):
            if number:
                self.part("a", "application", None)
            channel, begin = self._draw.choice("ab"), self.at
            for kind in self._draw.choices(list(PROGRAM)[1:], k=self._draw.randrange(1, 6)):
                self.does(channel, kind, PROGRAM[kind])
            self.row(channel, "call", begin, self.at)

    def relays(self, channel: str, count: int) -> None:
        """A service's thread, whose first and last parts are recorded."""
        self.waits(channel, "message_wait")
        for kind in self._draw.choices(list(RELAY), k=count):
            self.does(channel, kind, RELAY[kind])
        self.waits(channel, "message_wait")

    def does(self, channel: str, kind: str, event: str | None) -> None:
        if kind == "messaging":
            self.messages(channel)
        elif event is not None and event.endswith("_wait"):
            self.waits(channel, event)
        else:
            self.part(channel, kind, event)


@pytest.mark.full
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_parts_are_as_long_as_they_were_and_are_all_of_the_time(tmp_path, seed, inside):
    draw = random.Random(seed)
    schedules = {}
    for component, thread in (("camera", 1), ("camera", 2), ("tracker", 3)):
        schedules[component, thread] = made = Schedule(draw, component, thread, inside)
        made.calls(draw.randrange(1, 40))
    for thread, channel in ((4, "a"), (5, "b")):
        schedules["_channels-h1", thread] = made = Schedule(draw, "_channels-h1", thread, inside)
        made.relays(channel, draw.randrange(10, 60))
    rows = [row for each in schedules.values() for row in each.rows]
    # Another thread of the service that only operates on the channel is none of them.
    stray = Schedule(draw, "_channels-h1", 6, inside=True)
    stray.row("a", "synchronisation", 10**9, 10**9 + 5)
    rows += stray.rows if inside else []
    components = {component for component, _ in schedules}
    run = open_run(SyntheticRun(tmp_path, rows, components=components).write())

    found = {(each.component, each.tid): each for each in read_threads(run, ["a", "b", "c"])}
    assert sorted(found) == sorted(schedules)
    for thread, schedule in schedules.items():
        each, spent = found[thread], schedule.spent
        assert each.application_ns == spent["application"]
        assert each.blocked_ns == spent["blocked"]
        assert each.messaging_ns == spent["messaging"]
        runtime = spent["runtime"] + spent["memory"] + spent["synchronisation"]
        assert each.runtime_ns == runtime
        parts = each.application_ns + each.blocked_ns + each.messaging_ns + each.runtime_ns
        assert parts == each.time_ns
        of = each.memory_ns, each.synchronisation_ns, each.messaging_synchronisation_ns
        names = "memory", "synchronisation", "of messaging"
        assert of == (tuple(spent[name] for name in names) if inside else (None,) * 3)
        assert each.missing == 0
        events = Counter(row.entity.split(":")[1] for row in schedule.rows)
        assert each.calls == events["call"] + events["message"]
        assert each.application_cpu_ns is each.runtime_cpu_ns is each.messaging_cpu_ns is None


def test_records_that_may_be_missing_are_told(tmp_path):
    draw = random.Random(1)
    made = Schedule(draw, "camera", 1, inside=True)
    made.calls(20)
    drops = {("camera", "a_inside:synchronisation"): 3, ("camera", "a:call"): 2}
    run = SyntheticRun(tmp_path, made.rows, components=["camera"], drops=drops).write()
    (thread,) = read_threads(open_run(run), ["a", "b"])
    assert thread.missing == 5


def threads(*parts: dict[str, int | None]) -> list[ThreadTimes]:
    names = [each.name for each in dataclasses.fields(ThreadTimes)]
    empty = dict.fromkeys(names, 0) | {"host": "h1", "component": "a"}
    return [ThreadTimes(**empty | {"repeat": 1} | each) for each in parts]


def value(layer: str, stat: str) -> Value:
    unit = "%" if stat == "share" else "ns"
    return Value("it", None, "", "", None, stat, unit, 1.0, layer=layer)


def test_a_layer_is_of_all_threads_of_which_it_is_known():
    known = {"application_cpu_ns": 60, "runtime_cpu_ns": 30, "messaging_cpu_ns": 10}
    every = threads(
        known, {"repeat": 2, "application_cpu_ns": 100, **dict(list(known.items())[1:])}
    )
    found, problems = measure_layer(value("runtime_cpu", "share"), every)
    assert found.value == pytest.approx(100 * 60 / 240)
    assert found.by_repeat == {1: 30.0, 2: pytest.approx(100 * 30 / 140)}
    assert (found.count, found.missing, found.unknown, problems) == (2, 0, 0, [])

    unknown = dict.fromkeys(known)
    found, problems = measure_layer(value("runtime_cpu", "sum"), threads(known, unknown))
    # What one thread did is not known, so a limit is neither met nor missed.
    assert (found.value, found.count, found.unknown) == (None, 1, 1) and len(problems) == 1
    found, problems = measure_layer(value("runtime_cpu", "share"), threads(unknown))
    assert found.value is None and len(problems) == 1
    assert measure_layer(value("runtime_cpu", "share"), [])[0].value is None


def test_memory_and_locks_are_shares_of_their_layer():
    (one,) = threads(
        {
            "application_ns": 500,
            "runtime_ns": 200,
            "messaging_ns": 50,
            "memory_ns": 20,
            "synchronisation_ns": 50,
            "messaging_synchronisation_ns": 5,
        }
    )
    shares = {name: measure_layer(value(name, "share"), [one])[0].value for name in LAYERS}
    assert shares == {
        "application": pytest.approx(100 * 500 / 750),
        "blocked": 0,
        "runtime": pytest.approx(100 * 200 / 750),
        "messaging": pytest.approx(100 * 50 / 750),
        # Its processor time is known, and is nothing.
        **dict.fromkeys(("application_cpu", "runtime_cpu", "messaging_cpu")),
        "memory": 10,
        "synchronisation": 25,
        "messaging_synchronisation": 10,
    }
