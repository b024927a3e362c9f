"""What a connection to an agent puts on the wire, seen by a relay that reads HTTP/2 frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from loopscope import __version__
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.agent import Agent, AgentError, AgentLost
from loopscope.provider.connection import UNDER_WAY

# RFC 9113, sections 3.4, 4.1 and 6.
PREFACE = 24
RST_STREAM, SETTINGS, PING = 3, 4, 6
ACK = 1
INITIAL_WINDOW_SIZE = 4


class Relay:
    """Passes bytes between a client and an agent, and keeps the frames that the client sends."""

    def __init__(self, client: Path, agent: Path) -> None:
        self.client, self.agent = client, agent
        self.frames: list[tuple[int, int, bytes]] = []
        """Type, flags and content of each."""
        self.passes = asyncio.Event()
        self.passes.set()
        self.tasks: list[asyncio.Task[None]] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Relay:
        self.server = await asyncio.start_unix_server(self._connect, self.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        self.cut()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def cut(self) -> None:
        """Ends the connections."""
        for writer in self.writers:
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self.agent)
        self.writers += [writer, back]
        self.tasks += [
            asyncio.create_task(self._requests(reader, back)),
            asyncio.create_task(self._replies(there, writer)),
        ]

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            writer.write(await reader.readexactly(PREFACE))
            while True:
                head = await reader.readexactly(9)
                content = await reader.readexactly(int.from_bytes(head[:3], "big"))
                self.frames.append((head[3], head[4], content))
                await self.passes.wait()
                writer.write(head + content)

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await self.passes.wait()
                writer.write(data)

    @property
    def pings(self) -> int:
        """Pings of the client's own."""
        return sum(kind == PING and not flags & ACK for kind, flags, _ in self.frames)


class Served(grpc.GenericRpcHandler):  # type: ignore[misc]
    """An agent that reports each phase that it is told as done; ``no`` it cannot read."""

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        if call.method.endswith("/Watch"):
            return grpc.stream_stream_rpc_method_handler(self._watch)
        return grpc.unary_unary_rpc_method_handler(self._hello)

    async def _hello(self, _: bytes, __: Any) -> bytes:
        reply = pb.HelloReply(version=__version__, environment_json=" " * 200_000)
        return bytes(reply.SerializeToString())

    async def _watch(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for sent in requests:
            request = pb.EnterPhaseRequest.FromString(sent)
            if request.phase == "no":
                await context.abort(grpc.StatusCode.OUT_OF_RANGE, "the message is too large")
            done = pb.PhaseDone(phase=request.phase)
            yield pb.Event(component=request.component, phase_done=done).SerializeToString()


def served(
    folder: Path,
    work: Callable[[Agent, Relay], Coroutine[Any, Any, None]],
    silence_s: float | None = None,
) -> None:
    """Does ``work`` with a connection to an agent over a relay."""

    async def main() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Served(),))
        server.add_insecure_port(f"unix:{folder}/agent.sock")
        await server.start()
        async with Relay(folder / "relay.sock", folder / "agent.sock") as relay:
            agent = Agent("h1", folder / "relay.sock", silence_s=silence_s)
            try:
                await asyncio.wait_for(work(agent, relay), 20)
            finally:
                await agent.close()
                await server.stop(None)

    asyncio.run(main())


def test_nothing_is_sent_to_learn_the_bandwidth(tmp_path: Path) -> None:
    """By default gRPC sends a ping for a long reply."""

    async def work(agent: Agent, relay: Relay) -> None:
        for _ in range(3):
            await agent.hello()
        assert relay.frames and relay.pings == 0

    served(tmp_path, work)


def test_much_may_be_under_way(tmp_path: Path) -> None:
    async def work(agent: Agent, relay: Relay) -> None:
        await agent.hello()
        settings = next(c for kind, flags, c in relay.frames if kind == SETTINGS and not flags)
        values = {
            int.from_bytes(settings[at : at + 2], "big"): int.from_bytes(
                settings[at + 2 : at + 6], "big"
            )
            for at in range(0, len(settings), 6)
        }
        assert values[INITIAL_WINDOW_SIZE] == UNDER_WAY

    served(tmp_path, work)


def test_a_connection_over_which_nothing_comes_ends(tmp_path: Path) -> None:
    async def work(agent: Agent, relay: Relay) -> None:
        events = agent.watch()
        await agent.enter_phase("a", "run", True, "{}")
        await anext(events)
        relay.passes.clear()
        with pytest.raises(AgentLost, match="its agent is gone"):
            await anext(events)

    served(tmp_path, work, silence_s=0.5)


def test_signs_of_life_keep_a_connection_on_which_nothing_happens(tmp_path: Path) -> None:
    async def work(agent: Agent, relay: Relay) -> None:
        events = agent.watch()
        await agent.enter_phase("a", "run", True, "{}")
        await anext(events)
        # Each is answered, else the third would not be sent.
        while relay.pings < 3:
            await asyncio.sleep(0.01)
        await agent.enter_phase("a", "end", True, "{}")
        assert (await anext(events)).phase_done.phase == "end"

    served(tmp_path, work, silence_s=0.5)


def test_phases_go_out_on_the_stream_of_events(tmp_path: Path) -> None:
    async def work(agent: Agent, relay: Relay) -> None:
        phases = [f"p{number}" for number in range(20)]
        for phase in phases:
            await agent.enter_phase("a", phase, True, "{}")
        events = agent.watch()
        assert [(await anext(events)).phase_done.phase for _ in phases] == phases
        await events.aclose()

    served(tmp_path, work)


def test_a_watch_that_is_given_up_ends_its_stream(tmp_path: Path) -> None:
    """What sends the requests would else keep the connection."""

    async def work(agent: Agent, relay: Relay) -> None:
        events = agent.watch()
        await agent.enter_phase("a", "run", True, "{}")
        await anext(events)
        await events.aclose()
        while all(kind != RST_STREAM for kind, _, _ in relay.frames):
            await asyncio.sleep(0.01)
        tasks = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
        assert not [name for name in tasks if "request_iterator" in name]

    served(tmp_path, work)


def test_a_phase_that_cannot_be_read_ends_the_events_with_the_reason(tmp_path: Path) -> None:
    async def work(agent: Agent, relay: Relay) -> None:
        events = agent.watch()
        await agent.enter_phase("a", "no", True, "{}")
        with pytest.raises(AgentError, match="^host h1: the message is too large$") as failed:
            await anext(events)
        assert not isinstance(failed.value, AgentLost)

    served(tmp_path, work)


def test_an_agent_that_hangs_up_is_lost(tmp_path: Path) -> None:
    async def work(agent: Agent, relay: Relay) -> None:
        events = agent.watch()
        await agent.enter_phase("a", "run", True, "{}")
        await anext(events)
        relay.cut()
        with pytest.raises(AgentLost):
            await anext(events)
        with pytest.raises(AgentLost):
            await agent.hello()

    served(tmp_path, work)
