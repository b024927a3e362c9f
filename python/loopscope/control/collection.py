"""What of a repeat was not kept or not collected, in the description of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopscope.control.progress import Progress
from loopscope.control.rundir import BASE, COMPLETE, FAILED, POINT, rewrite
from loopscope.provider.left_out import LeftOut
from loopscope.strict_json import from_json


@dataclass
class Collection:
    """What of a repeat was not kept or not collected, by host."""

    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """Entries that are not kept."""
    uncollected: dict[str, str] = field(default_factory=dict)
    """Why what a host measured is not here; text for people that begins with the host."""
    unfinished: dict[str, str] = field(default_factory=dict)
    """Why an agent did not end the run in order; text for people that begins with the host."""

    @property
    def problems(self) -> list[str]:
        """Why it is not whole, for people."""
        return list(dict.fromkeys([*self.unfinished.values(), *self.uncollected.values()]))

    def leave_out(self, found: Mapping[str, LeftOut]) -> None:
        """Adds entries that are not kept."""
        for host, left_out in found.items():
            if left_out.count:
                self.left_out.setdefault(host, LeftOut()).add_all(left_out)

    def note_left_out(self, progress: Progress) -> None:
        """Shows which entries are not kept."""
        for host, left_out in sorted(self.left_out.items()):
            progress.note(left_out.note(host))


def described(repeats: Sequence[Collection]) -> dict[str, Any]:
    """The entries of a run's or a point's description about its repeats."""
    return {
        "left_out": [
            {host: found.to_manifest() for host, found in each.left_out.items()} for each in repeats
        ],
        "uncollected": [each.uncollected for each in repeats],
        "unfinished": [each.unfinished for each in repeats],
    }


def collected_later(run: Path, repeat: Path, later: Collection, hosts: Sequence[str]) -> None:
    """Writes down that what ``hosts`` measured is here now, and what of it is not kept.

    A run that failed for nothing else is complete then. Raises OSError and ValueError.
    """
    number, point = int(repeat.name), repeat.parent.name
    manifest = _read(run / "manifest.json")
    if point != BASE and not (run / point / POINT).exists():
        return  # in older runs the manifest describes the points
    said = manifest if point == BASE else _read(run / point / POINT)
    for key, found in described([later]).items():
        known: list[dict[str, Any]] = said.setdefault(key, [])
        known += [{} for _ in range(number - len(known))]
        known[number - 1].update(found[0])
        for host in hosts if key == "uncollected" else ():
            known[number - 1].pop(host, None)
    if said.get("status") == FAILED and _is_whole(said, manifest, point):
        said["status"] = COMPLETE
        said.pop("error", None)
    if point != BASE:
        rewrite(run / point / POINT, said)
        points = [each["name"] for each in manifest["experiment"]["points"]]
        files = [run / name / POINT for name in points]
        done = [file.exists() and _read(file).get("status") == COMPLETE for file in files]
        if manifest.get("status") != FAILED or not all(done):
            return
        manifest["status"] = COMPLETE
    rewrite(run / "manifest.json", manifest)


def _is_whole(said: Mapping[str, Any], manifest: Mapping[str, Any], point: str) -> bool:
    """Whether all repeats were measured and are here."""
    experiment = manifest["experiment"]
    if point != BASE:
        experiment = next(p["experiment"] for p in experiment["points"] if p["name"] == point)
    missing = [*said["uncollected"], *said["unfinished"]]
    return len(said.get("phases", ())) == experiment["repeat"] and not any(missing)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = from_json(file.read_text(encoding="utf-8"))
    return found
