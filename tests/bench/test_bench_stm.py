"""The benchmark of space-time memory: what it makes of rounds."""

from __future__ import annotations

import pytest
import stm.hosts
import stm.latency
import stm.many
import stm.memory
import stm.table
import stm.video
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


def test_many_are_compared_with_one_of_the_same_round() -> None:
    values = {
        "many-none": _rounds([100, 200, 400], 1),
        "many-channels": _rounds([150, 350, 900], 1),
        "many-consumers": _rounds([250, 500, 410], 1),
    }
    kinds = {kind: stm.latency.summary(kind, values, stm.many.KINDS) for kind in values}
    assert kinds["many-channels"]["p50_ns_ratio"] == {"median": 1.75, "min": 1.5, "max": 2.25}
    assert verdicts(rows(stm.table.PARTS, {"stm-many": {"kinds": kinds}})) == {
        "many-channels": "met",
        "many-consumers": "MISSED",
    }


def test_memory_is_allowed_for_items_channel_and_connections() -> None:
    values = {
        "live": [800_000.0],
        "spare": [50_000.0],
        "log": [20_000.0],
        "control": [100_000.0],
        "process": [17_000.0],
        "connections": [1.0],
    }
    kinds = {"memory-64-1": stm.memory.summary("memory-64-1", {"memory-64-1": values})}
    assert kinds["memory-64-1"]["allowed"]["median"] == 800_000 * 1.125 + (64 + 1) * 1024
    # The log is in the control file.
    assert kinds["memory-64-1"]["total"]["median"] == 967_000
    found = {"stm-memory": {"kinds": kinds}}
    assert verdicts(rows(stm.table.PARTS, found)) == {"memory-64-1": "MISSED"}
    values["process"] = [16_000.0]
    kinds["memory-64-1"] = stm.memory.summary("memory-64-1", {"memory-64-1": values})
    assert verdicts(rows(stm.table.PARTS, found)) == {"memory-64-1": "met"}


def _pictures(cpu: float, touched: float) -> dict[str, list[float]]:
    touches = {"put_touched_kb": [4.0, 4.0], "got_touched_kb": [4.0, touched]}
    return {"cpu_percent": [cpu] * 2, "picture_us": [100 * cpu] * 2, "put_us": [9.0] * 2} | touches


@pytest.mark.parametrize(("touched", "verdict"), [(300, "met"), (6220.8, "MISSED")])
def test_a_picture_is_copied_if_a_process_touches_it(touched: float, verdict: str) -> None:
    values = {"video-6m": _pictures(1.5, 6220.8), "video-blank": _pictures(0.5, touched)}
    values["video-pipe"] = _pictures(75, 0)
    kinds = {kind: stm.video.summary(kind, values) for kind in values}
    assert kinds["video-6m"]["ratio"]["median"] == 0.02
    assert verdicts(rows(stm.table.PARTS, {"stm-video": {"kinds": kinds}})) == {
        "video-6m": "MISSED",
        "video-blank: touched by put and get": verdict,
    }


def test_a_put_depends_on_the_size_if_it_takes_longer_in_all_but_chance() -> None:
    small = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0]
    values = {
        "video-put-64k": {"put_us": small},
        "video-put-1m": {"put_us": [1.2, 2.1, 0.9, 2.3, 1.1, 2.2, 1.4]},
        "video-put-6m": {"put_us": [each + 0.1 for each in small]},
        "video-put-written": {"put_us": [each + 1 for each in small]},
    }
    kinds = {kind: stm.video.summary(kind, values) for kind in values}
    assert verdicts(rows(stm.table.PARTS, {"stm-video": {"kinds": kinds}})) == {
        "video-put-1m": "met",
        "video-put-6m": "MISSED",
    }


@pytest.mark.parametrize("figure", ["stm-many", "stm-memory", "stm-video"])
def test_what_could_not_be_measured_says_why(figure: str) -> None:
    (row,) = rows(stm.table.PARTS, {figure: {"skipped": "no compiler"}})
    assert (row.measured, row.verdict) == ("not measured", "no compiler")
