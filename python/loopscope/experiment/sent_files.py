"""Files of the experiment's folder that machines without it need."""

from __future__ import annotations

from pathlib import Path

from .plan import Experiment


def matches(folder: Path, pattern: str) -> list[Path]:
    """Files in ``folder`` that match, and those below a folder that does."""
    found: list[Path] = []
    for path in folder.glob(pattern):
        found += path.rglob("*") if path.is_dir() else [path]
    return [path for path in found if path.is_file()]


def files_to_send(experiment: Experiment) -> list[Path]:
    """The files that hosts need, relative to the experiment's folder, sorted.

    They match a pattern of ``send``, or are named in a command by a word that begins with ``./``.
    Such a word may also name what a program is going to make: that is left out.
    """
    folder = Path(experiment.folder)
    found = {path for pattern in experiment.send for path in matches(folder, pattern)}
    for component in experiment.components:
        named = [Path(word) for word in component.argv if word.startswith("./")]
        found.update(
            folder / path for path in named if ".." not in path.parts and (folder / path).is_file()
        )
    return sorted(path.relative_to(folder) for path in found)
