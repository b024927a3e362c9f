"""Peers that an agent is sent: those that changed. A component always gets the ones it is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.agent import Agent, AgentError

ONE, TWO = '{"a": {"values": {"port": 1}}}', '{"a": {"values": {"port": 2}}}'


class Kept(Agent):
    """Keeps peers as the protocol says. An answer may get lost, whether or not it took them."""

    def __init__(self, socket: Path) -> None:
        super().__init__("h1", socket)
        self.kept: dict[str, str] = {}
        self.sent: list[str | None] = []
        self.got: list[str] = []
        self.loses = ""

    async def ask(self, method: str, request: Any, timeout: float) -> Any:
        if isinstance(request, pb.StartRequest):
            self.kept.pop(request.component, None)
            return pb.StartReply(pid=1)
        assert isinstance(request, pb.EnterPhaseRequest)
        loses, self.loses = self.loses, ""
        if loses == "request":
            raise AgentError("h1", "no answer")
        sent = request.peers_json if request.HasField("peers_json") else None
        self.sent.append(sent)
        if sent is not None:
            self.kept[request.component] = sent
        self.got.append(self.kept[request.component])
        if loses == "answer":
            raise AgentError("h1", "no answer")
        return pb.EnterPhaseReply()


def entered(folder: Path, *requests: tuple[str, str, str]) -> Kept:
    """An agent after requests: component, peers, and what gets lost."""

    async def enter() -> Kept:
        agent = Kept(folder / "agent.sock")
        for component, peers, agent.loses in requests:
            if agent.loses:
                with pytest.raises(AgentError):
                    await agent.enter_phase(component, "p", False, peers)
            else:
                await agent.enter_phase(component, "p", False, peers)
                assert agent.got[-1] == peers
        await agent.close()
        return agent

    return asyncio.run(enter())


def test_peers_go_out_where_they_have_changed(tmp_path: Path) -> None:
    agent = entered(
        tmp_path, ("a", ONE, ""), ("a", ONE, ""), ("a", TWO, ""), ("a", TWO, ""), ("a", ONE, "")
    )
    assert agent.sent == [ONE, None, TWO, None, ONE]


def test_each_component_has_peers_of_its_own(tmp_path: Path) -> None:
    agent = entered(tmp_path, ("a", ONE, ""), ("b", TWO, ""), ("a", ONE, ""), ("b", ONE, ""))
    assert agent.sent == [ONE, TWO, None, ONE]


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_after_a_request_that_was_not_answered_the_agent_is_sent_them_again(
    tmp_path: Path, lost: str
) -> None:
    entered(tmp_path, ("a", ONE, ""), ("a", TWO, lost), ("a", ONE, ""), ("a", ONE, ""))
    entered(tmp_path, ("a", ONE, lost), ("a", ONE, ""))


def test_a_component_that_is_started_anew_is_sent_them_again(tmp_path: Path) -> None:
    async def again() -> Kept:
        agent = Kept(tmp_path / "agent.sock")
        for _ in range(2):
            await agent.start(
                "a", ["true"], {}, {}, pb.Readiness(), "{}", inherit=(), user=None, output_limit=1
            )
            await agent.enter_phase("a", "p", False, ONE)
        await agent.close()
        return agent

    assert asyncio.run(again()).sent == [ONE, ONE]
