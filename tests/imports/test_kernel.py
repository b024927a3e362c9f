"""Traces of LTTng's kernel tracer: the same events and values as babeltrace2 prints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kernel_trace import Event, write
from tables import compare, rows

pytestmark = pytest.mark.skipif(
    shutil.which("babeltrace2") is None, reason="SKIPPED LOUDLY: needs babeltrace2"
)

SECOND = 1_000_000_000


def test_every_event_is_babeltrace2s(tmp_path: Path) -> None:
    switch = {"prev_comm": "swapper/0", "prev_tid": 0, "next_comm": "loop", "next_tid": 4711}
    back = {"prev_comm": "loop", "prev_tid": 4711, "next_comm": "swapper/0", "next_tid": 0}
    ipv4 = {"type": 1, "length": 60, "address": [10, 77, 0, 1]}
    ipv6 = {"type": 2, "address": [0xFE80, 0, 0, 0, 0x1234, 0x5678, 0x9ABC, 0xDEF0]}
    waking = {"comm": "a name of 15 ch", "tid": 4711, "prio": -51, "target_cpu": 1}
    start = 77 * SECOND
    events = [
        Event(0, start, "sched_waking", waking),
        # The stamp's 27 bits begin again, then a gap that they cannot tell.
        Event(0, start + (1 << 26), "sched_switch", switch),
        Event(0, start + (1 << 27), "sched_switch", {**back, "prev_state": 1}),
        Event(0, start + 3 * SECOND, "sched_switch", switch),
        Event(0, start + 3 * SECOND, "sched_switch", {**back, "prev_state": 129}),
        Event(1, start + 5, "net_dev_queue", {"skbaddr": 1 << 63, "name": "veth0", **ipv4}),
        Event(1, start + 6, "net_dev_queue", {"skbaddr": 9, "name": "", **ipv6}),
        Event(1, start + 7, "net_dev_queue", {"skbaddr": 10, "name": "lo", "type": 0}),
        Event(
            1,
            start + 8,
            "syscall_entry_openat",
            {"dfd": -100, "filename": "/etc/hosts", "flags": 0x80000, "mode": 0o644},
        ),
        Event(1, start + 9, "block_rq_complete", {"sector": 2**64 - 1, "cmd": []}),
        Event(1, start + 10, "block_rq_complete", {"sector": 1, "cmd": [0x28, 0, 255]}),
        Event(1, start + 11, "lttng_statedump_end", {}),
    ]
    write(tmp_path / "trace" / "kernel", events, discarded={1: 7})
    summary = compare(tmp_path / "trace", tmp_path / "out")
    assert summary["events"] == len(events)
    assert {each["table"] for each in summary["tables"]} == {
        f"kernel.{name}" for name in {event.name for event in events}
    }
    assert summary["lost"]["events"] == 2 * 7
    found = rows(tmp_path / "out", "kernel.sched_switch")
    assert [(row["cpu"], row["prev_comm"], row["next_tid"]) for row in found] == [
        (0, "swapper/0", 4711),
        (0, "loop", 0),
    ] * 2
