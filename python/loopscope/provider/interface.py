"""What control asks of a testbed, and what it gets, whatever kind of testbed it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from loopscope.provider.left_out import LeftOut
from loopscope.provider.patience import to_the_end

if TYPE_CHECKING:
    from loopscope.provider.agent import Agent

Network = Literal["data", "clock"]
"""The network of the programs' messages, and the one of the clock probes."""
DATA: Final = "data"
CLOCK: Final = "clock"


class TestbedError(Exception):
    """The testbed could not be made; the text says why and what to do."""

    __test__ = False  # its name makes pytest take it for a test


@dataclass(frozen=True)
class Lack:
    """Something that a host cannot do."""

    what: str
    why: str
    cost: str
    """What is done instead, or what does not work."""


@dataclass(frozen=True)
class Host:
    """A host that exists, and whose agent answers."""

    name: str
    agent: Agent
    addresses: Mapping[Network, tuple[str, ...]]
    """Its own IP addresses, IPv4 and IPv6, on each network that it is on, the preferred one
    first."""
    lacking: Sequence[Lack] | None = None
    """What it cannot do; None: that was not tried."""
    accelerator: str | None = None
    """The library on it that has the user-mode stack transfer a program's connections; None: it is
    not installed."""


@dataclass(frozen=True)
class RouterPort:
    """An end of a data link at the router."""

    host: str
    """The host at the other end."""
    device: str
    """Its network device on the router."""
    link_address: str
    """Ethernet address of the other end."""


@dataclass(frozen=True)
class Router:
    """The host at which the data links of all others end."""

    host: Host
    ports: Sequence[RouterPort]


@dataclass(frozen=True)
class LackOfHosts:
    """The same lack of several hosts of a testbed."""

    lack: Lack
    hosts: Sequence[str]
    everywhere: bool
    """Whether no host of the testbed is without it."""


@dataclass(frozen=True)
class Request:
    """The testbed that a repeat of an experiment needs."""

    run_id: str
    """Unique among all runs on the machines; letters, digits, ``-``, ``_`` and ``.``."""
    hosts: Sequence[str]
    """Names, the clocks' reference first."""
    directory: Path
    """What hosts write is in ``hosts/<host>/`` in it at the end: they write there themselves where
    they can, so that it stays, whichever process is killed."""
    folder: str
    """Where relative paths in commands begin; empty: in the current directory."""
    files: Sequence[Path]
    """The files in ``folder`` that hosts need which do not have it, relative to it."""
    networks: Mapping[Network, str]
    """The IPv4 networks, in CIDR notation, from which hosts get addresses where they have none."""
    data_mtu: int | None
    """MTU of the data links, bytes; None: as the kernel has it."""
    hidden_clocks: int | None
    """Seed of clocks that only loopscope sees, one for each host; None: plain clocks."""
    router: bool
    """Whether links are emulated: the data links end at a router, or each host impairs what it
    sends; else all hosts share one network."""
    probes_on_data: bool
    """Whether clock probes go over the data links."""
    clock_pairs: Sequence[tuple[str, str]] = ()
    """Hosts that exchange clock probes with each other."""
    router_host: str | None = None
    """The host that is the router."""
    routed: Sequence[tuple[str, str]] = ()
    """Pairs of other hosts: what the first sends to the second has to come to the router."""
    counters: Mapping[str, str] = field(default_factory=dict)
    """What stamps the events of hosts, ``cycles`` or ``monotonic-raw``; others choose theirs."""


class Testbed(ABC):
    """Hosts that exist while the context lasts, whatever ends it.

    ``__init__`` takes the request and makes nothing.
    """

    __test__ = False

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        """By name, in the order of the request."""
        self.router: Router | None = None
        """Where the request asks for one."""
        self.links_at_hosts = False
        """Whether links are emulated on the hosts themselves: on the one that the request names as
        router, or on each of them for what it sends."""
        self.knows_neighbours = False
        """Whether every host has the others' Ethernet addresses from the start."""
        self.is_shared = False
        """Whether its machines may be other people's, too: their kernels' events are recorded only
        where the experiment asks for them."""
        self.kernels: dict[str, Agent] = {}
        """The agents that record a kernel, by the folder of its files among those of the hosts."""
        self.problems: list[str] = []
        """What could not be removed, for people."""
        self.left_out: dict[str, LeftOut] = {}
        """Entries of each host's folder that ``fetch`` did not bring."""
        self.uncollected: dict[str, str] = {}
        """Why ``fetch`` could not bring all that a host wrote, and where that is, for people."""

    @property
    def lacking(self) -> list[LackOfHosts] | None:
        """What the hosts and the router cannot do, each lack once; None: that was not tried."""
        every = [*self.hosts.values(), *([self.router.host] if self.router else [])]
        if all(host.lacking is None for host in every):
            return None
        found: dict[Lack, list[str]] = {}
        for host in every:
            for lack in host.lacking or ():
                found.setdefault(lack, []).append(host.name)
        return [LackOfHosts(lack, of, len(of) == len(every)) for lack, of in found.items()]

    @abstractmethod
    async def make(self) -> None:
        """Makes the hosts, or as many of them as it can. Raises TestbedError."""

    @abstractmethod
    async def fetch(self) -> None:
        """Brings what hosts wrote elsewhere into the request's directory.

        Fills ``left_out`` and ``uncollected``.
        """

    @abstractmethod
    async def remove(self) -> None:
        """Removes all that ``make`` made, however far it came; fills ``problems``."""

    async def __aenter__(self) -> Testbed:
        try:
            await self.make()
        except BaseException:
            await to_the_end(self.remove())
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_the_end(self.remove())


Provider = Callable[[Request], Testbed]
"""The testbed of a request, not yet made."""
