"""What emulates the links: a router, which is one more host, or a component on hosts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from loopscope.control.failure import RunFailed
from loopscope.experiment import (
    Component,
    Experiment,
    PhasesReady,
    links_document,
    main_stream,
    streams_document,
)
from loopscope.experiment.kernel_events import selected
from loopscope.provider import Router

# No name in an experiment file begins with _.
LINKS = "_links"
# Among the hosts.
NAME = "_router"
# What hosts lack that cannot move packets so.
AF_XDP = "AF_XDP"


def is_needed(experiment: Experiment) -> bool:
    """Whether anything stands between the hosts but a bridge."""
    return experiment.network.emulation is not None


def check_mover(experiment: Experiment, router: Router | None) -> None:
    """Raises RunFailed where the router lacks what the file has move packets."""
    emulation = experiment.network.emulation
    if emulation is None or emulation.mover != "xdp" or router is None:
        return
    for lack in router.host.lacking or ():
        if lack.what == AF_XDP:
            raise RunFailed(
                f"the file has `mover: xdp`, and the hosts lack {AF_XDP} ({lack.why}): leave "
                "`mover` out, which takes what there is, or run as root"
            )


def emulates(component: str) -> bool:
    """Whether the component emulates links, and is not one of the experiment's."""
    return component == LINKS or component.startswith(f"{LINKS}-")


def links(experiment: Experiment, router: Router) -> Component:
    """The component that moves packets between the hosts, through the experiment's links."""
    ports = [
        {"host": port.host, "device": port.device, "address": port.link_address}
        for port in router.ports
    ]
    return _component(LINKS, router.host.name, links_document(experiment, ports))


def links_at_senders(experiment: Experiment, addresses: Mapping[str, str]) -> list[Component]:
    """The components by which each host impairs what it sends to the hosts' addresses."""
    ports = [{"host": host, "ip": address} for host, address in addresses.items()]
    return [
        _component(f"{LINKS}-{name}", name, links_document(experiment, ports, name))
        for name in addresses
    ]


def links_at_router(experiment: Experiment, addresses: Mapping[str, str], name: str) -> Component:
    """The component by which a host impairs what it forwards to the hosts' addresses."""
    ports = [{"host": host, "ip": address} for host, address in addresses.items()]
    return _component(f"{LINKS}-{name}", name, links_document(experiment, ports))


def links_between(experiment: Experiment) -> list[tuple[str, str]]:
    """The pairs of hosts whose packets have to come to the host that is the router."""
    emulation = experiment.network.emulation
    if emulation is None or emulation.router is None:
        return []
    pairs = [(link.source, link.target) for link in emulation.links]
    pairs = pairs or list(itertools.permutations(experiment.hosts, 2))
    return [pair for pair in pairs if emulation.router not in pair]


def _component(name: str, host: str, config: dict[str, Any]) -> Component:
    return Component(
        name=name,
        host=host,
        argv=("loopscope-host", "emulate"),
        config=config,
        env={},
        ready=PhasesReady(),
        start=None,
        phases=None,
    )


_OF_PACKETS = ("enqueued", "departed", "dropped", "corrupted", "duplicated")
"""Events of each packet; ``packet`` is for the kernels' own of the same packets."""


def streams(experiment: Experiment) -> str:
    """Streams that are recorded of the links, whatever the experiment's own are; empty: none."""
    emulation = experiment.network.emulation
    if emulation is None:
        return ""
    # netem gives no events of packets. Changes of links are always recorded.
    entities = ["link:set"]
    if emulation.trace and emulation.mover != "netem":
        entities += [f"link:{name}" for name in _OF_PACKETS]
        if {"tcp", "udp"} & selected(experiment.kernel).keys():
            entities.append("link:packet")
    return streams_document([main_stream(entities)])
