"""What emulated links took of the time of hops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPLIT_TIMES = ("mean", "p50", "p99")
"""The statistics of each part of a hop."""


@dataclass(frozen=True)
class PartResult:
    """A part of the time of a hop's messages."""

    times: Mapping[str, int | float | None]
    """By the names in `SPLIT_TIMES`, ns."""
    err_ns: int | None
    """The largest half-width among them."""

    def to_dict(self) -> dict[str, Any]:
        return {**{f"{name}_ns": self.times[name] for name in SPLIT_TIMES}, "err_ns": self.err_ns}


@dataclass(frozen=True)
class SplitResult:
    """A hop over an emulated link: of each message before + emulated + after is the hop's time."""

    sender: str
    receiver: str
    """Hosts."""
    matched: int
    """Messages seen at both ends of the hop and once on the link in between."""
    unseen: int
    """Messages that were not seen on the link in between."""
    ambiguous: int
    """Messages whose number several packets had that passed the link in between."""
    before: PartResult
    """From the hop's first event to the packet's arrival at the link."""
    emulated: PartResult
    """On the link: what was asked for and what the mover added."""
    after: PartResult
    """From the packet's departure to the hop's last event."""

    def to_dict(self) -> dict[str, Any]:
        parts = {"before": self.before, "emulated": self.emulated, "after": self.after}
        return {
            "from": self.sender,
            "to": self.receiver,
            "matched": self.matched,
            "unseen": self.unseen,
            "ambiguous": self.ambiguous,
            **{name: part.to_dict() for name, part in parts.items()},
        }
