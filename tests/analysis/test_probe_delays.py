"""What delayed clock probes, on a kernel whose events are made up around planted delays."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from kernel_tables import IN_SOFTIRQ, PREEMPTED, SLEEPS, Kernel, Served

from loopscope.analysis import probe_exchanges
from loopscope.analysis.critical_path import Part
from loopscope.analysis.probe_delays import LEGS, UNTOLD_WAY, over_way, why_probes
from loopscope.analysis.recorded_kernels import NothingRecordedError
from loopscope.analysis.scheduling import IDLE
from loopscope.timeline import RunError
from loopscope.timeline.probe_log import MOMENTS

PROBER, OTHER, RESPONDER, HOG = 10, 11, 20, 30
NAMES = {PROBER: "clock-prober", OTHER: "clock-prober", RESPONDER: "clock-responder", HOG: "hog"}
IN_INTERRUPT = 8
WIDTH, APART = 10, 5
"""How far a stamp may be off, and the counters of two processors, ns."""
PERIOD = 1_000_000
BEGIN = 10_000
"""The first and the last instant of the recording."""
COUNT = 300
SLOW = COUNT // 100

Log = dict[str, list[tuple[int, int, int, int]]]
"""Rows of each moment: peer, number, the stamp's middle, when it was logged."""


class Machine:
    """Two followers and their reference on one kernel, and the events of their exchanges."""

    def __init__(self) -> None:
        self.switches: list[tuple[int, int, int, int, int]] = [
            (BEGIN, 0, PROBER, SLEEPS, OTHER),
            (BEGIN, 1, RESPONDER, SLEEPS, IDLE),
            (BEGIN + 1, 0, OTHER, SLEEPS, IDLE),
        ]
        self.wakings: list[tuple[int, int, int, int, int]] = []
        self.served: list[Served] = []
        self.logs: dict[str, Log] = {host: {name: [] for name in MOMENTS} for host in HOSTS}

    def exchange(
        self,
        host: str,
        number: int,
        begin: int,
        hog: int | None = None,
        softirq: int = 0,
        busy: int = 0,
    ) -> list[int]:
        """An exchange; returns what its legs take.

        ``hog``: for how much longer than idling another thread has the responder's processor.
        ``softirq``: by how much longer the soft interrupt takes that carries the probe. ``busy``:
        for how long another thread has the prober's processor when the reply comes.
        """
        peer, asks = HOSTS[host]
        at = begin + softirq
        self.wakings.append((begin - 2000, 0, IDLE, asks, IN_INTERRUPT))
        self.switches.append((begin, 0, IDLE, SLEEPS, asks))
        self.served.append((0, begin + 1500, at + 2500))
        self.wakings.append((at + 2000, 0, asks, RESPONDER, IN_SOFTIRQ))
        came = IDLE
        if hog is not None:
            self.switches.append((begin + 1200, 1, IDLE, SLEEPS, HOG))
            came = HOG
        self.switches.append((at + 2800, 0, asks, SLEEPS, HOG if busy else IDLE))
        back = at + (hog or 0)
        self.switches.append(
            (back + 2300, 1, came, SLEEPS if hog is None else PREEMPTED, RESPONDER)
        )
        self.served.append((1, back + 3200, back + 4000))
        self.wakings.append((back + 3800, 1, RESPONDER, asks, IN_SOFTIRQ))
        end = back + busy
        self.switches.append((end + 4100, 0, HOG if busy else IDLE, PREEMPTED, asks))
        self.switches.append((back + 4500, 1, RESPONDER, SLEEPS, IDLE))
        self.switches.append((end + 4800, 0, asks, SLEEPS, IDLE))
        own, reference = self.logs[host], self.logs["h1"]
        own["probe_sent"].append((peer, number, begin + 1000, begin + 2600))
        reference["probe_received"].append((peer, number, at + 1800, back + 2500))
        reference["reply_sent"].append((peer, number, back + 3000, back + 4200))
        own["reply_received"].append((peer, number, back + 3600, end + 4400))
        return [800 + softirq, 1200 + (hog or 0), 600, 800 + busy]

    def run(self, path: Path) -> Probed:
        return Probed(self, path)


HOSTS = {"h1": (0, RESPONDER), "h2": (1, PROBER), "h3": (2, OTHER)}
"""The client's number and the thread of each host."""


class Probed(Kernel):
    """A run of that machine."""

    exits = ()
    specification = None

    def __init__(self, machine: Machine, path: Path) -> None:
        super().__init__(
            sorted(machine.switches), sorted(machine.wakings), served=machine.served, names=NAMES
        )
        self.path = path
        self.repeats = {1: path}
        self.logs = machine.logs
        for host in HOSTS:
            (path / "hosts" / host / "clock" / "probes").mkdir(parents=True)
        claims = {"max_err_ns": 700, "drift_ppm": 0.0, "apart_ns": APART}
        hosts = [
            {"repeat": 1, "host": host, "reference": host == "h1", **claims}
            for host in (*HOSTS, "_kernel")
        ]
        self._hosts = pa.Table.from_pylist(hosts)

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        return self._con.from_arrow(self._hosts) if name == "hosts" else super().relation(name)

    def read_log(self, directory: Path) -> dict[str, pa.Table]:
        log = self.logs[directory.parts[-3]]
        return {name: _table(rows) for name, rows in log.items()}


