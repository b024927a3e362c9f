"""The benchmark of space-time memory: what it makes of rounds."""

from __future__ import annotations

import stm.hosts
import stm.latency
import stm.table
from targets import rows, verdicts


def _rounds(p50: list[float], p999: float) -> dict[str, list[float]]:
    return {"p50_ns": p50, "p99_ns": [900.0] * len(p50), "p999_ns": [p999] * len(p50)}


def test_rounds_are_compared_with_the_floor_of_the_same_round() -> None:
    values = {
        "polled-bare": _rounds([100, 200, 400], 1000),
        "polled-look": _rounds([150, 260, 800], 1600),
        "blocked-futex": _rounds([5000, 6000, 7000], 1000),
        "blocked-get": _rounds([5900, 6800, 9000], 1000),
        "polled-iceoryx2": _rounds([300, 300, 300], 1000),
    }
    kinds = {kind: stm.latency.summary(kind, values) for kind in values}
    assert kinds["polled-look"]["more_ns"] == {"median": 60, "min": 50, "max": 400}
    assert kinds["polled-look"]["p50_ns_ratio"]["median"] == 1.5
    found = {"stm-latency": {"rounds": 3, "kinds": kinds, "skipped": {"blocked-pipe": "why"}}}
    assert verdicts(rows(stm.table.PARTS, found)) == {
        "polled-look": "MISSED",
        "polled-look: p99.9": "MISSED",
        "blocked-get": "met",
    }
    assert list(stm.table.notes(found)) == ["blocked-pipe was left out: why"]


def test_a_kind_without_its_floor_is_not_judged_by_it() -> None:
    kinds = {"blocked-get": stm.latency.summary("blocked-get", {"blocked-get": _rounds([1], 1)})}
    assert verdicts(rows(stm.table.PARTS, {"stm-latency": {"kinds": kinds}})) == {}
    skipped = {"stm-latency": {"skipped": "no compiler"}}
    (row,) = rows(stm.table.PARTS, skipped)
    assert row.measured == "not measured" and not list(stm.table.notes(skipped))


def test_the_share_of_tcp_is_of_its_speed_in_the_same_round() -> None:
    values = {
        "hosts-ping-tcp": {"p50_us": [20.0, 30.0, 20.0], "p99_us": [40.0, 40.0, 40.0]},
        "hosts-ping-stm": {"p50_us": [100.0, 40.0, 50.0], "p99_us": [200.0, 200.0, 200.0]},
        "hosts-stream-tcp": {"items_per_s": [2e5, 1e5], "mb_per_s": [800.0, 400.0]},
        "hosts-stream-stm": {"items_per_s": [1.98e5, 0.99e5], "mb_per_s": [792.0, 396.0]},
    }
    kinds = {kind: stm.hosts.summary(kind, values) for kind in values}
    assert kinds["hosts-ping-stm"]["share"] == {"median": 0.4, "min": 0.2, "max": 0.75}
    assert "share" not in kinds["hosts-ping-tcp"]
    found = {"stm-hosts": {"rounds": 3, "kinds": kinds, "skipped": {}}}
    assert verdicts(rows(stm.table.PARTS, found)) == {
        "hosts-ping-stm": "MISSED",
        "hosts-stream-stm": "met",
    }
    (row,) = rows(stm.table.PARTS, {"stm-hosts": {"skipped": "no compiler"}})
    assert row.measured == "not measured"
