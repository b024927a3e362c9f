"""Notes about a disk that becomes full while a run goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loopscope.control.disk_space import LEAST_BYTES, look, noted_when_full
from loopscope.control.progress import Silent


class Noting(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_full_disk_is_noted_once() -> None:
    left = iter([None, 5 * LEAST_BYTES, LEAST_BYTES, 4096, 0])
    progress = Noting()
    asyncio.run(look(Path("runs/x/1"), progress, lambda _: next(left), pause_s=0))
    (note,) = progress.notes
    assert note.startswith("the disk of runs/x/1 is full (4KiB left): "), note
    assert next(left) == 0, "nobody looks any more"


def test_a_disk_with_room_and_one_that_is_gone_are_not_noted(tmp_path: Path) -> None:
    progress = Noting()

    async def work() -> None:
        for folder in (tmp_path, tmp_path / "gone"):
            with noted_when_full(folder, progress):
                await asyncio.sleep(0)

    asyncio.run(work())
    assert progress.notes == []
