"""The benchmark of kernel events: what it runs and records, and what it makes of that."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import figures
import measured_machine
import pytest
from kernel import loop, peers, runs, unmeasured

from loopscope.api import check
from loopscope.experiment.kernel_events import AUTO

EXPERIMENTS = {name: loop.experiment(kind) for name, kind in loop.KINDS.items()} | {
    f"unmeasured, {name}": unmeasured.EXPERIMENT.replace("KERNEL", recorded)
    for name, (recorded, _) in unmeasured.KINDS.items()
}
RUN = """#!/bin/sh
echo "phase connect" >&2
echo "phase run (measured)" >&2
sleep 0.3
echo "collecting" >&2
sleep 0.3
echo "$RESULTS"
"""


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_it_runs_is_an_experiment(tmp_path: Path, name: str) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENTS[name])
    assert check(file) == []


def _run(monkeypatch: pytest.MonkeyPatch, folder: Path, results: str) -> tuple[object, float]:
    """What a program like `loopscope run` returned, and seconds for which it measured."""
    program = folder / "loopscope"
    program.write_text(RUN)
    program.chmod(0o755)
    monkeypatch.setattr(runs, "LOOPSCOPE", program)
    took = 0.0

    @contextmanager
    def measured() -> Iterator[None]:
        nonlocal took
        began = time.monotonic()
        yield
        took = time.monotonic() - began

    environment = {"RESULTS": results}
    found = runs.results_of(folder / "a.yaml", measured=measured(), environment=environment)
    return found, took


def test_the_measured_phase_alone_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began = time.monotonic()
    found, took = _run(monkeypatch, tmp_path, '{"kernel": null}')
    assert found == {"kernel": None}
    assert 0.2 < took < time.monotonic() - began - 0.25


def test_a_run_without_results_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[__name__], "RUN", "#!/bin/sh\necho no such host >&2; exit 2\n")
    with pytest.raises(RuntimeError, match="exit code 2: no such host"):
        _run(monkeypatch, tmp_path, "")


def test_a_kind_that_fails_is_left_out_of_later_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(figures.ROUNDS, "3")
    order: list[str] = []

    def works() -> dict[str, float]:
        order.append("works")
        return {"ns": float(len(order))}

    def fails() -> dict[str, float]:
        order.append("fails")
        raise RuntimeError("not here")

    found = figures.in_turns("a", 9, {"fails": fails, "works": works})
    assert order == ["fails", "works", "works", "works"]
    assert found == {
        "rounds": 3,
        "values": {"works": {"ns": [2.0, 3.0, 4.0]}},
        "skipped": {"fails": "not here"},
    }


def test_peers_record_the_tracepoints_that_this_kernel_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "TRACEFS", tmp_path)
    for event in ("sched/sched_switch", "irq_vectors/local_timer_entry", "sched/sched_wakeup"):
        (tmp_path / "events" / event).mkdir(parents=True)
    assert peers.tracepoints(AUTO) == ["sched:sched_switch", "irq_vectors:local_timer_entry"]


def test_what_trace_cmd_recorded_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "TRACEFS", tmp_path)
    for processor, lost in enumerate((0, 3)):
        stats = tmp_path / f"per_cpu/cpu{processor}/stats"
        stats.parent.mkdir(parents=True)
        stats.write_text(
            f"entries: 5\noverrun: {lost}\ncommit overrun: 10\nbytes: 77\n"
            "oldest event ts: 113515335703473\ndropped events: 100\nread events: 1000\n"
        )
    peer = peers.Peer("trace-cmd", [], tmp_path)
    peer._said = (
        "CPU0 data recorded at offset=0xf9000\n    1060 bytes in size (8192 uncompressed)\n"
        "CPU1 data recorded at offset=0xfa000\n    4096 bytes in size\n"
    )
    assert peer.figures() == {"events": 2000, "dropped": 223, "bytes": 12288}


def test_processors_are_busy_when_they_are_neither_idle_nor_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    seconds = os.sysconf("SC_CLK_TCK")

    def busy(at: float, idle: float, iowait: float, steal: float) -> float:
        waits = [int(each * seconds) for each in (idle, iowait, 0, 0, steal)]
        monkeypatch.setattr(measured_machine, "_ticks", lambda: [9, 9, 9, *waits])
        monkeypatch.setattr("time.monotonic", lambda: at)
        return measured_machine.busy_time()

    before = busy(1000.0, 1500, 100, 50)
    assert busy(1010.0, 1512, 101, 52) - before == pytest.approx(20 - 15)
