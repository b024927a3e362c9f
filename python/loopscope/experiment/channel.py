"""A channel of space-time memory as it is planned, and as its service is told of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Channel:
    """A channel of space-time memory on the host ``home``, and what it has room for."""

    name: str
    home: str
    item_bytes: int
    capacity: int
    slots: int
    inputs: int
    outputs: int
    loans: int
    processes: int
    ahead: int
    remembered: int
    full: Literal["refuse", "drop"]
    orphans: Literal["keep", "discard"]


def channels_document(channels: Iterable[Channel]) -> dict[str, Any]:
    """The configuration of a service that has these channels."""
    return {"channels": {each.name: _settings(each) for each in channels}}


def _settings(channel: Channel) -> dict[str, Any]:
    settings = asdict(channel)
    del settings["name"], settings["home"]
    settings["drop_when_full"] = settings.pop("full") == "drop"
    settings["discard_orphans"] = settings.pop("orphans") == "discard"
    return settings
