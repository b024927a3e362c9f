"""Peers that an agent is sent: those that changed. A component always gets the ones it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.agent import Agent

ONE, TWO = '{"a": {"values": {"port": 1}}}', '{"a": {"values": {"port": 2}}}'


class Kept(Agent):
    """Keeps peers as the protocol says. Phases named ``no`` are refused and their peers are not."""

    def __init__(self, socket: Path) -> None:
        super().__init__("h1", socket)
        self.kept: dict[str, str] = {}
        self.sent: list[str | None] = []
        self.got: list[str] = []

    async def ask(self, method: str, request: Any, timeout: float) -> Any:
        assert isinstance(request, pb.StartRequest)
        self.kept.pop(request.component, None)
        return pb.StartReply(pid=1)

    async def exchange(self, method: str, requests: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        async for request in requests:
            event = pb.Event(component=request.component)
            sent = request.peers_json if request.HasField("peers_json") else None
            self.sent.append(sent)
            if request.phase == "no":
                event.phase_refused.error = "it has ended"
            else:
                if sent is not None:
                    self.kept[request.component] = sent
                self.got.append(self.kept[request.component])
                event.phase_done.phase = request.phase
            yield event.SerializeToString()


def entered(folder: Path, *requests: tuple[str, str, str]) -> Kept:
    """An agent after requests: component, peers, phase."""

    async def enter() -> Kept:
        agent = Kept(folder / "agent.sock")
        events = agent.watch()
        for component, peers, phase in requests:
            await agent.enter_phase(component, phase, False, peers)
            event = await anext(events)
            assert event.WhichOneof("what") == ("phase_refused" if phase == "no" else "phase_done")
            if phase != "no":
                assert agent.got[-1] == peers
        await events.aclose()
        await agent.close()
        return agent

    return asyncio.run(enter())


def test_peers_go_out_where_they_have_changed(tmp_path: Path) -> None:
    agent = entered(
        tmp_path,
        ("a", ONE, "p"),
        ("a", ONE, "p"),
        ("a", TWO, "p"),
        ("a", TWO, "p"),
        ("a", ONE, "p"),
    )
    assert agent.sent == [ONE, None, TWO, None, ONE]


def test_each_component_has_peers_of_its_own(tmp_path: Path) -> None:
    agent = entered(tmp_path, ("a", ONE, "p"), ("b", TWO, "p"), ("a", ONE, "p"), ("b", ONE, "p"))
    assert agent.sent == [ONE, TWO, None, ONE]


def test_after_a_request_that_was_refused_the_agent_is_sent_them_again(tmp_path: Path) -> None:
    entered(tmp_path, ("a", ONE, "p"), ("a", TWO, "no"), ("a", ONE, "p"), ("a", ONE, "p"))
    entered(tmp_path, ("a", ONE, "no"), ("a", ONE, "p"))


def test_requests_before_the_watch_are_sent_in_their_order(tmp_path: Path) -> None:
    async def enter() -> Kept:
        agent = Kept(tmp_path / "agent.sock")
        for peers in (ONE, ONE, TWO):
            await agent.enter_phase("a", "p", False, peers)
        events = agent.watch()
        for _ in range(3):
            await anext(events)
        await events.aclose()
        await agent.close()
        return agent

    agent = asyncio.run(enter())
    assert agent.sent == [ONE, None, TWO]
    assert agent.got == [ONE, ONE, TWO]


def test_a_component_that_is_started_anew_is_sent_them_again(tmp_path: Path) -> None:
    async def again() -> Kept:
        agent = Kept(tmp_path / "agent.sock")
        events = agent.watch()
        for _ in range(2):
            await agent.start(
                "a", ["true"], {}, {}, pb.Readiness(), "{}", inherit=(), user=None, output_limit=1
            )
            await agent.enter_phase("a", "p", False, ONE)
            await anext(events)
        await events.aclose()
        await agent.close()
        return agent

    assert asyncio.run(again()).sent == [ONE, ONE]
