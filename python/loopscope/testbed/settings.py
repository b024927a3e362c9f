"""Settings that a machine has while a run lasts, made by the agent that restores them."""

from __future__ import annotations

from loopscope.experiment import MachineSettings
from loopscope.provider import Lack
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.agent import Agent


async def make(agent: Agent, settings: MachineSettings) -> list[Lack]:
    """Has the agent make them; what could not be done and is no error.

    Raises AgentError with the keys that cannot be made.
    """
    if settings == MachineSettings():
        return []
    interfaces = {
        name: pb.InterfaceSettings(values=values) for name, values in settings.interfaces.items()
    }
    reply = await agent.set(
        pb.SetRequest(
            governor=settings.governor,
            interrupts=settings.interrupts,
            sysctls=settings.sysctls,
            interfaces=interfaces,
        )
    )
    return [Lack(each.what, each.why, each.cost) for each in reply.lacking]
