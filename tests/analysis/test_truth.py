"""No verdict contradicts what really happened, whatever errors, losses and drops hide of it.

Worlds are made with their true times; stamps are off by up to their maximum errors, some events are
missing from the trace. What is then concluded is compared with the truth, found by plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_deadline import holds

from loopscope.analysis import Verdict
from loopscope.analysis.deadline import PPB, judge
from loopscope.analysis.list_cases import cases_of
from loopscope.analysis.measured import MeasuredPath, dropped_of
from loopscope.analysis.messages import Messages, Stamps
from loopscope.analysis.periodic import recurrence
from loopscope.analysis.verdict import judge as judge_bracket
from loopscope.analysis.window import RepeatTimes, bracket_of
from loopscope.experiment import (
    Allowed,
    Expectation,
    MessagePath,
    MissesIn,
    PathEvent,
    Requirement,
    TimeWindow,
)

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
OUT, IN = PathEvent("a", "h1", "io", "out"), PathEvent("b", "h2", "io", "in")


@dataclass
class Message:
    start: int
    arrival: int | None
    """None: lost."""
    again: bool
    """Whether it arrived twice."""
    hidden: tuple[bool, bool]
    """Whether the trace dropped either event."""
    off: tuple[int, int]
    """By how much each stamp is wrong, in tenths of its maximum error."""


MESSAGES = st.lists(
    st.builds(
        Message,
        start=st.integers(0, 12).map(lambda n: 7 * n),
        arrival=st.one_of(st.none(), *[st.integers(1, 40)] * 4),
        again=st.sampled_from([False] * 7 + [True]),
        hidden=st.tuples(*[st.sampled_from([False] * 7 + [True])] * 2),
        off=st.tuples(st.integers(-10, 10), st.integers(-10, 10)),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.start,
)
ALLOWED = st.sampled_from(
    [
        Allowed(),
        Allowed(met_ppb=PPB // 2),
        Allowed(met_ppb=PPB * 3 // 4),
        Allowed(rows=(MissesIn(1, 2),)),
        Allowed(rows=(MissesIn(2, 4),)),
        Allowed(met_ppb=PPB // 3, rows=(MissesIn(1, 3),)),
    ]
)
WINDOW = st.sampled_from(
    [None, None, TimeWindow(20), TimeWindow(0, 40), TimeWindow(14, 49), TimeWindow(60)]
)
ERROR = st.sampled_from([0, 1, 3, 10])


class World:
    """One repeat.

    Where `steady`, clocks are off by the same all the time, and known to be; where they are
    `forward`, no stamp is earlier than that of an earlier event.
    """

    def __init__(self, messages, errors, steady, rest, forward=False):
        self.messages = sorted(messages, key=lambda each: each.start)
        # The first stamp that was recorded is what a window is counted from.
        self.messages[0].hidden = (False, self.messages[0].hidden[1])
        for each in self.messages:
            if each.arrival is not None:
                each.arrival += each.start
        self.zero = self.messages[0].start
        last = max(each.arrival or each.start for each in self.messages)
        self.end = last + max(errors) * 2 + rest
        self.errors, self.steady, self.forward = errors, steady, forward

    def stamp(self, message, event):
        def of(each):
            like = self.messages[0] if self.steady else each
            return self.true(each, event) + like.off[event] * self.errors[event] // 10

        if not self.forward:
            return of(message)
        at = self.true(message, event)
        known = [each for each in self.messages if self.true(each, event) is not None]
        return max(of(each) for each in known if self.true(each, event) <= at)

    @staticmethod
    def true(message, event):
        return message.start if event == 0 else message.arrival

    def path(self):
        known = [each for each in self.messages if not each.hidden[0]]
        seen = [each.arrival is not None and not (each.hidden[1]) for each in known]
        # If one arrived twice, the trace dropped one of its events at most.
        seen = [s or (m.again and m.arrival is not None) for s, m in zip(seen, known, strict=True)]
        n = [
            int(s) + int(m.again and not m.hidden[1]) if s else None
            for s, m in zip(seen, known, strict=True)
        ]
        arrivals = [self.stamp(m, 1) if s else None for s, m in zip(seen, known, strict=True)]
        rows = sorted(
            zip(known, seen, n, arrivals, strict=True),
            key=lambda row: (self.stamp(row[0], 0), self.messages.index(row[0])),
        )
        known, seen, n, arrivals = ([row[i] for row in rows] for i in range(4))
        stamps = [
            self.stamps(
                [True] * len(known), [self.stamp(m, 0) for m in known], 0, [1] * len(known)
            ),
            self.stamps(seen, [at or 0 for at in arrivals], 1, [times or 0 for times in n]),
        ]
        drift = {(1, "h1"): (1.0, 0.0), (1, "h2"): (1.0, 0.0)} if self.steady else {}
        path = MessagePath("p", "id", (OUT, IN))
        dropped = {
            "a": sum(each.hidden[0] for each in self.messages),
            "b": sum(each.hidden[1] and each.arrival is not None for each in self.messages),
        }
        loss = [
            SimpleNamespace(repeat=1, process=name, missing_at=lambda entity, n=n: n)
            for name, n in dropped.items()
        ]
        self.run = SimpleNamespace(
            told={},
            repeats={1: None},
            accounts=loss,
            foreign=[],
            tables={},
            manifest={},
            exits=(),
            without_exit=(),
        )
        ids = np.array([self.messages.index(each) for each in known], np.int64)
        repeat = np.ones(len(known), np.int32)
        messages = Messages(path, repeat, ids, stamps, {"h1": 0, "h2": 1}, drift)
        return MeasuredPath(messages, dropped_of(self.run, path))

    def stamps(self, seen, ts, event, times):
        n = len(seen)
        return Stamps(
            np.array(seen, np.bool_),
            np.array(ts, np.int64),
            np.full(n, self.errors[event]),
            np.array(times, np.int32),
            np.full(n, event, np.int16),
        )

    def times(self):
        times = RepeatTimes(self.run, [])
        stamps = [self.stamp(each, 0) for each in self.messages if not each.hidden[0]]
        low, high = min(stamps) - self.errors[0], min(stamps) + self.errors[0]
        times.end = lambda path: np.array([0, self.end])
        times.__dict__["_zeros"] = tuple(np.array([0, ns]) for ns in (min(stamps), low, high))
        return times

    def within(self, window, at):
        if window is None:
            return True
        since = at - self.zero
        return since >= window.after_ns and (window.until_ns is None or since < window.until_ns)

    def truth(self, kind, window, limit):
        """What became of each case."""
        if kind == "age":
            return self.ages(window, limit)
        found = []
        for each in self.messages:
            if not self.within(window, each.start):
                continue
            if kind == "complete":
                met = each.arrival is not None and not each.again
            elif each.arrival is None:
                if kind == "order" or (kind == "time" and self.end - each.start < limit):
                    continue
                met = False
            elif kind == "order":
                later = [m.arrival for m in self.messages if m.start > each.start and m.arrival]
                met = all(arrival >= each.arrival for arrival in later)
            elif kind == "before":
                met = each.arrival > each.start
            else:
                met = each.arrival - each.start < limit
            found.append("+" if met else "-")
        return found

    def ages(self, window, limit):
        arrived = sorted((m.arrival, m.start) for m in self.messages if m.arrival is not None)
        until = self.end
        if window is not None and window.until_ns is not None:
            until = min(until, self.zero + window.until_ns)
        found, newest = [], None
        for arrival, start in arrived:
            if newest is not None and start > newest and self.within(window, arrival):
                found.append("+" if arrival - newest < limit else "-")
            newest = start if newest is None else max(start, newest)
        before = [start for arrival, start in arrived if arrival <= until]
        out = [m.start for m in self.messages if m.start < until]
        last = max(before) if before else min(out) if out else None
        begin = None if window is None else TimeWindow(window.after_ns)
        if last is not None and until - last >= limit and self.within(begin, until):
            found.append("-")
        return found


@pytest.mark.parametrize("kind", ["time", "age", "before", "order", "complete"])
@given(
    MESSAGES,
    st.tuples(ERROR, ERROR),
    st.booleans(),
    st.integers(0, 60),
    WINDOW,
    st.sampled_from([5, 15, 25, 40]),
    ALLOWED,
)
@settings(max_examples=250, deadline=None, derandomize=True)
def test_messages(kind, messages, errors, steady, rest, window, limit, allowed):
    # A row is in the order of stamps.
    world = World(messages, errors, steady, rest, forward=bool(allowed.rows))
    path = world.path()
    op, limit = (">", 0) if kind == "before" else ("<", limit)
    wanted = Requirement(kind, kind, "p", None, None, op, limit, None, allowed, window)
    verdict = judge(cases_of(wanted, path, world.times()), allowed).verdict
    truth = holds(["".join(world.truth(kind, window, limit))], allowed)
    assert verdict is U or truth is None or (verdict is P) == truth


@given(
    MESSAGES,
    st.tuples(ERROR, ERROR),
    WINDOW,
    st.sampled_from(["min", "p50", "p99", "max", "mean", "lost", "count"]),
    st.integers(0, 40),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_statistics_of_a_window(messages, errors, window, stat, value):
    world = World(messages, errors, False, 10)
    path = world.path()
    value = value // 8 if stat in ("lost", "count") else value
    wanted = Expectation(stat, "p", None, stat, "<=", value, True, window=window)
    _, bracket = bracket_of(wanted, path, world.times())
    chosen = [each for each in world.messages if world.within(window, each.start)]
    times = sorted(each.arrival - each.start for each in chosen if each.arrival is not None)
    lost = len(chosen) - len(times)
    if bracket is None or not (chosen if stat in ("lost", "count") else times):
        return
    rank = {"min": 1, "p50": -(-len(times) // 2), "p99": len(times), "max": len(times)}
    if stat in rank:
        truth = times[rank[stat] - 1]
    else:
        truth = {"mean": sum(times) / max(1, len(times)), "lost": lost, "count": len(chosen)}[stat]
    verdict = judge_bracket(wanted, bracket)
    assert verdict is U or (verdict is P) == (truth <= value)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.booleans(), st.integers(-3, 3)), max_size=8),
    st.booleans(),
    WINDOW,
    st.sampled_from([3, 8, 12]),
    ALLOWED,
    st.integers(0, 40),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_periodic_events(gaps, steady, window, limit, allowed, value):
    true, stamps, hidden = [], [], 0
    for place, (gap, drop, off) in enumerate([(0, False, 2), *gaps]):
        true.append((true[-1] if true else 0) + gap)
        if drop:
            hidden += 1
        else:
            stamps.append((true[-1] + (2 if steady else off), place))
    n = len(stamps)
    stamps.sort()
    table = pa.table(
        {
            "repeat": pa.array([1] * n, pa.int32()),
            "ts": [ts for ts, _ in stamps],
            "err_ns": pa.array([3] * n, pa.int64()),
            "host": ["h1"] * n,
            "process": ["a"] * n,
            "id": [place for _, place in stamps],
            "counter": [ts for ts, _ in stamps],
            "pid": [1] * n,
            "tid": [1] * n,
        }
    )
    hosts = pa.table({"repeat": [1], "host": ["h1"], "drift_ppm": [1.0 if steady else None]})
    hosts = hosts.cast(pa.schema({"repeat": "int32", "host": "string", "drift_ppm": "float64"}))
    account = SimpleNamespace(repeat=1, process="a", missing_at=lambda entity: hidden)
    run = SimpleNamespace(
        told={},
        repeats={1: None},
        accounts=[account],
        foreign=[],
        manifest={},
        exits=(),
        without_exit=(),
        tables={"io.out": None},
        relation=lambda name: duckdb.from_arrow(hosts if name == "hosts" else table),
    )
    times = RepeatTimes(run, [OUT])
    found = recurrence(run, OUT, window, times)
    lasting = [
        (b - a)
        for a, b in zip(true, true[1:], strict=False)
        if window is None
        or (a >= window.after_ns and (window.until_ns is None or b < window.until_ns))
    ]
    verdict = judge(found.cases(15, limit), allowed).verdict
    truth = holds(["".join("+" if abs(gap - 15) <= limit else "-" for gap in lasting)], allowed)
    assert verdict is U or truth is None or (verdict is P) == truth
    for stat, limited in (("jitter", value), ("rate", value * 2 * 10**6)):
        wanted = Expectation(stat, "", None, stat, "<=", limited, True, event=OUT)
        bracket = found.bracket(stat)
        if bracket is None or not lasting:
            continue
        value_of = {
            "jitter": max(lasting) - min(lasting),
            "rate": len(lasting) * 1e9 / sum(lasting),
        }
        verdict = judge_bracket(wanted, bracket)
        assert verdict is U or (verdict is P) == (value_of[stat] <= limited), stat
