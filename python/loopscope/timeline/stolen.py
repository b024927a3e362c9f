"""What a hypervisor took of a machine's processors: `hosts/<kernel>/kernel/counts.json`.

`schema/kernel.md` describes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from loopscope.strict_json import from_json


class Stolen(NamedTuple):
    """Time that was taken of a processor between two values of the counter."""

    processor: int
    begin: int
    end: int
    ns: int


def read_stolen(repeat: Path, kernel: str) -> list[Stolen] | None:
    """What was taken in a repeat, by the counts of a kernel; None where that is not counted."""
    file = repeat / "hosts" / kernel / "kernel" / "counts.json"
    if not file.exists():
        return None
    found = from_json(file.read_text(encoding="utf-8")).get("stolen")
    if found is None:
        return None
    return [Stolen(each["processor"], each["from"], each["until"], each["ns"]) for each in found]
