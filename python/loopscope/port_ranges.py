"""Ports between commas, as people and the accelerating library write them."""

from __future__ import annotations

import re


def read(text: str) -> str:
    """Ports as the library reads them from LOOPSCOPE_STACK_ONLY.

    Raises:
        ValueError: they are no ports between commas. The text says which part is wrong.
    """
    # crates/preload/src/ports.rs reads them, too; crates/preload/tests/ports.txt is a test of both.
    parts = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 0 < first <= last <= 65535:
            what = f"{part.strip()!r} in {text!r}" if "," in text else repr(text)
            raise ValueError(
                f"{what} should be a port from 1 to 65535 or a range of them, as in 80,8000-8010"
            )
        parts.append(f"{first}-{last}" if last > first else str(first))
    return ",".join(parts)
