"""Where hosts come from, and how their agents are reached."""

from loopscope.testbed.agent import Agent, AgentError
from loopscope.testbed.local import Host, LocalTestbed, TestbedError, dormant, host_binary

__all__ = ["Agent", "AgentError", "Host", "LocalTestbed", "TestbedError", "dormant", "host_binary"]
