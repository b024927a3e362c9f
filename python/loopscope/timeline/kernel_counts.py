"""What a kernel's recording counted: `hosts/<kernel>/kernel/counts.json`.

`schema/kernel.md` describes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loopscope.strict_json import from_json


def read_counts(repeat: Path, kernel: str) -> dict[str, Any]:
    """The counts of a repeat's kernel; empty where there are none."""
    file = repeat / "hosts" / kernel / "kernel" / "counts.json"
    if not file.exists():
        return {}
    found: dict[str, Any] = from_json(file.read_text(encoding="utf-8"))
    return found
