"""Pictures for three processes, by reference and by copies, by the kinds of `src/video.rs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from targets import added, spread

from stm import program

# By kind: how many pictures, and the kind that it is compared with.
KINDS = {
    "video-6m": (180, "video-pipe"),
    "video-1m": (180, ""),
    "video-64k": (180, ""),
    "video-blank": (180, ""),
    "video-wake": (180, ""),
    "video-memcpy": (180, ""),
    "video-pipe": (180, ""),
    "video-put-written": (500, "video-put-64k"),
    "video-put-6m": (500, "video-put-64k"),
    "video-put-1m": (500, "video-put-64k"),
    "video-put-64k": (500, ""),
}


def measure(folder: Path) -> dict[str, Any]:
    """By kind: CPU time besides the writing of pictures, times of a put, and what was touched."""
    return program.measured("stm-video", KINDS, summary)


def summary(kind: str, values: program.Values) -> dict[str, Any]:
    """The rounds' medians and ranges; ratios and differences are to a kind of the same round.

    `ratio`: of the CPU time. `more_us`: of a put, with its 95 % interval.
    """
    each = values[kind]
    summed: dict[str, Any] = {part: spread(those) for part, those in each.items()}
    floor = values.get(KINDS[kind][1])
    if floor is not None and "picture_us" in each:
        pairs = zip(each["picture_us"], floor["picture_us"], strict=False)
        summed["ratio"] = spread([its / floors for its, floors in pairs])
    elif floor is not None:
        summed["more_us"] = added(each["put_us"], floor["put_us"])
    return summed
