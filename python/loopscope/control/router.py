"""The router between the hosts of an emulated network, as one more host with one component."""

from __future__ import annotations

import json
from collections.abc import Mapping

from loopscope.experiment import (
    Component,
    Experiment,
    PhasesReady,
    links_document,
    main_stream,
    streams_document,
)
from loopscope.testbed import Host

# No name in an experiment file begins with _.
LINKS = "_links"


def is_needed(experiment: Experiment) -> bool:
    """Whether packets are moved by a program, and not by the kernel."""
    emulation = experiment.network.emulation
    return emulation is not None and emulation.mover != "netem"


def netem(experiment: Experiment) -> str:
    """What the kernel's netem is told, where it is what the links are made of; else empty."""
    emulation = experiment.network.emulation
    if emulation is None or is_needed(experiment):
        return ""
    # The testbed knows its ports.
    return json.dumps(links_document(experiment, {}))


def links(experiment: Experiment, hosts: Mapping[str, Host], router: Host) -> Component:
    """What moves the packets between the hosts, through the experiment's links."""
    return Component(
        name=LINKS,
        host=router.name,
        argv=("loopscope-host", "emulate"),
        config=links_document(experiment, {host.name: host.port for host in hosts.values()}),
        env={},
        ready=PhasesReady(),
        start=None,
        phases=None,
    )


def streams(experiment: Experiment) -> str:
    """What is recorded there, whatever the experiment's own streams are; empty: nothing."""
    emulation = experiment.network.emulation
    if emulation is None or not emulation.trace:
        return ""
    return streams_document([main_stream(["link:*"])])
