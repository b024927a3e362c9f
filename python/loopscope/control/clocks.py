"""The clocks of one repeat: probes between its hosts, how well they do, what they cost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import Any, Protocol

from loopscope.control import probe_plan
from loopscope.control.clock_keys import Root
from loopscope.control.failure import RunFailed
from loopscope.control.probe_losses import ProbeLosses
from loopscope.control.progress import Progress
from loopscope.control.router import NAME as ROUTER
from loopscope.experiment import ClockExchange, Clocks, quantity
from loopscope.provider import CLOCK, DATA, AgentError, AgentLost, Host, Network
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.addresses import Family, family, of_one_family

ANY_ADDRESS: dict[Family, str] = {"IPv4": "0.0.0.0", "IPv6": "::"}
# Between looks at the clocks that a run waits for.
GATE_S = 0.05


class _AskEach(Protocol):
    """Asks every host; one that fails is noted and does not keep the others from it."""

    async def __call__(
        self, ask: Callable[[Host], Awaitable[object]], hosts: Iterable[Host] | None = None
    ) -> None: ...


class HostClocks:
    """Probes between hosts that exist. The first host is the reference."""

    def __init__(
        self,
        exchange: ClockExchange,
        settings: Clocks,
        hosts: Mapping[str, Host],
        progress: Progress,
        each: _AskEach,
        links_at_hosts: bool,
    ) -> None:
        """``links_at_hosts``: links are emulated at the hosts' own addresses.

        Raises TestbedError where hosts have no addresses at which they can probe each other.
        """
        self._exchange = exchange
        self._settings = settings
        self._hosts = hosts
        self._progress = progress
        self._each = each
        self._past_links = links_at_hosts and not self._on_data
        # By network and host.
        self._addresses: dict[Network, dict[str, str]] = {}
        reference, *_ = hosts.values()
        for network in {self._network(host): None for host in hosts.values()}:
            others = [each for each in hosts.values() if self._network(each) == network]
            probing = {each.name: each for each in (reference, *others)}
            self._addresses[network] = of_one_family(probing.values(), network, "clock probes")
        self._running: list[Host] = []
        self._began: float | None = None
        self._followers = [host for host in list(hosts.values())[1:] if host.name != ROUTER]
        self._probing_peers: list[Host] = []
        self._probes: dict[str, Counter[str]] = defaultdict(Counter)
        self._losses = ProbeLosses()
        # Numbers of the keys: each follower and edge has its own.
        self._numbers = count(1)
        self._first_bursts = asyncio.Semaphore(probe_plan.FIRST_BURSTS)
        at_once = probe_plan.last_bursts(exchange.burst, len(hosts) - 1)
        self._last_bursts = asyncio.Semaphore(at_once)

    @property
    def _on_data(self) -> bool:
        return self._exchange.network == "data"

    async def start(self) -> None:
        reference, *followers = self._hosts.values()
        self._progress.stage("synchronising clocks")
        self._began = time.monotonic()
        # The router itself has no data link: it is answered on the other network.
        address = self._probed_at(reference)
        if len(self._addresses) > 1:
            address = ANY_ADDRESS[family(address)]
        # A key is for two hosts in this run: nobody else can pass for one of them.
        root = Root()
        steps = {name: (step.at_ns, step.by_ns) for name, step in self._settings.realtime.items()}
        port = await reference.agent.start_clock_reference(
            address,
            root.secret,
            port=self._exchange.port,
            realtime_step=steps.get(reference.name),
            past_links=self._past_links,
        )
        self._running.append(reference)
        exchange = self._exchange
        rate_hz = self._rate_hz
        if rate_hz < exchange.rate_hz:
            self._progress.note(
                f"each of {len(followers)} hosts probes the reference {rate_hz:.3g} times a "
                f"second, not {exchange.rate_hz:.3g}: one reference answers all of them"
            )

        unreached: dict[str, str] = {}

        async def follow(host: Host) -> None:
            try:
                await begin(host)
            except AgentLost:
                raise
            except AgentError as error:
                unreached[host.name] = error.what

        async def begin(host: Host) -> None:
            its = self._addresses[self._network(host)][reference.name]
            number = next(self._numbers)
            async with self._first_bursts:
                if unreached:
                    # Each further host would be waited for, too.
                    return
                await host.agent.start_clock_follower(
                    self._probed_at(host),
                    endpoint(its, port),
                    root.key(number),
                    number,
                    rate_hz=rate_hz,
                    burst=probe_plan.burst(exchange.burst, len(followers)),
                    load_burst=probe_plan.load_burst(exchange.burst, len(followers)),
                    wander_ppm=exchange.wander_ppm,
                    realtime_step=steps.get(host.name),
                    past_links=self._past_links,
                )
            self._running.append(host)

        await asyncio.gather(*(follow(host) for host in followers))
        if unreached:
            raise RunFailed(self._unreached(reference, port, unreached))

    def _unreached(self, reference: Host, port: int, why: Mapping[str, str]) -> str:
        """Text about followers that cannot exchange probes with the reference."""
        lines = []
        for name, what in why.items():
            network = self._network(self._hosts[name])
            its, to = (self._addresses[network][each] for each in (name, reference.name))
            lines.append(
                f"host {name} ({its}) exchanges no clock probes with the reference, host "
                f"{reference.name} (UDP {endpoint(to, port)}), on the {network} network: "
                f"{what.removeprefix(f'host {name}: ')}"
            )
        lines.append(
            "  Firewalls have to let UDP to that port pass, and the answers from it. `port` in "
            "`clock` sets the port, `network` in `clock` the network, and `clock` and `data` in "
            "`machines` set the addresses"
        )
        return "\n".join(lines)

    @property
    def _rate_hz(self) -> float:
        """Exchanges a second of each follower with the reference."""
        return probe_plan.rate_hz(self._exchange.rate_hz, len(self._hosts) - 1)

    def _network(self, host: Host) -> Network:
        """The network that a host's probes take."""
        return DATA if self._on_data and DATA in host.addresses else CLOCK

    def _probed_at(self, host: Host) -> str:
        return self._addresses[self._network(host)][host.name]

    async def start_mesh(self) -> None:
        """Has followers probe each other too.

        What of that cannot begin is noted: no time rests on it.
        """
        if not self._exchange.mesh or len(self._followers) < 2:
            return
        plan = probe_plan.peers([host.name for host in self._followers])
        rate_hz = probe_plan.edge_hz(sum(map(len, plan.values())))
        probed = {name for peers in plan.values() for name in peers}
        answering: dict[str, tuple[str, Root]] = {}

        async def answer(host: Host) -> None:
            root = Root()
            port = await host.agent.answer_peers(root.secret, self._exchange.port)
            answering[host.name] = endpoint(self._probed_at(host), port), root

        def peer(name: str) -> pb.ClockPeer:
            (address, root), number = answering[name], next(self._numbers)
            return pb.ClockPeer(name=name, address=address, key=root.key(number), number=number)

        async def probe(host: Host) -> None:
            peers = [peer(name) for name in plan[host.name] if name in answering]
            if peers:
                await host.agent.probe_peers(peers, rate_hz)
                self._probing_peers.append(host)

        await self._each(answer, [host for host in self._followers if host.name in probed])
        await self._each(probe, [host for host in self._followers if host.name in plan])

    async def gate(self) -> None:
        """Waits until the time of every host is known as well as the file asks for."""
        clock = self._exchange
        if clock.within_ns is None:
            return
        end = time.monotonic() + clock.patience_ns / 1e9
        waiting: list[str] = []
        while wide := await self._wider_than(clock.within_ns):
            if time.monotonic() >= end:
                hosts = "; ".join(f"{host} {reading}" for host, reading in wide.items())
                raise RunFailed(
                    f"the clocks are not within {_time(clock.within_ns)} after "
                    f"{_time(clock.patience_ns)}: {hosts}. Raise clock.within or "
                    "clock.patience, or take load off the hosts and the network of the probes"
                )
            if list(wide) != waiting:
                waiting = list(wide)
                self._progress.stage(
                    f"waiting for clocks within {_time(clock.within_ns)}: {', '.join(waiting)}"
                )
            await asyncio.sleep(GATE_S)

    async def _wider_than(self, within_ns: int) -> dict[str, str]:
        """Each host whose time is not known so well, with its width and the reason."""
        hosts = list(self._hosts.values())
        readings = await asyncio.gather(*(host.agent.read_clock() for host in hosts))
        return {
            host.name: _reading(reading)
            for host, reading in zip(hosts, readings, strict=True)
            if not reading.HasField("half_width_ns") or reading.half_width_ns > within_ns
        }

    async def stop(self) -> dict[str, Any] | None:
        """Ends the probes and reports those that were lost.

        Returns what they have put on their network; None where they never began.
        """
        # A host stops after those whose last bursts it answers: followers, then the reference.
        await self._each(self._stop_peers, self._probing_peers)
        await self._each(self._stop_clock, self._running[1:])
        await self._each(self._stop_clock, self._running[:1])
        cost = self._cost()
        for line in self._losses.lines():
            self._progress.note(line)
        return cost

    async def _stop_peers(self, host: Host) -> None:
        async with self._last_bursts:
            ends = await host.agent.stop_peers()
        losses, name = self._losses, f"host {host.name}"
        for peer in ends:
            if peer.error:
                text = f"could not probe {peer.name}: {peer.error}"
                losses.remark("hosts that another one could not probe", name, text)
            elif not peer.answered:
                text = f"{peer.name} answered none of its probes"
                losses.remark("hosts that did not answer another one's probes", name, text)
            else:
                what = f"probes of {peer.name}"
                losses.lose("probes between followers", name, what, peer.sent, peer.lost)
            if peer.contradictions:
                text = (
                    f"its time and {peer.name}'s contradict each other in {peer.contradictions} of "
                    f"{peer.answered} probes"
                )
                losses.remark("contradictions of two hosts' times", name, text)
            self._count_traffic(host, peer)

    async def _stop_clock(self, host: Host) -> None:
        async with self._last_bursts:
            reply = await host.agent.stop_clock()
        reference = host is self._running[0]
        kind = "answers of the reference" if reference else "probes of the reference"
        self._losses.lose(kind, f"host {host.name}", "probes", reply.sent, reply.lost)
        self._count_traffic(host, reply)

    def _count_traffic(self, host: Host, reply: pb.StopClockReply | pb.PeerEnd) -> None:
        self._probes[host.name].update(packets=reply.packets, bytes=reply.bytes)

    def _cost(self) -> dict[str, Any] | None:
        """Traffic of the probes; None where they never began."""
        if self._began is None:
            return None
        return {
            "version": 1,
            "network": self._exchange.network,
            "rate_hz": self._rate_hz,
            "seconds": time.monotonic() - self._began,
            "hosts": dict(sorted(self._probes.items())),
        }


def endpoint(address: str, port: int) -> str:
    """Address and port as one text; an IPv6 address in brackets (RFC 3986, section 3.2.2)."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _reading(reading: pb.ReadClockReply) -> str:
    if not reading.HasField("half_width_ns"):
        return f"has none: {reading.why}"
    return f"is within {_time(reading.half_width_ns)}: {reading.why}"


def _time(ns: int) -> str:
    return quantity.format(ns, quantity.DURATION)
