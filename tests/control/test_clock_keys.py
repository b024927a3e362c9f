"""Keys of clock probes: how they are made, and which host gets which."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from loopscope.control import Silent
from loopscope.control.clock_keys import Root
from loopscope.control.clocks import HostClocks
from loopscope.experiment import ClockExchange, Clocks
from loopscope.provider import Host
from loopscope.provider._proto import agent_pb2 as pb


def test_keys_of_pairs_are_those_that_agents_make() -> None:
    """crates/clocksync/src/key.rs has the same numbers."""
    root = Root(bytes([7]) * 32)
    code = hmac.new(root.key(1), b"x", hashlib.sha256).hexdigest()[:32]
    assert code == "9dc68c695174eadc7a59ead66d0cb52b"
    assert root.key(1) != root.key(2)
    assert Root().secret != Root().secret


class Keeping:
    """An agent that keeps the keys and roots that it is given, with the keys' numbers."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self.keys: dict[int, bytes] = {}

    async def start_clock_reference(self, _: str, root: bytes, *, port: int, **__: Any) -> int:
        self.roots.append(Root(root))
        return port

    async def answer_peers(self, root: bytes, port: int) -> int:
        self.roots.append(Root(root))
        return port

    async def start_clock_follower(
        self, _: str, reference: str, key: bytes, number: int, **__: Any
    ) -> int:
        assert reference == "192.0.2.1:1319"
        self.keys[number] = key
        return 1

    async def probe_peers(self, peers: Sequence[pb.ClockPeer], _: float) -> None:
        assert all(peer.address.endswith(":1319") for peer in peers)
        self.keys.update((peer.number, peer.key) for peer in peers)


def test_a_host_gets_the_keys_of_its_own_pairs_only() -> None:
    agents = [Keeping() for _ in range(4)]
    hosts = {
        f"h{at}": Host(f"h{at}", cast(Any, agent), {"clock": (f"192.0.2.{at}",)})
        for at, agent in enumerate(agents, start=1)
    }
    exchange = ClockExchange("clock", 100.0, 100, None, 0, 1.0, port=1319)

    async def each(ask: Callable[[Host], Awaitable[object]], hosts: Iterable[Host]) -> None:
        for host in hosts:
            await ask(host)

    async def start() -> None:
        settings = Clocks("plain", None)
        clocks = HostClocks(exchange, settings, hosts, Silent(), cast(Any, each), False)
        await clocks.start()
        await clocks.start_mesh()

    asyncio.run(start())
    holders: dict[bytes, set[int]] = {}
    numbers = [number for agent in agents for number in agent.keys]
    for holder, agent in enumerate(agents):
        for key in agent.keys.values():
            holders.setdefault(key, set()).add(holder)
        for key in (root.key(number) for root in agent.roots for number in numbers):
            if any(key in other.keys.values() for other in agents):
                holders.setdefault(key, set()).add(holder)
    assert sorted(map(sorted, holders.values())) == [
        *([0, 1], [0, 2], [0, 3]),
        *([1, 2], [1, 3], [2, 3]),
    ]
