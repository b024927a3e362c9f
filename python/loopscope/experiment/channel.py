"""A channel of space-time memory as it is planned, and as its service is told of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Layer = Literal[
    "application",
    "blocked",
    "runtime",
    "messaging",
    "application_cpu",
    "runtime_cpu",
    "messaging_cpu",
    "memory",
    "synchronisation",
    "messaging_synchronisation",
]
LAYERS: tuple[Layer, ...] = get_args(Layer)
"""What the time of the threads at channels is split into: by the clock, of their processor time,
and what memory and synchronisation take of the runtime and of messaging."""


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
    lifespan: int | None = None
    """How long after their put items are of use on other hosts, in ns; None: always."""


def service(host: str) -> str:
    """The name of the component that serves a host's channels.

    >>> service("h1")
    '_channels-h1'
    """
    return f"_channels-{host}"


def channels_document(channels: Iterable[Channel]) -> dict[str, Any]:
    """The configuration of a service that has these channels."""
    return {"channels": {each.name: _settings(each) for each in channels}}


def _settings(channel: Channel) -> dict[str, Any]:
    settings = asdict(channel)
    del settings["name"], settings["home"]
    settings["drop_when_full"] = settings.pop("full") == "drop"
    settings["discard_orphans"] = settings.pop("orphans") == "discard"
    settings["lifespan_us"] = (settings.pop("lifespan") or 0) // 1000
    return settings
