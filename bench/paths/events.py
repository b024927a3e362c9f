"""A run of messages over six events, as the files that the time line makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from loopscope.experiment import MessagePath, PathEdge, PathEvent

HOSTS = {"h1": 0, "h2": 850, "h3": 900}
"""With the maximum error of their stamps, ns."""
PERIOD_NS = 1000
LOST = 0.001
"""Share of the messages on each hop."""
_ROWS = 1 << 20

EVENTS = (
    PathEvent("source", "h1", "pipe", "sent"),
    PathEvent("node1", "h2", "pipe1", "received"),
    PathEvent("node1", "h2", "pipe2", "sent"),
    PathEvent("node2", "h3", "pipe3", "received"),
    PathEvent("node2", "h3", "pipe4", "sent"),
    PathEvent("sink", "h1", "pipe5", "received"),
)
LIST = MessagePath("loop", "id", EVENTS)
"""Five hops."""
GRAPH = MessagePath(
    "loop",
    "id",
    (
        PathEvent("camera", "h1", "cam", "sent"),
        PathEvent("logger", "h3", "log", "received"),
        PathEvent("tracker", "h2", "cam", "received"),
        PathEvent("tracker", "h2", "est", "made"),
        PathEvent("controller", "h3", "est", "received"),
        PathEvent("controller", "h3", "act", "applied"),
    ),
    keys=("id", "id", "id", "id", "id", None),
    edges=(
        PathEdge(0, 1, "key", "id"),
        PathEdge(0, 2, "key", "id"),
        PathEdge(2, 3, "key", "frame"),
        PathEdge(3, 4, "key", "id"),
        PathEdge(4, 5, "latest", None),
    ),
)
"""A branch, a new number, and a sampler that is a third faster than what it samples."""


@dataclass(frozen=True)
class Seen:
    """Messages at an event."""

    id: npt.NDArray[np.int64]
    ts: npt.NDArray[np.int64]

    def after(self, chance: np.random.Generator, longest_ns: int) -> Seen:
        """At the next event: some are lost, some overtaken."""
        kept = chance.random(len(self.id)) >= LOST
        ts = self.ts[kept] + chance.integers(100, longest_ns, int(kept.sum()))
        order = np.argsort(ts, kind="stable")
        return Seen(self.id[kept][order], ts[order])


def write(root: Path, path: MessagePath, messages: int) -> None:
    """A run directory with the path's events."""
    chance = np.random.default_rng(1)
    sent = Seen(np.arange(messages), 10**9 + PERIOD_NS * np.arange(messages))
    if path is LIST:
        seen = [sent]
        for _ in EVENTS[1:]:
            seen.append(seen[-1].after(chance, 20 * PERIOD_NS))
        for event, each in zip(EVENTS, seen, strict=True):
            _table(root, event, each)
    else:
        _graph(root, chance, sent)
    tables = root / "base/1/tables"
    tables.mkdir()
    hosts = {"host": list(HOSTS), "drift_ppm": [0.0, 0.05, 0.05]}
    pq.write_table(pa.table(hosts), tables / "hosts.parquet")
    (root / "base/1/hosts").mkdir()


def _graph(root: Path, chance: np.random.Generator, sent: Seen) -> None:
    camera, logger, received, made, came, applied = GRAPH.events
    _table(root, camera, sent)
    _table(root, logger, sent.after(chance, 20 * PERIOD_NS))
    at_tracker = sent.after(chance, 20 * PERIOD_NS)
    _table(root, received, at_tracker)
    estimates = Seen(np.arange(len(at_tracker.id)) + 7, at_tracker.ts + 500)
    _table(root, made, estimates, frame=at_tracker.id)
    _table(root, came, estimates.after(chance, 20 * PERIOD_NS))
    steps = 10**9 + PERIOD_NS * 3 // 4 * np.arange(len(sent.id) * 4 // 3)
    _table(root, applied, Seen(np.zeros_like(steps), steps))


def _table(root: Path, event: PathEvent, seen: Seen, **fields: npt.NDArray[np.int64]) -> None:
    folder = root / "base/1/timeline" / event.group / event.name
    folder.mkdir(parents=True)
    n = len(seen.id)

    def same(text: str) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text]))

    table = pa.table(
        {
            "ts": seen.ts,
            "err_ns": np.full(n, HOSTS[event.host]),
            "counter": seen.ts.astype(np.uint64) * 3,
            "host": same(event.host),
            "process": same(event.component),
            "id": seen.id,
            **fields,
        }
    )
    integers: Sequence[str] = [
        name for name in table.column_names if name not in ("host", "process")
    ]
    pq.write_table(
        table,
        folder / "part-0.parquet",
        compression="zstd",
        use_dictionary=["host", "process"],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        row_group_size=_ROWS,
    )
