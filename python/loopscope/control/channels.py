"""The services of an experiment's channels: a component on each host that is a home of some."""

from __future__ import annotations

from loopscope.experiment import Component, Experiment, PhasesReady, channels_document

# No name in an experiment file begins with _.
NAME = "_channels"
# Where programs find the service (schema/stm.md).
_VARIABLE = "LOOPSCOPE_STM"


def services(experiment: Experiment) -> list[Component]:
    """The components that serve the channels."""
    homes = dict.fromkeys(channel.home for channel in experiment.channels)
    return [_service(experiment, home) for home in homes]


def variables(experiment: Experiment, host: str, run_id: str) -> dict[str, str]:
    """What tells the programs of a host where its service is.

    The socket has a name without a file, of the host's network namespace. Where several hosts
    share one, theirs differ.
    """
    if all(channel.home != host for channel in experiment.channels):
        return {}
    return {_VARIABLE: f"@loopscope-stm-{run_id}-{host}"}


def _service(experiment: Experiment, home: str) -> Component:
    channels = [each for each in experiment.channels if each.home == home]
    return Component(
        name=f"{NAME}-{home}",
        host=home,
        argv=("loopscope-host", "stm", "serve"),
        config=channels_document(channels),
        env={},
        ready=PhasesReady(),
        start=None,
        phases=None,
    )
