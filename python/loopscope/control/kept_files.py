"""Sizes and hashes of the files that a run sends to its hosts, and of those that it fetches."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypedDict

from loopscope.control.failure import RunFailed
from loopscope.experiment import Experiment, files_that_match, files_to_send


class KeptFile(TypedDict):
    """A file as the manifest has it."""

    size: int
    sha256: str


def sent(experiment: Experiment) -> dict[str, KeptFile]:
    """The files of the experiment's folder that its hosts need. Raises RunFailed."""
    folder = Path(experiment.folder)
    try:
        return {path.as_posix(): _described(folder / path) for path in files_to_send(experiment)}
    except OSError as error:
        raise RunFailed(
            f"cannot read {error.filename}, which the hosts need: {error.strerror}"
        ) from None


def fetched(
    experiment: Experiment, repeat: Path
) -> tuple[dict[str, dict[str, KeptFile]], list[str]]:
    """The files that components with ``fetch`` left, in the settled directory of a repeat.

    They are by component and by path in its working directory. Also returns text for people about
    patterns that nothing matched and files that cannot be read.
    """
    found: dict[str, dict[str, KeptFile]] = {}
    problems = []
    for spec in experiment.components:
        if not spec.fetch:
            continue
        folder = repeat / "hosts" / spec.host / "components" / spec.name / "files"
        files: set[Path] = set()
        for pattern in spec.fetch:
            matched = files_that_match(folder, pattern)
            if not matched:
                problems.append(f"{spec.name} on {spec.host} left no file {pattern} (fetch)")
            files.update(matched)
        found[spec.name] = {}
        for path in sorted(files):
            try:
                found[spec.name][path.relative_to(folder).as_posix()] = _described(path)
            except OSError as error:
                problems.append(f"cannot read {path} (fetch): {error.strerror}")
    return found, problems


def _described(path: Path) -> KeptFile:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        size = 0
        while part := file.read(1 << 20):
            digest.update(part)
            size += len(part)
    return {"size": size, "sha256": digest.hexdigest()}
