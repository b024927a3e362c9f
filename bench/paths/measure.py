"""From cold files to a path's table and its hops, and the same join as one query of DuckDB's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from paths import events

MESSAGES = 10_000_000
ROUNDS = 3


def lists() -> dict[str, Any]:
    """Five hops by one number."""
    return _measured("list", peer=True)


def graphs() -> dict[str, Any]:
    """A branch, a new number, and a sampler by time."""
    return _measured("graph", peer=False)


def _measured(kind: str, peer: bool) -> dict[str, Any]:
    from targets import spread

    messages = int(os.environ.get("LOOPSCOPE_BENCH_MESSAGES", MESSAGES))
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as name:
        root = Path(name) / "run"
        events.write(root, events.LIST if kind == "list" else events.GRAPH, messages)
        ours = [_child("path", kind, root) for _ in range(ROUNDS)]
        theirs = [_child("query", kind, root) for _ in range(ROUNDS)] if peer else []
    found: dict[str, Any] = {
        "messages": messages,
        "rows": ours[0]["rows"],
        "hops": ours[0]["hops"],
        **{
            name: spread([each[name] for each in ours])
            for name in ("seconds", "cpu_seconds", "peak_mb")
        },
    }
    if peer:
        found["query_seconds"] = spread([each["seconds"] for each in theirs])
        pairs = zip(theirs, ours, strict=True)
        found["ratio"] = spread([query["seconds"] / own["seconds"] for query, own in pairs])
    return found


def _child(what: str, kind: str, root: Path) -> dict[str, Any]:
    """In a process of its own, its files out of the page cache."""
    for file in root.rglob("*.parquet"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    words = [sys.executable, "-m", "paths.once", what, kind, str(root)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result
