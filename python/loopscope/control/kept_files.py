"""Sizes and hashes of the files that a run sent to its hosts, and of those that it fetched."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypedDict

from loopscope.experiment import Experiment, files_that_match, files_to_send


class KeptFile(TypedDict):
    """A file as the manifest has it."""

    size: int
    sha256: str


def sent(experiment: Experiment) -> dict[str, KeptFile]:
    """The files of the experiment's folder that its hosts need. Raises OSError."""
    folder = Path(experiment.folder)
    return {path.as_posix(): _described(folder / path) for path in files_to_send(experiment)}


def fetched(
    experiment: Experiment, repeat: Path
) -> tuple[dict[str, dict[str, KeptFile]], list[str]]:
    """The files that components with ``fetch`` left, in the settled directory of a repeat.

    With them, text about patterns that nothing matched. Raises OSError.
    """
    found: dict[str, dict[str, KeptFile]] = {}
    missing = []
    for spec in experiment.components:
        if not spec.fetch:
            continue
        folder = repeat / "hosts" / spec.host / "components" / spec.name / "files"
        files: set[Path] = set()
        for pattern in spec.fetch:
            matched = files_that_match(folder, pattern)
            if not matched:
                missing.append(f"{spec.name} on {spec.host} left no file {pattern} (fetch)")
            files.update(matched)
        found[spec.name] = {
            path.relative_to(folder).as_posix(): _described(path) for path in sorted(files)
        }
    return found, missing


def _described(path: Path) -> KeptFile:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        size = 0
        while part := file.read(1 << 20):
            digest.update(part)
            size += len(part)
    return {"size": size, "sha256": digest.hexdigest()}
