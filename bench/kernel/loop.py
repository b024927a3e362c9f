"""What recording the kernel adds to the pipeline's response time, and what peers add."""

from __future__ import annotations

import pwd
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import measured_machine
from figures import in_turns
from targets import added, spread

from kernel import runs
from kernel.peers import Peer, tracepoints
from loopscope.experiment.kernel_events import AUTO

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments/pipeline.yaml"
ROUNDS = 9
COUNT = 2000
TRACE = 'trace: {user: ["pipe:*"]}'
# The node whose port is filtered by.
NODE = "with: {to: node2}"
PORT = 7001
# What an ordinary user gets, who may not record events: counts of threads and stamps of sockets.
USER = "nobody"
# Before the name of a class: what one of its events costs, ns.
COST = "event_ns of "


@dataclass(frozen=True)
class Kind:
    """What is recorded of the kernel: `trace: kernel`, `kernel_filters`, and by a peer."""

    kernel: str = "off"
    filters: str = ""
    peer: str = ""
    patterns: Sequence[str] = ()
    """On the events that the peer records."""
    of_user: bool = False

    @property
    def base(self) -> str:
        """The kind without a recording that it is compared with."""
        return "off, no root" if self.of_user else "off"


PATTERNS = ("sched:*", "irq:*", "softirq:*")
TEXT = f"[{', '.join(PATTERNS)}]"
LEDGERS = "[tcp:*, udp:*, call:*]"
FILTERS = f"{{ports: [{PORT}], devices: [data0], calls_over: 100us}}"
RECORDED = {"auto": AUTO, TEXT: PATTERNS, "full": ("*",)}
KINDS = {
    "off": Kind(),
    **{text: Kind(text) for text in ("auto", TEXT, "[sleep:*]", "[tcp:*]", "[call:*]", LEDGERS)},
    f"{LEDGERS}, filtered": Kind(LEDGERS, filters=FILTERS),
    "full": Kind("full"),
    **{
        f"{peer} record: {text}": Kind(peer=peer, patterns=patterns)
        for text, patterns in RECORDED.items()
        for peer in ("perf", "trace-cmd")
    },
    "off, no root": Kind(of_user=True),
    "auto, no root": Kind("auto", of_user=True),
}


def measure(folder: Path) -> dict[str, Any]:
    """p50 and p99 of the loop with each kind of recording, in rounds that take them in turn.

    By kind: ns, the machine's CPU time, what both are more than in the same round without
    recording, ratios to that, and of the events that were recorded.
    """
    every = {name: partial(_once, folder, kind) for name, kind in KINDS.items()}
    found = in_turns("kernel-loop", ROUNDS, every)
    values = found.pop("values")
    kinds = {
        name: _summary(each, values[KINDS[name].base])
        for name, each in values.items()
        if KINDS[name].base in values
    }
    return {"messages": COUNT, **found, "kinds": kinds}


def _summary(found: dict[str, list[float]], off: dict[str, list[float]]) -> dict[str, Any]:
    summary: dict[str, Any] = {
        name: spread(values) for name, values in found.items() if not name.startswith(COST)
    }
    costs = {name: values for name, values in found.items() if name.startswith(COST)}
    summary["event_ns"] = {name.removeprefix(COST): spread(each) for name, each in costs.items()}
    for name in ("p50_ns", "p99_ns"):
        pairs = zip(found[name], off[name], strict=False)
        summary[f"{name}_ratio"] = spread([with_it / without for with_it, without in pairs])
    for name in ("p50_ns", "p99_ns", "cpu"):
        summary[f"{name}_added"] = added(found[name], off[name])
    return summary


def experiment(kind: Kind) -> str:
    """The pipeline with a kind of recording, as a file has it."""
    text = EXPERIMENT.read_text()
    if TRACE not in text or NODE not in text:
        raise RuntimeError("the pipeline has another form")
    filters = f", kernel_filters: {kind.filters}" if kind.filters else ""
    text = text.replace(TRACE, f"trace: {{user: ['pipe:*'], kernel: {kind.kernel}{filters}}}")
    return text.replace(NODE, f"with: {{to: node2, port: {PORT}}}")


def _once(folder: Path, kind: Kind) -> dict[str, float]:
    # What the bench makes is its user's alone.
    folder = Path(tempfile.mkdtemp(dir=None if kind.of_user else folder, prefix="loop-"))
    file = folder / "pipeline.yaml"
    file.write_text(experiment(kind))
    within: list[str] = []
    environment: dict[str, str] = {}
    if kind.of_user:
        group = pwd.getpwnam(USER).pw_gid
        within = ["setpriv", f"--reuid={USER}", f"--regid={group}", "--clear-groups"]
        environment = {"HOME": str(folder), "LOOPSCOPE_STATE_DIR": str(folder / "state")}
        shutil.chown(folder, USER)
    found: dict[str, float] = {}
    try:
        events = tracepoints(kind.patterns)
        with Peer(kind.peer, events, folder) if kind.peer else nullcontext() as peer:
            results = runs.results_of(
                file,
                "-p",
                f"count={COUNT}",
                measured=_measured(found, peer),
                within=within,
                environment=environment,
            )
            if peer is not None:
                found |= peer.figures()
        return found | _figures(results, kind, folder)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _measured(found: dict[str, float], peer: Peer | None) -> Iterator[None]:
    """Finds the machine's CPU time meanwhile, as a share of one CPU. The peer ends with it."""
    began, busy = time.monotonic(), measured_machine.busy_time()
    yield
    found["cpu"] = (measured_machine.busy_time() - busy) / (time.monotonic() - began)
    if peer is not None:
        peer.stop()


def _figures(results: dict[str, Any], kind: Kind, folder: Path) -> dict[str, float]:
    """What a run's results and files say."""
    loop = results["paths"]["loop"]
    found = {"p50_ns": loop["p50_ns"], "p99_ns": loop["p99_ns"]}
    if kernel := results.get("kernel"):
        if not kind.of_user:
            runs.recorded(results)
        classes = kernel["classes"].values()
        found["events"] = sum(each["emitted"] for each in classes)
        found["dropped"] = sum(each["dropped"] for each in classes)
        found |= {COST + name: ns for name, ns in kernel["event_ns"].items()}
        pages = (folder / "runs/pipeline/latest").glob("base/*/hosts/*/kernel/*/*")
        found["bytes"] = sum(each.stat().st_size for each in pages if each.is_file())
    return found
