"""The services of an experiment's channels: a component on each host that has others."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from loopscope.experiment import (
    Component,
    Experiment,
    PhasesReady,
    channels_document,
    service,
)

# Where programs find the service (schema/stm.md).
_VARIABLE = "LOOPSCOPE_STM"
_KEY_BYTES = 32


def services(experiment: Experiment, addresses: Mapping[str, str]) -> list[Component]:
    """The components that serve the channels, on each host that has components.

    ``addresses``: of hosts, where other hosts reach them. Those that are homes have to be there
    before a program asks for one of their channels elsewhere, and come first.
    """
    every = hosts(experiment)
    key = secrets.token_hex(_KEY_BYTES)
    return [_service(experiment, host, addresses, key) for host in every]


def variables(experiment: Experiment, host: str, run_id: str) -> dict[str, str]:
    """What tells the programs of a host where its service is.

    The socket has a name without a file, of the host's network namespace. Where several hosts
    share one, theirs differ.
    """
    if host not in hosts(experiment):
        return {}
    return {_VARIABLE: f"@loopscope-stm-{run_id}-{host}"}


def hosts(experiment: Experiment) -> list[str]:
    """The hosts that have a service: homes first."""
    if not experiment.channels:
        return []
    homes = [channel.home for channel in experiment.channels]
    return list(dict.fromkeys([*homes, *(each.host for each in experiment.components)]))


def _service(
    experiment: Experiment, host: str, addresses: Mapping[str, str], key: str
) -> Component:
    channels = [each for each in experiment.channels if each.home == host]
    config = channels_document(channels)
    if len(hosts(experiment)) > 1:
        config |= _shared(experiment, host, addresses, key)
    return Component(
        name=service(host),
        host=host,
        argv=("loopscope-host", "stm", "serve"),
        config=config,
        env={},
        ready=PhasesReady(),
        start=None,
        phases=None,
    )


def _shared(
    experiment: Experiment, host: str, addresses: Mapping[str, str], key: str
) -> dict[str, Any]:
    """How a service has items of other hosts, and they have those of its channels."""

    def at(home: str) -> str:
        address = addresses[home]
        named = f"[{address}]" if ":" in address else address
        return f"{named}:{experiment.network.channels_port}"

    others = {each.name: at(each.home) for each in experiment.channels if each.home != host}
    listens = {} if len(others) == len(experiment.channels) else {"listen": at(host)}
    name = experiment.network.channels_congestion
    congestion = {} if name is None else {"congestion": name}
    return {"key": key, "homes": others} | listens | congestion
