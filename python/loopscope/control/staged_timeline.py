"""A time line in the making: apart from the one that is there, until it is whole."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopscope.layout import EVENTS, SUMMARY, TABLES

_PREFIX = ".timeline-"
# What is made of what hosts have recorded.
_OF_HOSTS = ("hosts/*/clock/estimates", "hosts/*/kernel/trace", "hosts/*/kernel/loss.json")


@contextmanager
def drafted(directory: Path) -> Iterator[Path]:
    """A folder in which to make ``timeline/``, ``tables/`` and what is made in hosts' folders.

    They take the place of earlier ones of a directory at the end, unless that is an exception; then
    nothing has changed.

    What a killed process left of its own is removed.
    """
    for left in directory.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    # Never a name again: who still writes there, unasked, finds no folder.
    draft = directory / f"{_PREFIX}{uuid.uuid4().hex}"
    draft.mkdir()
    try:
        yield draft
        _keep(draft, directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _keep(draft: Path, directory: Path) -> None:
    tables = directory / TABLES
    tables.mkdir(exist_ok=True)
    (tables / SUMMARY).unlink(missing_ok=True)
    made = [found.relative_to(draft) for each in _OF_HOSTS for found in sorted(draft.glob(each))]
    for number, folder in enumerate([Path(EVENTS), *made]):
        if (directory / folder).exists():
            (directory / folder).rename(draft / f"earlier-{number}")
        if (draft / folder).exists():
            (draft / folder).rename(directory / folder)
    for file in sorted((draft / TABLES).iterdir(), key=lambda file: file.name == SUMMARY):
        file.replace(tables / file.name)
