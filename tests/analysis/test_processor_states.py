"""Frequencies and idle states of processors, from events that are known."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from test_why import IDLE, PREEMPTED, RECEIVER, SENDER, SLEEPS, Kernel

from loopscope.analysis.causes import Causes
from loopscope.analysis.critical_path import split
from loopscope.analysis.kernel_causes import fitted
from loopscope.analysis.page_faults import PageFaults
from loopscope.analysis.processor_states import ProcessorStates

AWAKE = 2**32 - 1
Events = list[tuple[int, int, int]]
"""Instant, processor and state."""


class Recorded:
    """Events of class idle, as a run offers them."""

    def __init__(self, frequencies: Events, idle: Events) -> None:
        found = {"kernel.cpu_frequency": frequencies, "kernel.cpu_idle": idle}
        self._events = {name: events for name, events in found.items() if events}
        self.tables = list(self._events)
        self._con = duckdb.connect()

    def relation(self, name: str) -> duckdb.DuckDBPyRelation:
        rows = [
            {"repeat": 1, "host": "_kernel", "ts": ts, "counter": ts, "cpu_id": cpu, "state": state}
            for ts, cpu, state in self._events[name]
        ]
        return self._con.from_arrow(pa.Table.from_pylist(rows))


def states(frequencies: Events, idle: Events) -> ProcessorStates:
    run: Any = Recorded(frequencies, idle)
    return ProcessorStates(run, 1, "_kernel")


@pytest.mark.parametrize("seed", range(10))
def test_the_lowest_frequency_is_that_of_each_instant(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    times = np.sort(drawn.choice(1000, 30, replace=False)).tolist()
    events = [
        (ts, cpu, int(khz) * 100_000)
        for ts, cpu, khz in zip(
            times, *(drawn.integers(*of, 30) for of in ((0, 2), (8, 35))), strict=True
        )
    ]
    found = states([(ts, int(cpu), khz) for ts, cpu, khz in events], [])
    for _ in range(100):
        cpu, (start, end) = int(drawn.integers(0, 2)), np.sort(drawn.integers(0, 1000, 2)).tolist()
        own = [(ts, khz) for ts, of, khz in events if of == cpu]
        highest = max(khz for _, khz in own)
        at_instants = [
            next((khz for ts, khz in reversed(own) if ts <= instant), None)
            for instant in range(start, max(end, start + 1))
        ]
        lowest = None if None in at_instants else min(filter(None, at_instants))
        assert found.slowed_to(cpu, start, end) == (None if lowest == highest else lowest)
    assert found.slowed_to(7, 0, 1000) is None


def test_an_idle_state_lasts_until_the_processor_is_awake() -> None:
    found = states([], [(10, 0, 2), (20, 0, AWAKE), (30, 0, 0), (15, 1, 3)])
    assert [found.idle_state(0, at) for at in (5, 10, 19, 20, 30, 99)] == [
        *(None, 2, 2, None, 0, 0)
    ]
    assert found.idle_state(1, 15) == 3 and found.slowed_to(0, 5, 99) is None


def test_parts_say_at_which_frequency_they_ran_and_what_a_processor_came_out_of() -> None:
    """The receiver waits for an idle processor; that is slow while it runs."""
    kernel = Kernel(
        switches=[
            (10, 0, IDLE, PREEMPTED, RECEIVER),
            (20, 0, RECEIVER, SLEEPS, IDLE),
            (30, 1, IDLE, PREEMPTED, SENDER),
            (300, 0, IDLE, PREEMPTED, RECEIVER),
            (900, 0, RECEIVER, SLEEPS, IDLE),
        ],
        wakings=[(200, 1, SENDER, RECEIVER, 0)],
    )
    of_threads = {
        "named": lambda self, tid, name, at: f"t{tid}",
        "component": lambda self, tid, at: None,
    }
    named: Any = type("Named", (), of_threads)()
    nothing: Any = type("Nothing", (), {"on": lambda *_: ""})()
    empty: Any = Recorded([], [])
    of = states(
        [(5, 0, 3_400_000), (5, 1, 3_400_000), (350, 0, 800_000), (500, 0, 3_400_000)],
        [(25, 0, 4), (290, 0, AWAKE)],
    )
    scheduling = kernel.scheduling()
    causes = Causes(
        scheduling, named, nothing, PageFaults(empty, 1, "_kernel"), of, None, "", "h1", "h2"
    )
    parts = split(scheduling, SENDER, 100, RECEIVER, 700)
    found = fitted([(part, causes) for part in parts], 100, 700)
    told = {part.name: part.told() for part in found}
    assert told["wake-up"].endswith("to wake up (from idle state 4)"), told
    slow = [part for part in found if part.slowed_to_khz]
    assert [(part.slowed_to_khz, part.cause) for part in slow] == [(800_000, "t20 on cpu0")]
    assert slow[0].told() == "t20 on cpu0 (at 0.80 GHz)"
    assert "slowed_to_khz" not in found[0].to_dict()
