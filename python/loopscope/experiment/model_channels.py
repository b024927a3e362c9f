"""Channels of space-time memory, which programs share: the keys of ``channels``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from . import values
from .file_section import Section
from .link_settings import OrNone
from .place import Place
from .quantity import DURATION, SIZE
from .values import Integer, Quantity


class Channel(Section):
    """A channel, which programs of all hosts open by its name."""

    home: Annotated[str, values.HostOrComponent()] = Field(
        description="The host whose memory has its items: best that of the components that put "
        "them. Those of other hosts put and get over the network, and each put there takes a "
        "message and an answer. A component's name stands for its host, so that the channel moves "
        "with it.",
    )
    item: Annotated[int, Quantity(SIZE, "1B", "4GB")] = Field(
        description="What an item may have, such as 300kB."
    )
    capacity: Annotated[int, Integer(1, 1_000_000)] = Field(
        default=16, description="Items that it may have."
    )
    full: Literal["refuse", "drop"] = Field(
        default="refuse",
        description="What a put does where all inputs still want all items. refuse: it waits, and "
        "fails where it may not wait any longer. drop: the item of the lowest time is dropped and "
        "counts as lost.",
    )
    orphans: Literal["keep", "discard"] = Field(
        default="keep", description="What becomes of items while nobody is connected to get them."
    )
    lifespan: Annotated[int | None, OrNone(Quantity(DURATION, "1ms", "1h"))] = Field(
        default=None,
        description="How long after their put items are of use on other hosts. They go there in "
        "datagrams (UDP), with recovery of their own, so that a lost one holds up no other item; "
        "what is not there in time counts as lost. Default: they go over TCP, and all come.",
    )
    inputs: Annotated[int, Integer(1, 10_000)] = Field(
        default=16, description="Connections that get items, at most."
    )
    outputs: Annotated[int, Integer(1, 10_000)] = Field(
        default=4, description="Connections that put items, at most."
    )
    loans: Annotated[int, Integer(1, 1000)] = Field(
        default=1, description="Items that an output connection may fill at one time."
    )
    slots: Annotated[int, Integer(1, 2_000_000)] | None = Field(
        default=None,
        description="Places for items and for those that are being filled; the memory is taken at "
        "once. Default: one for each item and each loan.",
    )
    processes: Annotated[int, Integer(1, 4000)] = Field(
        default=16, description="Programs that may use it at one time."
    )
    ahead: Annotated[int, Integer(0, 1_000_000)] = Field(
        default=64,
        description="Times without an item that an input connection may have consumed one by one.",
    )
    remembered: Annotated[int, Integer(0, 1_000_000)] = Field(
        default=64, description="Times that are gone, among others that are not, which it knows."
    )

    @classmethod
    def check(cls, at: Place) -> None:
        home, slots, capacity = (at.get(key) for key in ("home", "slots", "capacity"))
        if home is not None:
            _check_home(home)
        if slots is None or not isinstance(slots.scalar, int):
            return
        items = cls.model_fields["capacity"].default if capacity is None else capacity.scalar
        if isinstance(items, int) and slots.scalar < items:
            slots.report(f"{slots.scalar} slots have no room for {items} items")


def _check_home(home: Place) -> None:
    """Reports a host without components, and a name that may mean two hosts."""
    name = home.text
    if name not in (home.names.hosts or ()):
        return
    components = home.whole.entries("components")
    hosts = {key: component.text_at("host") for key, component in components}
    if name in hosts:
        other = hosts[name]
        if other not in (None, name):
            home.report(
                f"{name} is a host and also a component, which runs on {other}: rename the "
                "component, or name another component of the host that is meant"
            )
    elif None not in hosts.values() and name not in hosts.values():
        home.report(f"no component runs on {name}, and only those there can put items")
