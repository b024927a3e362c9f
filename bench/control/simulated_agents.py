"""Agents without machines: one process that answers for many hosts, each on its own socket.

``python -m control.simulated_agents FOLDER COUNT`` prints a line when all of them answer.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from loopscope import __version__
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider._proto import agent_pb2_grpc


class SimulatedAgent(agent_pb2_grpc.AgentServicer):  # type: ignore[misc]
    """An agent whose components do at once what a phase asks of them."""

    def __init__(self, phases: list[str]) -> None:
        self._phases = phases
        self._events: asyncio.Queue[pb.Event] = asyncio.Queue()

    async def Hello(self, request: Any, context: Any) -> pb.HelloReply:
        return pb.HelloReply(version=__version__)

    async def Watch(
        self, requests: AsyncIterator[pb.EnterPhaseRequest], context: Any
    ) -> AsyncIterator[pb.Event]:
        reader = asyncio.create_task(self._enter(requests))
        try:
            while True:
                yield await self._events.get()
        finally:
            reader.cancel()

    async def _enter(self, requests: AsyncIterator[pb.EnterPhaseRequest]) -> None:
        async for request in requests:
            done = pb.PhaseDone(phase=request.phase, values_json='{"port": 40123}')
            self._events.put_nowait(pb.Event(component=request.component, phase_done=done))

    async def StartClock(self, request: Any, context: Any) -> pb.StartClockReply:
        return pb.StartClockReply(port=1)

    async def ReadClock(self, request: Any, context: Any) -> pb.ReadClockReply:
        return pb.ReadClockReply(half_width_ns=1000)

    async def StopClock(self, request: Any, context: Any) -> pb.StopClockReply:
        return pb.StopClockReply()

    async def Start(self, request: pb.StartRequest, context: Any) -> pb.StartReply:
        hello = pb.PhaseHello(phases=self._phases)
        self._events.put_nowait(pb.Event(component=request.component, phase_hello=hello))
        self._events.put_nowait(pb.Event(component=request.component, ready=pb.Ready()))
        return pb.StartReply(pid=1)

    async def Stop(self, request: Any, context: Any) -> pb.StopReply:
        return pb.StopReply()

    async def FinishTrace(self, request: Any, context: Any) -> pb.FinishTraceReply:
        return pb.FinishTraceReply()


async def main(folder: Path, phases: list[str], count: int) -> None:
    servers = []
    for number in range(1, count + 1):
        # Agents of hosts do not probe for bandwidth either.
        server = grpc.aio.server(options=[("grpc.http2.bdp_probe", 0)])
        agent_pb2_grpc.add_AgentServicer_to_server(SimulatedAgent(phases), server)
        server.add_insecure_port(f"unix:{folder}/h{number}.sock")
        await server.start()
        servers.append(server)
    print("ready", flush=True)
    # Until the controller's end of standard input is closed.
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(server.stop(1) for server in servers))


if __name__ == "__main__":
    # Agents of hosts are no Python programs and have no garbage collector.
    gc.disable()
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])))
