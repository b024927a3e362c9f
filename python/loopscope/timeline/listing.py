"""The runs in a folder, each by what its manifest says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from loopscope.timeline.manifest import read_manifest, run_id
from loopscope.timeline.table_error import RunError


@dataclass(frozen=True)
class ListedRun:
    """A run as its manifest describes it."""

    experiment: str
    id: str
    start: datetime | None
    """None where the manifest does not say it."""
    state: str
    """`complete`, `failed`, `interrupted`, `killed`, `running`, or `unreadable`."""
    verdict: str | None
    """PASS, FAIL or UNKNOWN, when the run was made; None where nothing was expected or judged."""
    points: int
    """Combinations of swept parameters; 1 without a sweep."""
    directory: Path


def list_runs(folder: Path) -> list[ListedRun]:
    """The runs below a folder such as `runs` or `runs/pipeline`, the oldest first.

    Raises `RunError` where there is no such folder.
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder")
    found = [_listed(path) for path in _directories(folder)]
    return sorted(found, key=lambda each: (each.directory.name, each.experiment))


def _directories(folder: Path) -> Iterator[Path]:
    for pattern in ("*/manifest.json", "*/*/manifest.json"):
        for file in folder.glob(pattern):
            if not file.parent.is_symlink():  # latest
                yield file.parent


def _listed(path: Path) -> ListedRun:
    try:
        manifest = read_manifest(path)
        experiment = manifest.get("experiment", {})
        created = manifest.get("created")
        return ListedRun(
            experiment=str(experiment.get("name") or path.parent.name),
            id=run_id(path, manifest),
            start=None if created is None else datetime.fromisoformat(created),
            state=str(manifest.get("status", "complete")),
            verdict=manifest.get("verdict"),
            points=max(1, len(experiment.get("points", ()))),
            directory=path,
        )
    except (RunError, AttributeError, TypeError, ValueError):
        return ListedRun(path.parent.name, path.name, None, "unreadable", None, 0, path)
