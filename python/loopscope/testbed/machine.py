"""The client of the local testbed's provisioning (proto/machine.proto): the machine's agent."""

from __future__ import annotations

from pathlib import Path

from loopscope.provider.connection import Connection
from loopscope.testbed._proto import machine_pb2 as pb

SERVICE = "loopscope.machine.v1.Machine"
NAME = "machine"
BUILD_S = 60.0


async def build_testbed(socket: Path, request: pb.BuildTestbedRequest) -> pb.BuildTestbedReply:
    """Has the agent at ``socket`` make hosts, and a router where one is asked for.

    Raises AgentError.
    """
    machine = Connection(NAME, socket, SERVICE, pb, lambda: "its agent is gone")
    try:
        reply: pb.BuildTestbedReply = await machine.ask("BuildTestbed", request, BUILD_S)
        return reply
    finally:
        await machine.close()
