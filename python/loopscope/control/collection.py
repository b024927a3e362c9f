"""What of a repeat was not kept, in the description of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopscope.control.progress import Progress
from loopscope.control.rundir import BASE, POINT, rewrite
from loopscope.provider.left_out import LeftOut
from loopscope.strict_json import from_json


@dataclass
class Collection:
    """What of a repeat was not kept, by host."""

    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """Entries that are not kept."""

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
    }


def collected_later(run: Path, repeat: Path, later: Collection) -> None:
    """Writes down what is not kept of a repeat that has ended. Raises OSError and ValueError."""
    number, point = int(repeat.name), repeat.parent.name
    manifest = _read(run / "manifest.json")
    if point != BASE and not (run / point / POINT).exists():
        return  # in older runs the manifest describes the points
    said = manifest if point == BASE else _read(run / point / POINT)
    for key, found in described([later]).items():
        known: list[dict[str, Any]] = said.setdefault(key, [])
        known += [{} for _ in range(number - len(known))]
        known[number - 1].update(found[0])
    if point != BASE:
        rewrite(run / point / POINT, said)
        return
    rewrite(run / "manifest.json", manifest)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = from_json(file.read_text(encoding="utf-8"))
    return found
