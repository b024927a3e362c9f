"""Where hosts come from, and how their agents are reached.

What needs gRPC is imported at first use: it comes with the extra `testbed`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from loopscope.testbed.program import TestbedError, dormant, host_binary

if TYPE_CHECKING:
    from loopscope.testbed.agent import Agent, AgentError
    from loopscope.testbed.local import Host, LocalTestbed

__all__ = ["Agent", "AgentError", "Host", "LocalTestbed", "TestbedError", "dormant", "host_binary"]

_AT_FIRST_USE: Final = {
    "Agent": "agent",
    "AgentError": "agent",
    "Host": "local",
    "LocalTestbed": "local",
}


def __getattr__(name: str) -> Any:
    if name not in _AT_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_AT_FIRST_USE[name]}"), name)
