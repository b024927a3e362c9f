"""Traces of other tools from a run's hosts: ``foreign`` of ``summary.json``.

`schema/run-directory.md` describes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ForeignTrace:
    """One trace or capture."""

    repeat: int
    host: str
    process: str
    """The component that recorded it, or the name it was brought by."""
    kind: str | None
    """`ctf` or `pcap`."""
    source: str
    """Its path in the host's directory."""
    events: int
    unknown: int
    """Events whose maximum error is unknown."""
    lost: int | None
    """The most events of the tool's that are not in its tables.

    None: nothing bounds it, packets of it are missing or were not read.
    """
    tables: tuple[str, ...]


def read_foreign(given: Mapping[str, Any], repeat: int) -> ForeignTrace:
    """One entry of ``foreign``."""
    lost = given["lost"]
    bounded = given["whole"] and not lost["packets"]
    return ForeignTrace(
        repeat=repeat,
        host=given["host"],
        process=given["process"],
        kind=given["kind"],
        source=given["source"],
        events=given["events"],
        unknown=given["unknown"],
        lost=lost["events"] + lost["events_before"] if bounded else None,
        tables=tuple(given["tables"]),
    )
