"""Histograms that kernels kept, as results have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loopscope.analysis.kernel_histograms import missed, read_histograms


class Exit:
    repeat, host, component, pid = 1, "h2", "node", 20


class Kept:
    """A run whose kernel has left its counts."""

    tables: tuple[str, ...] = ()
    exits = (Exit(),)
    specification = None

    def __init__(self, repeat: Path, histograms: dict[str, Any] | None) -> None:
        folder = repeat / "hosts" / "_kernel" / "kernel"
        folder.mkdir(parents=True)
        content = {} if histograms is None else {"histograms": histograms}
        (folder / "counts.json").write_text(json.dumps(content))
        self.repeats = {1: repeat}
        self.kernels: dict[int, Any] = {1: {"_kernel": {"recorded": 0}, "h9": {"error": "no"}}}


def waits(tid: int, process: int, *slots: tuple[int, int, int]) -> dict[str, Any]:
    total = sum(begin * count for begin, _, count in slots)
    times = {"count": sum(count for *_, count in slots), "sum_ns": total}
    times |= {"largest_ns": slots[-1][0], "slots": slots}
    return {"tid": tid, "process": process, "name": "worker", "preempted": False, "waits": times}


def test_threads_have_their_components_and_percentiles(tmp_path: Path) -> None:
    slots = [(8, 10, 50), (64, 80, 49), (1024, 1280, 1)]
    queue = [waits(20, 20, *slots), waits(21, 20, (4, 5, 1)), waits(99, 98, (5, 6, 2))]
    served = {"processor": 1, "name": "NET_RX", "times": waits(0, 0, (512, 640, 9))["waits"]}
    run: Any = Kept(tmp_path, {"run_queue": queue, "softirq": [served], "missed": 0})
    first, *others = read_histograms(run)
    assert (first.of, first.kind, first.count) == ("NET_RX on cpu1", "softirq", 9)
    node, other, second = others
    assert (node.of, node.p50_ns, node.p99_ns, node.largest_ns) == ("node of h2", 10, 80, 1024)
    # The kernel's name is all that is known of a process that no component has.
    assert (other.of, other.p99_ns) == ("worker", 5)
    assert (second.of, second.count) == ("node of h2 (worker)", 1)
    assert missed(run) == []


def test_waits_that_found_no_room_are_a_problem(tmp_path: Path) -> None:
    run: Any = Kept(tmp_path, {"run_queue": [], "softirq": [], "missed": 7})
    (problem,) = missed(run)
    assert problem.startswith("_kernel, repeat 1: 7 waits for a processor are in no histogram")


def test_a_kernel_that_kept_none_has_none(tmp_path: Path) -> None:
    run: Any = Kept(tmp_path, None)
    assert read_histograms(run) == [] and missed(run) == []
