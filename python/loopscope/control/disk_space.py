"""Room on the disk of a run: a note, once, when there is none while the run goes on.

The hosts of a local testbed write there, and what they find no room for is known at the end only.
Other hosts report it of their own disks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loopscope.control.progress import Progress
from loopscope.experiment import quantity

LOOK_S = 1.0
# A disk with less room is full: packets of streams and pages of kernels' buffers are as large.
LEAST_BYTES = 1 << 20


@contextmanager
def noted_when_full(folder: Path, progress: Progress) -> Iterator[None]:
    """Looks at the disk of ``folder`` every second, for as long as the context lasts."""
    looking = asyncio.get_running_loop().create_task(look(folder, progress))
    try:
        yield
    finally:
        looking.cancel()


async def look(
    folder: Path,
    progress: Progress,
    room: Callable[[Path], int | None] | None = None,
    pause_s: float = LOOK_S,
) -> None:
    """Returns when it has noted that the disk is full. ``room``: the bytes left, None: unknown."""
    room = room or _room
    while True:
        left = room(folder)
        if left is not None and left < LEAST_BYTES:
            note(progress, str(folder), left)
            return
        await asyncio.sleep(pause_s)


def note(progress: Progress, of: str, left_bytes: int) -> None:
    """Says that a disk is full: that of a folder, or that on which a host writes."""
    progress.note(
        f"the disk of {of} is full ({quantity.format(left_bytes, quantity.SIZE)} left): what finds "
        "no room there is lost, and events are counted as dropped. Make room, or end the run"
    )


def _room(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    # Some file systems do not say how large they are.
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    return blocks * found.f_frsize if found.f_blocks else None
