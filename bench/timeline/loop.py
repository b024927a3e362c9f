"""What the events of a periodic loop take on disk: loop.c."""

from __future__ import annotations

import json
import sys
from typing import Any

from timeline.recorded import HERE, Recorded, run
from timeline.tables import BUILD, size

PERIOD_US = 200
SECONDS = 20


def disk(recorded: Recorded) -> dict[str, Any]:
    """Bytes of the tables per event of a loop that wakes, computes and ends, in all columns."""
    program = recorded.bench.build("loop", source=HERE)
    place = recorded.directory / "events-of-loop"
    words = [str(PERIOD_US), str(SECONDS)]
    _, account, _ = recorded.bench.record(program, *words, output=place, keep=True)
    summary = json.loads(run([sys.executable, "-c", BUILD, place]).printed)
    events = sum(summary["events"].values())
    return {
        "events": events,
        "dropped": account["dropped"],
        "period_us": PERIOD_US,
        "bytes_per_event": round(size(place) / events, 3),
        "stream_bytes_per_event": round(account["bytes"] / events, 3),
    }
