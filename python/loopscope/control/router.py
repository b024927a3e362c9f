"""The router between the hosts of an emulated network, as one more host with one component."""

from __future__ import annotations

from loopscope.experiment import (
    Component,
    Experiment,
    PhasesReady,
    links_document,
    main_stream,
    streams_document,
)
from loopscope.provider import Router

# No name in an experiment file begins with _.
LINKS = "_links"
# Among the hosts.
NAME = "_router"


def is_needed(experiment: Experiment) -> bool:
    """Whether anything stands between the hosts but a bridge."""
    return experiment.network.emulation is not None


def links(experiment: Experiment, router: Router) -> Component:
    """The component that moves packets between the hosts, through the experiment's links."""
    return Component(
        name=LINKS,
        host=router.host.name,
        argv=("loopscope-host", "emulate"),
        config=links_document(
            experiment,
            [
                {"host": port.host, "device": port.device, "address": port.link_address}
                for port in router.ports
            ],
        ),
        env={},
        ready=PhasesReady(),
        start=None,
        phases=None,
    )


def streams(experiment: Experiment) -> str:
    """Streams that are recorded on the router, whatever the experiment's own are; empty: none."""
    emulation = experiment.network.emulation
    if emulation is None:
        return ""
    # netem gives no events of packets. Changes of links are always recorded.
    packets = emulation.trace and emulation.mover != "netem"
    return streams_document([main_stream(["link:*" if packets else "link:set"])])
