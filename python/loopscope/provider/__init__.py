"""The interface between control and the testbeds that hosts come from.

What needs gRPC is imported at first use: it comes with the extra `testbed`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loopscope.provider.interface import (
    CLOCK,
    DATA,
    Host,
    Lack,
    LackOfHosts,
    Network,
    Provider,
    Request,
    Router,
    RouterPort,
    Testbed,
    TestbedError,
)

if TYPE_CHECKING:
    from loopscope.provider.agent import Agent, AgentError, AgentLost

__all__ = [
    "CLOCK",
    "DATA",
    "Agent",
    "AgentError",
    "AgentLost",
    "Host",
    "Lack",
    "LackOfHosts",
    "Network",
    "Provider",
    "Request",
    "Router",
    "RouterPort",
    "Testbed",
    "TestbedError",
]


# mypy would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in ("Agent", "AgentError", "AgentLost"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.agent"), name)
