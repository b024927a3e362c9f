"""The data links and the networks of the hosts: the keys of ``network``."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic_core import PydanticCustomError

from . import emulated_links, values
from .file_section import Section
from .link_settings import WIRE, Link
from .place import Place
from .quantity import SIZE
from .values import Integer, Quantity


class MessageNumber(Section):
    """Where packets carry the number of their message, in the payload of UDP and TCP."""

    offset: Annotated[int, Quantity(SIZE, "0B", "65535B")] = Field(
        default=0, description="Bytes before it, such as 4B. Default: 0B."
    )
    width: Annotated[int, Quantity(SIZE, "1B", "8B")] = Field(
        default=8, description="Bytes of the number, 1B to 8B. Default: 8B."
    )
    order: Literal["little", "big"] = Field(
        default="little",
        description="Whether its least significant byte comes first (little) or its most "
        "significant one (big, network order).",
    )


class Network(Section):
    """The data links; the clock network is left alone.

    Other keys are links: `A -> B` for one direction, `A <-> B` for both.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Link]

    default: Link = Field(
        default=WIRE, description="What holds for every data link that does not say otherwise."
    )
    emulate: Annotated[bool, values.Boolean()] = Field(
        default=False,
        description="Whether packets go through the link emulator even where no link is impaired, "
        "so that `loopscope net set` can do it. Default: only where one is.",
    )
    mover: Literal["auto", "xdp", "tap", "netem"] = Field(
        default="auto",
        description="What moves emulated packets: xdp (AF_XDP), tap (AF_PACKET), netem (the "
        "kernel's). auto: xdp where the kernel allows it, else tap.",
    )
    router: Annotated[str, values.Reference("host")] | None = Field(
        default=None,
        description="The host between the others that forwards what they send to each other, and "
        "emulates all links, with `testbed: ssh`. Default: each host impairs what it sends.",
    )
    wait: Literal["sleep", "spin"] = Field(
        default="sleep",
        description="How the mover waits for a packet's time: sleep, or spin, which takes a core.",
    )
    seed: Annotated[int, Integer(0, 2**63 - 1)] = Field(
        default=1, description="Seed of the links' random choices."
    )
    message: MessageNumber | None = Field(
        default=None,
        description="Where packets carry their message's number, by which the report splits hops "
        "at emulated links: the key of a path, if that is one whole number. Default: the first "
        "eight bytes, little-endian.",
    )
    trace: Annotated[bool, values.Boolean()] = Field(
        default=True,
        description="Whether what happens to emulated packets is recorded, as events link:*. "
        "Changes of links always are.",
    )
    data: Annotated[IPv4Network, values.Subnet()] = Field(
        default="10.77.0.0/24",
        validate_default=True,
        description="IPv4 network of the data links; host number i of `hosts` has its address i.",
    )
    clock: Annotated[IPv4Network, values.Subnet()] = Field(
        default="10.78.0.0/24",
        validate_default=True,
        description="IPv4 network of the clock probes; addresses as in `data`.",
    )

    channels_port: Annotated[int, Integer(1, 65535)] = Field(
        default=7421,
        description="TCP port at which the homes of `channels` have other hosts get their items.",
    )
    channels_congestion: Annotated[str, values.Text()] | None = Field(
        default=None,
        description="TCP's congestion control for the items of `channels` that other hosts get, "
        "such as reno. Default: the hosts'.",
    )

    @property
    def links(self) -> dict[str, Link]:
        """Links under the keys that name two hosts."""
        return self.__pydantic_extra__ or {}

    @classmethod
    def check(cls, at: Place) -> None:
        emulated_links.check_links(at, cls.model_fields)


def check_subnets(at: Place) -> None:
    """The networks have room for all hosts and do not overlap."""
    hosts = len(at.elements("hosts"))
    networks: dict[str, IPv4Network] = {}
    for key in ("data", "clock"):
        given = at.get("network", key)
        default = Network.model_fields[key].default
        try:
            network = values.Subnet().read(given.scalar if given else default, at.names)
        except PydanticCustomError:
            continue
        networks[key] = network
        room = max(0, network.num_addresses - 2)
        wanted = hosts + (key == "clock" and emulated_links.emulates(at))
        if wanted > room:
            router = " and the router" if wanted > hosts else ""
            message = f"the {key} network {network} has {room} addresses for {hosts} hosts{router}"
            (given or at.get("hosts") or at).report(message)
    if len(networks) == 2 and networks["data"].overlaps(networks["clock"]):
        place = at.get("network", "clock") or at.get("network", "data") or at
        place.report(f"the networks overlap: data {networks['data']}, clock {networks['clock']}")
