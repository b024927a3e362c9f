"""The schedule of an experiment, for ``run --dry``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from loopscope.experiment import Experiment, MachineSettings
    from loopscope.experiment.schedule import Act, Stage


def show(experiment: Experiment, as_json: bool) -> None:
    """Prints what a run of the experiment would do."""
    from loopscope.experiment.schedule import schedule

    stages = schedule(experiment)
    if as_json:
        document = {
            "experiment": experiment.name,
            "testbed": experiment.testbed,
            "hosts": list(experiment.hosts),
            "settings": {place: dict(each.shown()) for place, each in _settings(experiment)},
            "groups": {name: list(members) for name, members in experiment.groups.items()},
            "stages": [stage.to_json() for stage in stages],
            "drain_ns": experiment.drain_ns,
            "repeat": experiment.repeat,
            "points": [point.name for point in experiment.points],
        }
        typer.echo(to_json(document, indent=2))
        return
    typer.echo("\n".join(_lines(experiment, stages)))


def _lines(experiment: Experiment, stages: list[Stage]) -> Iterator[str]:
    from loopscope.experiment import quantity

    def time(ns: int) -> str:
        return quantity.format(ns, quantity.DURATION)

    runs = experiment.repeat * max(len(experiment.points), 1)
    of_points = f" ({len(experiment.points)} points)" if experiment.points else ""
    hosts = len(experiment.hosts)
    yield f"{experiment.name}: {runs} x {hosts} hosts of testbed {experiment.testbed}{of_points}"
    for place, settings in _settings(experiment):
        given = ", ".join(f"{name} {value}" for name, value in settings.shown())
        yield f"settings of {place} while it lasts: {given}"
    acts = [act for stage in stages for act in stage.acts]
    host = max(len(act.component.host) for act in acts)
    name = max(len(act.component.name) for act in acts)
    for stage in stages:
        if stage.phase is None:
            yield "start-up"
        else:
            measured = ", measured" if stage.phase.measured else ""
            begin = stage.phase.common_start_ns
            together = f", begins for all {time(begin)} after they are told" if begin else ""
            limit = time(stage.phase.timeout_ns)
            yield f"phase {stage.phase.name}: at most {limit}{measured}{together}"
        for act in stage.acts:
            yield f"  {act.component.host:{host}}  {act.component.name:{name}}  {_what(act)}"
    yield f"drain: {time(experiment.drain_ns)}"
    yield "end: every component is asked to end"


def _settings(experiment: Experiment) -> Iterator[tuple[str, MachineSettings]]:
    """The machines whose settings change, and these."""
    machines = {name: machine.settings for name, machine in experiment.machines.items()}
    for place, settings in {"this machine": experiment.settings, **machines}.items():
        if any(settings.shown()):
            yield place, settings


def _what(act: Act) -> str:
    spec = act.component
    parts = []
    if act.starts:
        parts.append("starts")
    if act.enters is not False:
        parts.append("takes part" if act.enters else "takes part if its program knows the phase")
    text = ", ".join(parts)
    if act.after:
        text += f", after {', '.join(act.after)}"
    marks = {"background": spec.background, "allow_failure": spec.allow_failure}
    given = [mark for mark, is_set in marks.items() if is_set and act.starts]
    return text + (f" ({', '.join(given)})" if given else "")
