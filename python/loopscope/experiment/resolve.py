"""A right file to a plan: defaults filled in, phases in order, names replaced by what they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import expectation, model, plan, rules
from .problem import Problem


def resolve(
    file: model.ExperimentFile,
    order: Sequence[str],
    params: Mapping[str, plan.Scalar],
    warnings: Sequence[Problem],
) -> plan.Experiment:
    """The plan of a file without mistakes, its phases in the given order."""
    hosts = {name: component.host for name, component in file.components.items()}
    paths = tuple(_path(name, path, hosts) for name, path in file.measure.paths.items())
    events = {path.name: [str(event) for event in path.events] for path in paths}
    return plan.Experiment(
        name=file.name,
        description=file.description,
        testbed=file.testbed,
        hosts=tuple(file.hosts),
        clocks=_clocks(file.clocks),
        clock=plan.ClockExchange(file.clock.rate, file.clock.burst, file.clock.wander),
        network=plan.Network(
            str(file.network.data), str(file.network.clock), file.network.default.mtu
        ),
        params=dict(params),
        components=tuple(_component(name, c, order) for name, c in file.components.items()),
        phases=_phases(file.phases, order),
        trace=tuple(file.trace.user),
        paths=paths,
        expectations=tuple(_expectation(line, events) for line in file.expect),
        repeat=file.repeat,
        subtract_cost=file.measure.subtract_cost,
        streams=tuple(stream(name, each) for name, each in file.trace.streams.items()),
        warnings=tuple(warnings),
    )


def _clocks(clocks: str | model.SyntheticClocks) -> plan.Clocks:
    if isinstance(clocks, model.SyntheticClocks):
        return plan.Clocks("synthetic", clocks.synthetic.seed)
    if clocks == "synthetic":
        return plan.Clocks("synthetic", model.SyntheticSeed().seed)
    return plan.Clocks("plain", None)


def _component(name: str, component: model.Component, order: Sequence[str]) -> plan.Component:
    phases = None
    if component.phases is not None:
        phases = tuple(phase for phase in order if phase in component.phases)
    return plan.Component(
        name=name,
        host=component.host,
        argv=tuple(component.run),
        config=component.with_,
        env={variable: str(value) for variable, value in component.env.items()},
        ready=_readiness(component),
        start=component.start,
        phases=phases,
    )


def _readiness(component: model.Component) -> plan.Readiness:
    ready = component.ready
    if isinstance(ready, model.LineReady):
        return plan.LineReady(ready.line)
    if isinstance(ready, model.PortReady):
        return plan.PortReady(ready.port)
    if isinstance(ready, model.ExitReady):
        return plan.ExitReady(ready.exit)
    configured = "with_" in component.model_fields_set
    rule = ready or rules.default_ready(component.run[0], configured)
    return plan.PhasesReady() if rule == "phases" else plan.StartedReady()


def _phases(phases: Sequence[model.Phase], order: Sequence[str]) -> tuple[plan.Phase, ...]:
    all_measured = not any(phase.measured for phase in phases)
    made: dict[str, plan.Phase] = {}
    previous: tuple[str, ...] = ()
    for phase in phases:
        after = previous if phase.after is None else tuple(phase.after)
        measured = phase.measured or all_measured
        made[phase.name] = plan.Phase(phase.name, phase.timeout, measured, after)
        previous = (phase.name,)
    return tuple(made[name] for name in order)


def _path(name: str, path: model.Path, hosts: Mapping[str, str]) -> plan.Path:
    events = []
    for text in path.events:
        component, _, entity = text.partition("/")
        group, _, event = entity.partition(":")
        events.append(plan.PathEvent(component, hosts[component], group, event))
    return plan.Path(name, path.key, tuple(events))


# Enough that what waits for the collector, one sub-buffer, is a small part of the ring.
_SUBBUFFERS = 16


def stream(name: str, given: model.Stream) -> plan.Stream:
    """A stream of the file, its buffer divided."""
    # Rounded up to the 8 bytes that a sub-buffer's packets are made of.
    subbuffer = -(-given.buffer // (_SUBBUFFERS * 8)) * 8
    triggers: list[plan.EntityTrigger | plan.PathTrigger] = []
    for trigger in given.triggers:
        if isinstance(trigger, model.PathTrigger):
            triggers.append(plan.PathTrigger(trigger.path, trigger.over))
        else:
            triggers.append(plan.EntityTrigger(trigger.entities, trigger.where))
    return plan.Stream(
        name=name,
        kind=given.kind,
        entities=tuple(given.entities),
        subbuffer=subbuffer,
        subbuffers=_SUBBUFFERS,
        filters=tuple(
            plan.StreamFilter(each.entities, each.where, each.every, each.rate)
            for each in given.filters
        ),
        triggers=tuple(triggers),
        post_ns=given.post,
        on_death=given.on_death,
    )


def _expectation(line: expectation.Line, events: Mapping[str, list[str]]) -> plan.Expectation:
    hop = None
    if line.hop is not None:
        known = events[line.path]
        hop = plan.Hop(known.index(line.hop[0]), known.index(line.hop[1]))
    is_time = line.stat not in expectation.COUNTS
    return plan.Expectation(
        line.text, line.path, hop, line.stat, line.operator, line.value, is_time
    )
