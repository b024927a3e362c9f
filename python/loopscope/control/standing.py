"""How far a run is, from its manifest and the journal of its newest repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loopscope.control.journal import JOURNAL, entries

NEWEST_NOTES = 5


@dataclass
class ComponentStanding:
    """What a component does."""

    host: str
    component: str
    status: str
    since_s: float
    """Since when, in seconds of the desk's CLOCK_REALTIME."""


@dataclass
class Standing:
    """How far a run is."""

    run: Path
    experiment: str
    status: str
    """As the manifest has it: running, complete, failed, interrupted, killed."""
    verdict: str | None
    repeat: Path | None = None
    """Directory of the newest repeat; None: there is none yet."""
    stage: str | None = None
    """The stage or phase that began last, and since when."""
    stage_since_s: float | None = None
    timeout_s: float | None = None
    """How long the phase may take; None: it is no phase."""
    components: dict[str, ComponentStanding] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """The newest notes."""
    failure: str | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the run goes on."""
        return self.status == "running"

    def to_json(self) -> dict[str, Any]:
        """It as JSON."""
        as_text = {"run": str(self.run), "repeat": self.repeat and str(self.repeat)}
        components = [asdict(each) for each in self.components.values()]
        return {**asdict(self), **as_text, "components": components}


def runs_below(folder: Path) -> list[Path]:
    """The directories of all runs below a folder of runs, the newest last."""
    manifests = folder.glob("*/*/manifest.json")
    runs = (file.parent for file in manifests if not file.parent.is_symlink())
    return sorted(runs, key=lambda run: (run.name, run.parent.name))


def repeats_of(run: Path) -> list[Path]:
    """The directories of a run's repeats that have a journal, the newest last."""
    found = [file.parent for file in run.glob(f"*/*/{JOURNAL}")]
    return sorted(found, key=_began)


def _began(repeat: Path) -> float:
    for entry, _ in entries(repeat / JOURNAL):
        return float(entry.get("at_s", 0))
    return 0


def standing_of(run: Path, manifest: Mapping[str, Any]) -> Standing:
    """How far a run is, whose manifest that is. Raises OSError."""
    standing = Standing(
        run,
        str(manifest.get("experiment", {}).get("name", run.parent.name)),
        str(manifest.get("status", "unknown")),
        manifest.get("verdict"),
    )
    repeats = repeats_of(run)
    if repeats:
        standing.repeat = repeats[-1]
        for entry, _ in entries(repeats[-1] / JOURNAL):
            _take(standing, entry)
    return standing


def _take(standing: Standing, entry: dict[str, Any]) -> None:
    at_s = float(entry["at_s"])
    if "stage" in entry or "phase" in entry:
        phase = f"phase {entry.get('phase')}" + (" (measured)" if entry.get("measured") else "")
        standing.stage = entry.get("stage", phase)
        standing.stage_since_s = at_s
        standing.timeout_s = entry.get("timeout_s")
    elif "component" in entry:
        name = entry["component"]
        standing.components[name] = ComponentStanding(entry["host"], name, entry["status"], at_s)
    elif "note" in entry:
        standing.notes = [*standing.notes, entry["note"]][-NEWEST_NOTES:]
    elif "failure" in entry:
        standing.failure = entry["failure"]
