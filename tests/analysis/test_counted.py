"""What counts of threads say of an interval, against schedules that are known."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from loopscope.analysis.counted import Counts, End, held
from loopscope.analysis.counted_tcp import Connections
from loopscope.analysis.hop_decomposition import Passage

MS = 1_000_000
TICK = 4 * MS
NODE, OTHER = 20, 30


@dataclass(frozen=True)
class Exit:
    repeat: int
    host: str
    component: str
    pid: int | None


class Schedule:
    """What a thread did: it slept, then waited, then ran, again and again."""

    def __init__(self, draw: random.Random, length: int) -> None:
        self.turns: list[tuple[int, int, int]] = []
        at = 0
        while at < length:
            asleep, waits, runs = (round(draw.expovariate(1 / (3 * MS))) for _ in range(3))
            self.turns.append((at + asleep, at + asleep + waits, at + asleep + waits + runs))
            at = self.turns[-1][2]

    def did(self, begin: int, end: int) -> tuple[int, int]:
        """For how long it ran and waited in an interval."""

        def within(since: int, until: int) -> int:
            return max(0, min(until, end) - max(since, begin))

        ran = sum(within(came, went) for _, came, went in self.turns)
        return ran, sum(within(woken, came) for woken, came, _ in self.turns)

    def counts(self, at: int) -> tuple[int, int]:
        """The kernel's counts: a wait is added when it ends, a run at each tick and at its end."""
        ran = waited = 0
        for woken, came, went in self.turns:
            waited += came - woken if came <= at else 0
            ran += max(0, min(went, at if went <= at else at // TICK * TICK) - came)
        return ran, waited

    def looks(self, tid: int, draw: random.Random, length: int) -> list[dict[str, Any]]:
        """Looks every 2 ms: those that changed, and the one before each of them."""
        rows: list[dict[str, Any]] = []
        last: dict[str, Any] | None = None
        for number in range(length // (2 * MS)):
            at, took = number * 2 * MS + draw.randrange(100_000), draw.randrange(1_000, 20_000)
            ran, waited = self.counts(at + draw.randrange(took))
            row = {"ts": at, "tid": tid, "took_ns": took, "root": tid}
            row |= {"run_ns": ran, "wait_ns": waited, "comm": f"thread-{tid}"}
            same = last is not None and (ran, waited) == (last["run_ns"], last["wait_ns"])
            if not same:
                if last is not None and last is not rows[-1]:
                    rows.append(last)
                rows.append(row)
            last = row
        return rows


class Kernel:
    """A table of looks, as a run offers it."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.tables = ["kernel.schedstat"]
        self.exits = [Exit(1, "h2", "node", NODE), Exit(1, "h2", "other", OTHER)]
        whole = [{"repeat": 1, "host": "h2", "counter": row["ts"], **row} for row in rows]
        self._con = duckdb.connect()
        self._table = pa.Table.from_pylist(whole)

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        assert name == "kernel.schedstat"
        return self._con.from_arrow(self._table)

    def counts(self) -> Counts:
        return Counts(self, 1, "h2")  # type: ignore[arg-type]


def end_of(counts: Counts, tid: int) -> End:
    """A thread of a host without connections."""
    run: Any = Kernel([])
    return End(counts, Connections(run, 1, "h2"), "h2", tid)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_thread_did_lies_within_the_bounds(seed: int) -> None:
    """In intervals that begin while it does not wait and end while it runs: a hop's ends do."""
    draw = random.Random(seed)
    length = 400 * MS
    schedule = Schedule(draw, length)
    counts = Kernel(schedule.looks(NODE, draw, length)).counts()
    narrow = 0
    for _ in range(200):
        _, came, went = draw.choice(schedule.turns)
        end = draw.randrange(came, went + 1)
        begin = max(0, end - draw.randrange(1, 60 * MS))
        growth = counts.growth(NODE, begin, end)
        if growth is None or any(woken < begin < came for woken, came, _ in schedule.turns):
            continue
        ran, waited = schedule.did(begin, end)
        assert growth.ran[0] <= ran <= growth.ran[1], (begin, end, growth, ran)
        assert growth.waited[0] <= waited <= growth.waited[1], (begin, end, growth, waited)
        narrow += growth.waited[1] - growth.waited[0] < 8 * MS
    assert narrow > 50


def looks(tid: int, *points: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Looks at ms, with ms that the thread has run and waited."""
    return [
        {"ts": at * MS, "tid": tid, "took_ns": 1_000, "root": tid, "run_ns": ran * MS}
        | {"wait_ns": waited * MS, "comm": f"thread-{tid}"}
        for at, ran, waited in points
    ]


def test_a_wait_is_named_with_who_ran_meanwhile() -> None:
    node = looks(NODE, (0, 5, 0), (20, 5, 0), (48, 5, 0), (50, 6, 28), (60, 6, 28))
    other = looks(OTHER, (0, 0, 0), (20, 0, 0), (50, 29, 0), (60, 29, 0))
    counts = Kernel(node + other).counts()
    found = held(None, end_of(counts, NODE), 20 * MS, 50 * MS)
    assert sum(ns for _, ns, _ in found) == 30 * MS
    assert found[0] == (
        "runnable",
        pytest.approx(28 * MS, abs=2_000),
        "node of h2 waited for a processor, while other of h2 ran",
    )
    assert found[-1][0] == "unknown"


def test_a_sleep_is_what_is_left_between_two_events_of_a_thread() -> None:
    node = looks(NODE, (0, 5, 0), (20, 5, 0), (98, 5, 0), (100, 6, 0), (110, 6, 0))
    counts = Kernel(node).counts()
    end = end_of(counts, NODE)
    found = dict((name, ns) for name, ns, _ in held(end, end, 20 * MS, 100 * MS))
    # As much as it surely did not run: the kernel may count that a tick late.
    assert 60 * MS < found["blocked"] <= 80 * MS and sum(found.values()) == 80 * MS


def test_what_was_not_looked_at_is_unknown() -> None:
    counts = Kernel(looks(NODE, (50, 5, 0), (52, 6, 0))).counts()
    for tid in (NODE, OTHER):
        ((name, ns, cause),) = held(None, end_of(counts, tid), 20 * MS, 51 * MS)
        assert (name, ns) == ("unknown", 31 * MS) and "are not there" in cause


@pytest.mark.parametrize("seed", range(20))
def test_no_part_spans_what_is_known_to_be_between(seed: int) -> None:
    """A link's instants, and when the message came to its socket: each side has its own parts."""
    draw = random.Random(seed)
    length = 400 * MS
    schedules = {tid: Schedule(draw, length) for tid in (NODE, OTHER)}
    rows = [row for tid, each in schedules.items() for row in each.looks(tid, draw, length)]
    counts = Kernel(rows).counts()
    sender, receiver = end_of(counts, OTHER), end_of(counts, NODE)
    threads: set[str] = set()
    for _ in range(100):
        instants = sorted(draw.sample(range(20 * MS, 380 * MS), 9))
        begin, first, last, at, taken, left, returned, came, end = instants
        late = draw.randrange(left - at)
        passage = Passage(("h1", "h2"), at, left, late, 1, 0, taken, returned)
        known = list(product((came, None), (passage, None), ((first, last), None)))
        for stamp, link, gone in known[:-1]:
            found = held(sender, receiver, begin, end, stamp, link, gone)
            ends = [*accumulate((ns for _, ns, _ in found), initial=begin)]
            marks = {begin, end} | ({came} if stamp else set())
            marks |= {at, left - late, max(taken, left - late), left} if link else set()
            marks |= {returned} if link and stamp else set()
            marks |= {first, last} if gone else set()
            assert marks <= {*ends} and ends[-1] == end
            # What is known of where it was, the threads did not have it then.
            inner = sorted(marks - {begin, end})
            for until, (name, _, cause) in zip(ends[1:], found, strict=True):
                if name in ("runnable", "running", "blocked"):
                    of = "other of h2" if until <= inner[0] else "node of h2"
                    assert cause.startswith(of) and not inner[0] < until <= inner[-1], found
                    threads.add(of)
            names = {until: name for until, (name, _, _) in zip(ends[1:], found, strict=True)}
            is_wire = stamp is not None and (link is not None or gone is not None)
            assert (names.get(came) == "wire") == is_wire
            assert (names.get(taken) == "ring") == (link is not None and taken > left - late)
            assert (names.get(returned) == "send") == (link is not None and stamp is not None)
    assert len(threads) == 2


def test_a_sleep_while_the_message_is_there_is_the_receivers() -> None:
    node = looks(NODE, (0, 5, 0), (20, 5, 0), (98, 5, 0), (100, 6, 0), (110, 6, 0))
    end = end_of(Kernel(node).counts(), NODE)
    way, slept, rest = held(None, end, 20 * MS, 100 * MS, 50 * MS)
    assert way == ("unknown", 30 * MS, "until it came to h2")
    assert slept[0] == "blocked" and 30 * MS < slept[1] <= 50 * MS
    assert slept[2] == "node of h2 slept while it was in its socket"
    assert rest[:2] == ("unknown", 50 * MS - slept[1])


def test_what_an_emulated_link_had_is_not_taken_for_the_wires() -> None:
    counts = Kernel(looks(NODE, (0, 5, 0), (20, 5, 0), (50, 6, 0), (60, 6, 0))).counts()
    ends = None, end_of(counts, NODE), 20 * MS, 50 * MS
    left = (21 * MS, 21 * MS)
    wire = held(*ends, 49 * MS, None, left)[1]
    assert wire == ("wire", 28 * MS, "until it came to h2")
    unknown = held(*ends, 49 * MS, None, left, "its packet is not known")[1]
    assert unknown == ("unknown", 28 * MS, "its packet is not known; until it came to h2")


def test_what_came_to_a_link_had_left_before() -> None:
    """A stamp of what left is too late where its program was kept while it recorded the event."""
    counts = Kernel(looks(NODE, (0, 5, 0), (20, 5, 0), (50, 6, 0), (60, 6, 0))).counts()
    ends = None, end_of(counts, NODE), 20 * MS, 50 * MS
    passage = Passage(("h1", "h2"), 21 * MS, 41 * MS, 0, 1, 0, 40 * MS, 41 * MS)
    found = held(*ends, 42 * MS, passage, (22 * MS, 23 * MS))
    assert [ns for _, ns, _ in found[:3]] == [1 * MS, 20 * MS, 1 * MS], found
    assert found[1][2] == "the emulated link h1 → h2, as it is set"