def _table(rows: Sequence[tuple[int, int, int, int]]) -> pa.Table:
    # The kernel's counter is 3 times the time.
    columns = {
        "peer": pa.array([peer for peer, *_ in rows], pa.uint32()),
        "id": pa.array([number for _, number, *_ in rows], pa.int64()),
        "lo": pa.array([3 * (ts - WIDTH) for *_, ts, _ in rows], pa.uint64()),
        "hi": pa.array([3 * (ts + WIDTH) for *_, ts, _ in rows], pa.uint64()),
        "source": pa.array([1] * len(rows), pa.uint8()),
        "logged": pa.array([3 * logged for *_, logged in rows], pa.int64()),
    }
    return pa.table(columns)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def rank(values: Sequence[int], percent: int) -> int:
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def test_the_planted_delays_are_found_leg_by_leg(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(7)
    chosen = drawn.sample(range(COUNT), 3 * SLOW)
    planted: dict[str, dict[int, int]] = {
        name: {row: drawn.randrange(20_000, 400_000) for row in chosen[place::3]}
        for place, name in enumerate(("hog", "softirq", "busy"))
    }
    legs = {}
    for number in range(COUNT):
        begin = (number + 1) * 2 * PERIOD
        delays = {name: each[number] for name, each in planted.items() if number in each}
        legs[number] = machine.exchange("h2", number, begin, **delays)
        machine.exchange("h3", number, begin + PERIOD)
    # Neither of these is among the exchanges: no reply, a stamp twice, before the recording.
    own = machine.logs["h2"]
    own["probe_sent"].append((1, COUNT, 3 * PERIOD, 3 * PERIOD))
    own["probe_sent"].append((1, COUNT - 1, 3 * PERIOD, 3 * PERIOD))
    early = Machine()
    early.exchange("h2", COUNT + 1, 1000)
    for host, log in early.logs.items():
        for name, rows in log.items():
            machine.logs[host][name] += rows
    del legs[COUNT - 1]
    run = machine.run(tmp_path)
    monkeypatch.setattr(probe_exchanges, "read_probe_log", run.read_log)
    first, second = why_probes(run, worst=COUNT)  # type: ignore[arg-type]

    assert (first.host, first.peer, first.exchanges) == ("h2", "h1", COUNT - 1)
    assert (first.incomplete, first.unrecorded) == (3, 1)
    assert first.stamps == {"kernel": 4 * (COUNT - 1)}
    assert [leg.name for leg in first.legs] == list(LEGS)
    causes = {
        "answer": ("hog", "runnable", "clock-responder waited on cpu1 behind hog"),
        "request": ("softirq", "softirq", "NET_RX on cpu0, in clock-prober"),
        "read": ("busy", "runnable", "clock-prober waited on cpu0 behind hog"),
    }
    for place, leg in enumerate(first.legs):
        took = [each[place] for each in legs.values()]
        above = [each - min(took) for each in took]
        assert leg.least_ns == min(took)
        shown = {"p50": rank(above, 50), "p99": rank(above, 99), "max": max(above)}
        assert leg.times == {f"above_{name}": ns for name, ns in shown.items()}
        if leg.name == "reply":
            assert leg.causes == ()
            continue
        cause, name, words = causes[leg.name]
        (found,) = leg.causes
        whole = sum(planted[cause][row] for row in planted[cause] if row in legs)
        assert (found.name, found.cause, found.ns) == (name, words, whole), leg
        assert found.share == pytest.approx(1)
        assert found.exchanges == len(planted[cause].keys() & legs.keys())

    assert len(first.worst) == COUNT - 1
    for each in first.worst:
        assert [hop.ns for hop in each.hops] == legs[each.id]
        assert each.ns == sum(legs[each.id])
        for hop in each.hops:
            assert sum(part.ns for part in hop.parts) == hop.ns, hop
            assert not [part for part in hop.parts if part.name == "unknown"], hop
        one = APART + 1
        assert [hop.err_ns for hop in each.hops] == [*[2 * WIDTH + one] * 3, WIDTH + one]
        assert each.err_ns == WIDTH + one
    took_longest = [each.ns for each in first.worst]
    assert all(one >= another for one, another in pairwise(took_longest))

    # The other follower's thread has the same name.
    assert (second.host, second.exchanges, second.incomplete) == ("h3", COUNT, 0)
    assert {leg.times["above_max"] for leg in second.legs} == {0}
    names = Counter(part.name for each in second.worst for hop in each.hops for part in hop.parts)
    assert set(names) == {"running", "softirq", "wake-up"}


def test_what_is_over_a_limit_is_explained(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hogs = [None, 5_000, 6_000, None, 7_000]
    for number, hog in enumerate(hogs):
        machine.exchange("h2", number, (number + 1) * PERIOD, hog=hog)
    run = machine.run(tmp_path)
    monkeypatch.setattr(probe_exchanges, "read_probe_log", run.read_log)
    pair, _ = why_probes(run, over_ns=5_000)  # type: ignore[arg-type]
    of = {leg.name: leg for leg in pair.legs}
    assert (of["answer"].slow, of["answer"].slow_above_ns) == (2, 6_000)
    assert [each.ns for each in of["answer"].causes] == [13_000]
    assert (of["request"].slow, of["request"].causes) == (0, ())
    assert pair.worst == ()


def test_what_took_no_longer_than_the_least_has_no_cause(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if other things happened in it."""
    for number in range(COUNT):
        machine.exchange("h2", number, (number + 1) * PERIOD, hog=0 if number % 2 else None)
    run = machine.run(tmp_path)
    monkeypatch.setattr(probe_exchanges, "read_probe_log", run.read_log)
    pair, _ = why_probes(run)  # type: ignore[arg-type]
    assert [(leg.slow, leg.causes) for leg in pair.legs] == [(SLOW, ())] * len(LEGS)


def test_a_thread_that_is_not_known_leaves_everything_unknown(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    legs = machine.exchange("h2", 0, PERIOD)
    monkeypatch.setitem(NAMES, RESPONDER, "another")
    run = machine.run(tmp_path)
    monkeypatch.setattr(probe_exchanges, "read_probe_log", run.read_log)
    pair, _ = why_probes(run, worst=1)  # type: ignore[arg-type]
    (exchange,) = pair.worst
    parts = [part for hop in exchange.hops for part in hop.parts]
    assert [part.ns for part in parts] == legs
    assert {(part.name, part.cause) for part in parts} == {
        ("unknown", "it is not known which thread of h1 answers")
    }


def test_runs_without_events_or_probes_say_so(machine: Machine, tmp_path: Path) -> None:
    run = machine.run(tmp_path)
    for directory in tmp_path.glob("hosts/*/clock/probes"):
        directory.rmdir()
    with pytest.raises(RunError, match="has no clock probes"):
        why_probes(run)  # type: ignore[arg-type]
    run.tables = []
    with pytest.raises(NothingRecordedError, match="record them with"):
        why_probes(run)  # type: ignore[arg-type]


def briefly(parts: Sequence[Part]) -> list[tuple[str, int, int, int | None]]:
    return [(part.name, part.start, part.end, part.tid) for part in parts]


def test_a_packet_that_woke_nobody_is_with_its_sender() -> None:
    """Its reader was busy all the time, which says nothing about the packet's way."""
    switches = [(100, 0, IDLE, SLEEPS, PROBER), (100, 1, IDLE, SLEEPS, RESPONDER)]
    after = [(9000, 0, PROBER, SLEEPS, IDLE), (9000, 1, RESPONDER, SLEEPS, IDLE)]
    kernel = Kernel(switches + after, served=[(0, 1200, 1900)]).scheduling()
    parts = over_way((kernel, PROBER, 1000), 1700, (kernel, RESPONDER, 2500), "h2")
    assert briefly(parts) == [
        ("running", 1000, 1200, PROBER),
        ("softirq", 1200, 1700, PROBER),
        ("running", 1700, 2500, RESPONDER),
    ]


def test_a_sender_that_sleeps_does_not_carry_the_packet() -> None:
    switches = [(100, 0, IDLE, SLEEPS, PROBER), (100, 1, IDLE, SLEEPS, RESPONDER)]
    after = [(1300, 0, PROBER, SLEEPS, IDLE), (9000, 1, RESPONDER, SLEEPS, IDLE)]
    kernel = Kernel(switches + after).scheduling()
    parts = over_way((kernel, PROBER, 1000), 1700, (kernel, RESPONDER, 2500), "h2")
    assert briefly(parts)[0] == ("running", 1000, 1300, PROBER)
    assert parts[1].what == UNTOLD_WAY and briefly(parts)[1] == ("unknown", 1300, 1700, None)


def test_what_another_kernel_did_is_unknown() -> None:
    """From the soft interrupt on that woke the reader it is known."""
    switches = [(50, 1, RESPONDER, SLEEPS, IDLE), (2200, 1, IDLE, SLEEPS, RESPONDER)]
    switches += [(9000, 1, RESPONDER, SLEEPS, IDLE)]
    wakings = [(2000, 1, IDLE, RESPONDER, IN_SOFTIRQ)]
    far = Kernel(switches, wakings, served=[(1, 1800, 2100)]).scheduling()
    near = Kernel([(100, 0, IDLE, SLEEPS, PROBER), (9000, 0, PROBER, SLEEPS, IDLE)]).scheduling()
    parts = over_way((near, PROBER, 1000), 1900, (far, RESPONDER, 2500), "h2")
    assert [(part.name, part.start, part.end) for part in parts] == [
        ("unknown", 1000, 1800),
        ("softirq", 1800, 2000),
        ("softirq", 2000, 2100),
        ("wake-up", 2100, 2200),
        ("running", 2200, 2500),
    ]
    assert parts[0].what.startswith("on its way from h2; before NET_RX")
