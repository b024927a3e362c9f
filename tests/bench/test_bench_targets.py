"""Rows of targets: each is judged by itself, and intervals of medians have the median in them."""

from __future__ import annotations

from math import comb

import kernel.table
import pytest
from targets import Row, added, median_interval, rows, verdicts


def _spread(median: float) -> dict[str, float]:
    return {"median": median, "min": median, "max": median}


def _kind(**event_ns: float) -> dict[str, object]:
    """A kind of recording as `kernel-loop` has it, with the costs of events by class."""
    more = {"median": 0.0, "low": None, "high": None}
    return {
        **dict.fromkeys(("p50_ns", "p99_ns", "cpu", "events", "bytes", "dropped"), _spread(1.0)),
        **dict.fromkeys(("p50_ns_ratio", "p99_ns_ratio"), _spread(1.0)),
        **dict.fromkeys(("p50_ns_added", "p99_ns_added", "cpu_added"), more),
        "event_ns": {name: _spread(cost) for name, cost in event_ns.items()},
    }


def test_a_missed_cost_of_an_event_is_not_hidden_by_the_next_kind() -> None:
    kinds = {"auto": _kind(sched=330.0, irq=330.0, sleep=3300.0), "full": _kind(sched=203.0)}
    found = rows(kernel.table.PARTS, {"kernel-loop": {"messages": 1, "kinds": kinds}})
    assert verdicts(found) == {
        "pipeline, kernel: auto": "met",
        "pipeline, kernel: auto: an event of sched, irq": "MISSED",
        "pipeline, kernel: auto: an event of sleep": "MISSED",
        "pipeline, kernel: full: an event of sched": "met",
    }


def test_what_is_recorded_by_default_is_judged_with_and_without_root() -> None:
    kinds = {"off": _kind(), "auto": _kind(), "full": _kind(), "off, no root": _kind()}
    kinds["auto, no root"] = _kind() | {"p50_ns_ratio": _spread(1.17)}
    found = rows(kernel.table.PARTS, {"kernel-loop": {"messages": 1, "kinds": kinds}})
    assert verdicts(found) == {
        "pipeline, kernel: auto": "met",
        "pipeline, kernel: auto, no root": "MISSED",
    }
    (row,) = (each for each in found if each.what == "pipeline, kernel: auto, no root")
    assert row.target == "5 % of p50" and "p50 1.170" in row.ratio


def test_rows_of_one_name_are_all_judged() -> None:
    every = [Row("a", "", "", "", "MISSED"), Row("b", "", "", "", ""), Row("a", "", "", "", "met")]
    assert verdicts(every) == {"a": "MISSED", "a (2)": "met"}


@pytest.mark.parametrize("count", range(1, 40))
def test_the_interval_of_a_median_is_the_narrowest_that_is_sure_enough(count: int) -> None:
    def sureness(first: int, last: int) -> float:
        """How often the median is between two of the values: as many are below it as heads."""
        return sum(comb(count, below) for below in range(first + 1, last + 1)) / 2**count

    interval = median_interval([float(value) for value in reversed(range(count))])
    if interval is None:
        assert sureness(0, count - 1) < 0.95
        return
    first, last = map(int, interval)
    assert first == count - 1 - last
    assert sureness(first, last) >= 0.95 > sureness(first + 1, last - 1)


def test_what_is_added_is_told_from_the_same_round() -> None:
    without = [100.0, 900.0, 300.0, 50.0, 700.0, 20.0]
    assert added([value + 7 for value in without], without) == {"median": 7, "low": 7, "high": 7}
    assert added([8.0, 9.0], [1.0, 2.0]) == {"median": 7, "low": None, "high": None}
