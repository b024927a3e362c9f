"""What is said of an agent that does not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loopscope.provider.agent import Agent, AgentError


def test_an_agent_that_takes_too_long_is_named_with_what_it_was_asked(tmp_path: Path) -> None:
    async def ask() -> None:
        # Takes connections and never says anything.
        server = await asyncio.start_unix_server(lambda *_: None, tmp_path / "agent.sock")
        agent = Agent("h7", tmp_path / "agent.sock")
        try:
            await agent.shutdown(timeout=0.2)
        finally:
            await agent.close()
            server.close()

    with pytest.raises(
        AgentError, match=r"^host h7: its agent has not answered Shutdown within 0\.2 s$"
    ):
        asyncio.run(ask())
