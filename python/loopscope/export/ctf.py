"""One repeat of a run as one CTF 1.8 trace on the run's time line (`schema/merged-ctf.md`)."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopscope.timeline import Run


@dataclass(frozen=True)
class WrittenTrace:
    """Contents of a written trace."""

    events: int
    streams: int


def write_ctf(
    run: Run, repeat: int, reference: str, folder: Path, seen: Callable[[int, int], None]
) -> WrittenTrace:
    """Writes the trace directory `folder`, which appears when it is whole.

    `reference` is the host of the time line. ``seen`` is told of the rows that are done and of all.
    Raises `ValueError` with the reason where it cannot be written.
    """
    from loopscope import __version__
    from loopscope._native import export_ctf

    directory = run.repeats[repeat]
    name = f"{run.experiment}/{run.id}/{run.point}/{repeat}"
    env = {
        "tracer_name": "loopscope",
        "tracer_version": __version__,
        "experiment": run.experiment,
        "run": run.id,
        "point": run.point,
        "repeat": str(repeat),
    }
    # The same run's trace has the same UUID.
    number = uuid.uuid5(uuid.NAMESPACE_URL, f"loopscope:{name}").hex
    place = directory / "hosts" / reference
    beside = folder.resolve().parent
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".loopscope-", dir=beside) as spool:
        tables = [
            (name.replace(".", ":", 1), run.files_in_order(name, repeat, Path(spool)))
            for name, files in run.tables.items()
            if repeat in files
        ]
        written = json.loads(export_ctf(tables, place, folder, number, env, seen))
    return WrittenTrace(written["events"], written["streams"])
