"""What a hypervisor took of a machine's processors."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from loopscope.timeline.kernel_counts import read_counts


class Stolen(NamedTuple):
    """Time that was taken of a processor between two values of the counter."""

    processor: int
    begin: int
    end: int
    ns: int


def read_stolen(repeat: Path, kernel: str) -> list[Stolen] | None:
    """What was taken in a repeat, by the counts of a kernel; None where that is not counted."""
    found = read_counts(repeat, kernel).get("stolen")
    if found is None:
        return None
    return [Stolen(each["processor"], each["from"], each["until"], each["ns"]) for each in found]
