"""Where hosts come from: the providers of testbeds."""

from __future__ import annotations

from importlib import import_module

from loopscope.experiment import Experiment
from loopscope.provider import Provider, TestbedError
from loopscope.testbed.program import dormant, host_binary, preload_library

__all__ = ["TestbedError", "dormant", "host_binary", "preload_library", "provider"]


def provider(experiment: Experiment) -> Provider:
    """The provider of the testbed that an experiment names.

    It is imported at first use: it needs gRPC, which comes with the extra `testbed`.
    """
    made: Provider = import_module(f"{__name__}.{experiment.testbed}").provide(experiment)
    return made
