"""Share of emulated links in the time of hops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from loopscope.analysis.document import Document

SPLIT_TIMES = ("mean", "p50", "p99")
"""The statistics of each part of a hop."""


@dataclass(frozen=True)
class PartResult(Document):
    """A part of the time of a hop's messages."""

    times: Mapping[str, int | float | None]
    """Times by the names in `SPLIT_TIMES`, ns."""
    err_ns: int | None
    """The largest maximum error among them."""


@dataclass(frozen=True)
class SplitResult(Document):
    """A hop over an emulated link: times before, on and after it add up to the time of the hop."""

    sender: Annotated[str, Field(serialization_alias="from")]
    receiver: Annotated[str, Field(serialization_alias="to")]
    """Hosts."""
    matched: int
    """Messages seen at both ends of the hop and once on the link in between."""
    unseen: int
    """Messages that were not seen on the link in between."""
    ambiguous: int
    """Messages whose number several packets had that passed the link in between."""
    before: PartResult
    """Time from the hop's first event to the packet's arrival at the link."""
    emulated: PartResult
    """On the link: what was asked for and what the mover added."""
    after: PartResult
    """Time from the packet's departure to the hop's last event."""
