"""What recording the kernel adds to the pipeline's response time, and what peers add."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from targets import spread

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments/pipeline.yaml"
ROUNDS = 9
COUNT = 2000
PATTERNS = "[sched:*, irq:*, softirq:*]"
# The tracepoints of `auto`, as peers name them.
TRACEPOINTS = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_process_fork",
    "irq:irq_handler_entry",
    "irq:irq_handler_exit",
    "irq_vectors:local_timer_entry",
    "irq_vectors:local_timer_exit",
]
PEERS = ("perf record", "trace-cmd record")
# What an ordinary user gets, who may not record events: counts of threads and stamps of sockets.
USER = "nobody"
OF_USER = ("off, no root", "auto, no root")
KINDS = ("off", "auto", PATTERNS, "[sleep:*]", "[tcp:*]", "[call:*]", "full", *PEERS, *OF_USER)


def measure(folder: Path) -> dict[str, Any]:
    """p50 and p99 of the loop with each kind of recording, in rounds that take them in turn.

    By kind: ns, ratios to the same round without recording, and of our own events and bytes.
    """
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    skipped: dict[str, str] = {}
    for _ in range(ROUNDS):
        for kind in KINDS:
            if kind in skipped:
                continue
            try:
                result = _once(folder, kind)
            except (OSError, RuntimeError) as error:
                skipped[kind] = str(error)[-300:]
                continue
            for name, value in result.items():
                found[kind].setdefault(name, []).append(value)
    return {
        "messages": COUNT,
        "rounds": ROUNDS,
        "kinds": {
            kind: _summary(each, found[OF_USER[0] if kind in OF_USER else "off"])
            for kind, each in found.items()
            if each
        },
        "skipped": skipped,
    }


def _summary(found: dict[str, list[float]], off: dict[str, list[float]]) -> dict[str, Any]:
    summary: dict[str, Any] = {name: spread(values) for name, values in found.items()}
    for name in ("p50_ns", "p99_ns"):
        pairs = zip(found[name], off[name], strict=False)
        summary[f"{name}_ratio"] = spread([with_it / without for with_it, without in pairs])
    return summary


def _once(folder: Path, kind: str) -> dict[str, float]:
    peer = kind.partition(" ")[0] if kind in PEERS else None
    recorded = "off" if peer else kind.partition(",")[0] if kind in OF_USER else kind
    text = EXPERIMENT.read_text().replace(
        'trace: {user: ["pipe:*"]}', f"trace: {{user: ['pipe:*'], kernel: {recorded}}}"
    )
    if "kernel:" not in text:
        raise RuntimeError("the pipeline's trace section has another form")
    # What the bench makes is its user's alone.
    folder = Path(tempfile.mkdtemp(dir=None if kind in OF_USER else folder, prefix="loop-"))
    file = folder / "pipeline.yaml"
    file.write_text(text)
    words = [LOOPSCOPE, "run", file, "-p", f"count={COUNT}", "--runs", folder / "runs", "--json"]
    environment = dict(os.environ)
    if kind in OF_USER:
        become = ["setpriv", f"--reuid={USER}", f"--regid={pwd.getpwnam(USER).pw_gid}"]
        words = [*become, "--clear-groups", *words]
        environment |= {"HOME": str(folder), "LOOPSCOPE_STATE_DIR": str(folder / "state")}
        shutil.chown(folder, USER)
    beside: AbstractContextManager[None] = _peer(peer, folder) if peer else nullcontext()
    try:
        with beside:
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, env=environment, cwd=folder
            )
        if not done.stdout:
            raise RuntimeError(done.stderr)
        return _figures(json.loads(done.stdout), kind, folder)
    finally:
        shutil.rmtree(folder)


def _figures(results: dict[str, Any], kind: str, folder: Path) -> dict[str, float]:
    """What a run's results and files say."""
    loop = results["paths"]["loop"]
    found = {"p50_ns": loop["p50_ns"], "p99_ns": loop["p99_ns"]}
    if kernel := results.get("kernel"):
        if kernel["unrecorded"] and kind not in OF_USER:
            raise RuntimeError(str(kernel["unrecorded"]))
        classes = kernel["classes"].values()
        found["events"] = sum(each["emitted"] for each in classes)
        found["dropped"] = sum(each["dropped"] for each in classes)
        if kernel["event_ns"]:
            # The scheduler's, where there are several: most events cost as much.
            costs = kernel["event_ns"]
            found["event_ns"] = costs.get("sched", next(iter(costs.values())))
        pages = (folder / "runs/pipeline/latest").glob("base/*/hosts/*/kernel/*/*")
        found["bytes"] = sum(each.stat().st_size for each in pages if each.is_file())
    return found


@contextmanager
def _peer(peer: str, folder: Path) -> Iterator[None]:
    """The peer records the same tracepoints of all processors meanwhile."""
    program = shutil.which(peer)
    if program is None:
        raise RuntimeError(f"{peer} is not installed: scripts/setup --bench")
    events = [word for event in TRACEPOINTS for word in ("-e", event)]
    output = folder / f"{peer}.data"
    words = [program, "record", *(["-a"] if peer == "perf" else []), *events, "-o", str(output)]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(1.0)
        if process.poll() is not None:
            assert process.stderr is not None
            raise RuntimeError(process.stderr.read())
        try:
            yield
        finally:
            process.send_signal(2)
            process.communicate(timeout=60)
    for file in folder.glob(f"{peer}.data*"):
        file.unlink()
