"""Runs as one archive, from which every table and figure can be made again."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loopscope.layout import EVENTS, TABLES

DERIVED = (EVENTS, TABLES, "figures", "report.html")
"""Names that ``loopscope report`` makes from the rest, in a run and its points."""


def write_bundle(runs: Sequence[Path], file: Path, seen: Callable[[str], None]) -> tuple[int, int]:
    """Packs run directories into `file`, a tar.gz, as `runs/<experiment>/<run>`.

    What can be made again is left out. ``seen`` is told of each run. Returns the numbers of files
    and of their bytes. Raises `OSError`.
    """
    unfinished = file.with_name(file.name + ".unfinished")
    files = size = 0
    try:
        with tarfile.open(unfinished, "w:gz", format=tarfile.PAX_FORMAT) as archive:
            for run in runs:
                root = run.resolve()
                place = Path("runs") / root.parent.name / root.name
                seen(str(place))
                for path in _original(root):
                    archive.add(path, place / path.relative_to(root), recursive=False)
                    files += 1
                    size += path.lstat().st_size
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return files, size


def _original(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        # A point is one level below the run, a repeat two: deeper, the names are programs' own.
        if len(here.relative_to(root).parts) <= 2:
            # What is hidden is a killed process's, which was making something again.
            folders[:] = [name for name in folders if name not in DERIVED and name[0] != "."]
            names = [name for name in names if name not in DERIVED]
        folders.sort()
        yield from (here / name for name in sorted(names))
