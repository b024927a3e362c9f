"""Run directories: made, described, linked as the latest. The layout is schema/run-directory.md."""

from __future__ import annotations

import json
import os
import secrets
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from loopscope.experiment import Experiment

MANIFEST_VERSION = 1


class RunDirectory:
    """One run's directory while it is made."""

    def __init__(self, root: Path, experiment: Experiment, source: bytes, version: str) -> None:
        """Makes ``root/<experiment>/<UTC>-<id>`` and what describes it; ``source`` is the file."""
        now = datetime.now(timezone.utc)
        token = secrets.token_hex(3)
        self.id = f"{now:%Y%m%dT%H%M%SZ}-{token}"
        self.token = token
        self.failed_points: dict[str, str] = {}
        """Points of the sweep that failed, each with the reason."""
        self.path = root / experiment.name / self.id
        self.path.mkdir(parents=True)
        (self.path / "experiment.yaml").write_bytes(source)
        self._manifest: dict[str, Any] = {
            "version": MANIFEST_VERSION,
            "run": self.id,
            "created": now.isoformat(timespec="seconds"),
            "loopscope": version,
            "status": "running",
            "experiment": experiment.to_manifest(),
        }
        self._write()
        self._link_latest()

    def repeat(self, number: int, point: str = "base") -> Path:
        """The directory of a point's repeat (from 1), made."""
        path = self.path / point / str(number)
        path.mkdir(parents=True)
        return path

    def describe(self, **entries: Any) -> None:
        """Adds to the manifest."""
        self._manifest.update(entries)
        self._write()

    def describe_point(self, name: str, **entries: Any) -> None:
        """Adds to what the manifest says of a point of the sweep."""
        self._manifest.setdefault("points", {}).setdefault(name, {}).update(entries)
        self._write()

    def write_results(self, text: str) -> None:
        """Keeps what ``run --json`` prints."""
        (self.path / "results.json").write_text(text)

    def _write(self) -> None:
        draft = self.path / ".manifest.json"
        draft.write_text(json.dumps(self._manifest, indent=2) + "\n")
        draft.replace(self.path / "manifest.json")

    def _link_latest(self) -> None:
        link = self.path.parent / "latest"
        draft = self.path.parent / f".latest-{self.token}"
        draft.symlink_to(self.path.name)
        os.replace(draft, link)
