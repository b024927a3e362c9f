"""Results of a branching path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from loopscope.analysis.document import INTERNAL, Document

TIMES = ("min", "mean", "p50", "p99", "max")
"""The statistics of the times over an edge or from end to end; `<name>_ns` in the JSON."""


@dataclass(frozen=True)
class FlowResult(Document):
    """The messages from one event to a later one: over an edge, or from a beginning to an end.

    `sent == used + superseded + lost + unused + undecided`, exactly.
    """

    first: Annotated[str, Field(serialization_alias="from")]
    last: Annotated[str, Field(serialization_alias="to")]
    how: str
    """Rule by which the later event uses the earlier one: `frame`, `latest by time` …

    Empty from end to end.
    """
    sent: int
    received: int
    used: int
    superseded: int
    """Arrived, and a newer one was used before they ever were."""
    lost: int
    """Never arrived."""
    unused: int
    """Arrived, and nothing was used after them."""
    undecided: int
    """Number of messages of which the clock leaves open whether they were used, or a newer one."""
    duplicates: int
    """Occurrences at the later event beyond each message's first."""
    empty: int
    """Messages of the later event for which there was none to use."""
    missing: int
    """The most events on the way that may be missing from the trace."""
    times: Mapping[str, int | float | None]
    """Times from a message to its first use, by the names in `TIMES`, ns."""
    err_ns: int | None
    """The largest maximum error among them; None where there are none and where one is unknown."""
    age_ns: int | None
    """The greatest age of the data at a use, and how far the true one may be from it."""
    age_err_ns: int | None
    rate_hz: float | None
    """Messages of the later event a second."""
    jitter_ns: int | float | None
    """The longest time between two of them less the shortest."""


@dataclass(frozen=True)
class GraphResult(Document):
    """A branching path: its edges, and each beginning with each end that it leads to."""

    name: Annotated[str, INTERNAL]
    edges: tuple[FlowResult, ...]
    ends: tuple[FlowResult, ...]
