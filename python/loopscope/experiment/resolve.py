"""A right file to a plan: defaults filled in, phases in order, names replaced by what they name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from . import (
    component_order,
    drain,
    emulated_links,
    kernel_events,
    measures,
    model,
    model_channels,
    model_clocks,
    model_components,
    model_figures,
    model_kernel_filters,
    model_machines,
    model_messages,
    model_paths,
    model_phases,
    model_trace,
    model_wakeups,
    order,
    path_dag,
    pipelines,
    plan,
    seeds,
)
from .acceleration import Acceleration
from .channel import Channel, service
from .expect_lines import MessageLine, NumberLine
from .file_section import Section
from .problem import Problem
from .statement_values import StatisticName
from .statistic_names import is_event, unit

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Planned = TypeVar("_Planned", bound="DataclassInstance")
_UNIT: Final = re.compile("_(ns|hz|ppm|bytes)$")


def resolve(
    file: model.ExperimentFile,
    phases: Sequence[str],
    params: Mapping[str, measures.Scalar],
    tables: Mapping[str, tuple[measures.MessageType, ...]],
    modules: Mapping[str, str],
    warnings: Sequence[Problem],
) -> plan.Experiment:
    """The plan of a file without mistakes, its phases in the given order.

    ``tables`` are those of ``measure.patterns``, by the pattern's name; ``modules`` the Python
    files that ``analyse`` calls.
    """
    hosts = {name: component.host for name, component in file.components.items()}
    warmup_ns = next((phase.warmup for phase in file.phases if phase.warmup is not None), 0)
    if file.channels:
        hosts |= {service(host): host for host in hosts.values()}
    paths = tuple(_path(name, path, hosts, warmup_ns) for name, path in file.measure.paths.items())
    events = {path.name: [str(event) for event in path.events] for path in paths}
    emulation = emulated_links.emulation(file.network, tuple(file.hosts))
    return plan.Experiment(
        name=file.name,
        description=file.description,
        testbed=file.testbed,
        hosts=tuple(file.hosts),
        clocks=_clocks(file.clocks),
        clock=_same(plan.ClockExchange, file.clock),
        network=plan.Network(
            data=str(file.network.data),
            clock=str(file.network.clock),
            mtu=file.network.default.mtu,
            emulation=emulation,
            channels_port=file.network.channels_port,
            channels_congestion=file.network.channels_congestion,
        ),
        params=dict(params),
        components=_in_order(
            [_component(name, c, phases) for name, c in file.components.items()], file, phases
        ),
        phases=_phases(file.phases, phases),
        trace=tuple(file.trace.user),
        kernel=_kernel(file),
        kernel_asked=file.trace.kernel != "auto"
        or bool(file.trace.messages)
        or bool(file.trace.wakeups)
        or any(each.kernel is not None for each in file.trace.streams.values())
        or file.trace.alternate is not None
        or file.trace.kernel_histograms,
        messages=tuple(_messages(name, each) for name, each in file.trace.messages.items()),
        alternate_ns=file.trace.alternate,
        kernel_histograms=file.trace.kernel_histograms,
        kernel_filters=_kernel_filters(file.trace.kernel_filters),
        wakeups=tuple(_wakeups(name, each) for name, each in file.trace.wakeups.items()),
        paths=paths,
        expectations=tuple(_expectation(line, events, hosts) for line in file.expect),
        repeat=file.repeat,
        subtract_cost=file.measure.subtract_cost,
        patterns=tuple(
            measures.Pattern(name, each.table, each.sent, each.received, tables[name])
            for name, each in file.measure.patterns.items()
        ),
        streams=tuple(stream(name, each) for name, each in file.trace.streams.items()),
        values=tuple(_value(name, value) for name, value in file.measure.values_.items()),
        table=_table(file, paths, events),
        figures=tuple(_figure(name, figure, events) for name, figure in file.figures.items()),
        analyse=graph(file.analyse, modules),
        warnings=tuple(warnings),
        machines={name: _machine(name, file.machines.get(name)) for name in file.hosts}
        if file.testbed == "ssh"
        else {},
        settings=file.settings.resolved(),
        send=tuple(file.send),
        drain_ns=drain.default_ns(emulation, paths) if file.drain is None else file.drain,
        channels=tuple(_channel(name, each, hosts) for name, each in file.channels.items()),
        groups={name: tuple(members) for name, members in file.groups.items()},
    )


def _kernel(file: model.ExperimentFile) -> tuple[str, ...]:
    given = file.trace.kernel
    protocols = sorted({each.protocol for each in file.trace.messages.values()})
    causes = sorted({each.by for each in file.trace.wakeups.values()})
    told = [pattern for each in protocols for pattern in kernel_events.OF_MESSAGES[each]]
    told += [pattern for each in causes for pattern in kernel_events.OF_WAKEUPS[each]]
    if given == "auto":
        kept = any(each.kernel is not None for each in file.trace.streams.values())
        plain = (kept or file.testbed == "local") and file.clocks == "plain"
        return (*(kernel_events.AUTO if plain else ()), *told)
    if isinstance(given, str):
        return ("*",) if given == "full" else ()
    return (*given, *told)


def _kernel_filters(given: model_kernel_filters.KernelFilters | None) -> plan.KernelFilters | None:
    if given is None:
        return None
    return plan.KernelFilters(tuple(given.ports), tuple(given.devices), given.calls_over or 0)


def _messages(name: str, given: model_messages.ProgramMessages) -> plan.ProgramMessages:
    number = None if given.number == "order" else given.number.model_dump()
    port = given.to or given.from_
    assert port is not None
    length = None if given.length is None else given.length.model_dump()
    return plan.ProgramMessages(
        name, given.protocol, port, given.to is None, number, length, given.address
    )


def _channel(name: str, given: model_channels.Channel, hosts: Mapping[str, str]) -> Channel:
    """``hosts``: of the components."""
    slots, home = given.slots, hosts.get(given.home, given.home)
    if slots is None:
        slots = given.capacity + given.outputs * given.loans
    return _same(Channel, given, name=name, home=home, slots=slots)


def _wakeups(name: str, given: model_wakeups.Wakeups) -> plan.ProgramWakeups:
    return plan.ProgramWakeups(name, given.by, given.interrupt or "*", given.thread, given.number)


def graph(given: Mapping[str, pipelines.Pipeline], modules: Mapping[str, str]) -> plan.Graph:
    """The pipelines of ``analyse``, in order."""
    made = {name: _pipeline(name, pipeline) for name, pipeline in given.items()}
    after = {name: [taken for taken in each.inputs if taken in made] for name, each in made.items()}
    return plan.Graph(tuple(made[name] for name in order.in_order(after)), dict(modules))


def _pipeline(name: str, given: pipelines.Pipeline) -> plan.Pipeline:
    made = []
    for step in given.steps:
        given_options = step.model_dump(by_alias=True)
        ((kind, options),) = ((k, each) for k, each in given_options.items() if each is not None)
        made.append(plan.AnalysisStep(kind, options))
    return plan.Pipeline(name, given.from_, tuple(made))


def _same(kind: type[_Planned], section: Section, **others: Any) -> _Planned:
    """An object of the plan that has the values of a section, besides ``others``.

    A key is called in the plan as in the file, with its unit behind it: ``timeout_ns``.
    """
    for name in (each.name for each in fields(kind) if each.name not in others):
        value = getattr(section, _UNIT.sub("", name))
        others[name] = tuple(value) if isinstance(value, list) else value
    return kind(**others)


def _clocks(clocks: str | model_clocks.SyntheticClocks) -> plan.Clocks:
    if isinstance(clocks, model_clocks.SyntheticClocks):
        settings = clocks.synthetic
        steps = {host: _same(plan.RealtimeStep, step) for host, step in settings.realtime.items()}
        return plan.Clocks("synthetic", settings.seed, steps)
    if clocks == "synthetic":
        return plan.Clocks("synthetic", model_clocks.SyntheticSettings().seed)
    return plan.Clocks("plain", None)


def _machine(host: str, machine: model_machines.Machine | None) -> plan.Machine:
    if machine is None:
        return plan.Machine(host)
    data, clock = machine.data or (), machine.clock or ()
    return _same(
        plan.Machine,
        machine,
        address=machine.address or host,
        data=data,
        clock=clock,
        settings=machine.settings.resolved(),
    )


def _component(
    name: str, component: model_components.Component, order: Sequence[str]
) -> plan.Component:
    phases = None
    known = component.commands or component.phases
    if known is not None:
        phases = tuple(phase for phase in order if phase in known)
    ready, config = _readiness(component), component.with_
    if (
        isinstance(ready, plan.PhasesReady)
        and seeds.takes_default(component.argv)
        and not component.commands
    ):
        config = {"seed": seeds.DEFAULT, **config}
    return _same(
        plan.Component,
        component,
        name=name,
        argv=component.argv,
        commands={phase: tuple(words) for phase, words in component.commands.items()},
        config=config,
        env={variable: str(value) for variable, value in component.env.items()},
        ready=ready,
        phases=phases,
        traces=tuple(
            plan.ForeignTrace(each, None)
            if isinstance(each, str)
            else _same(plan.ForeignTrace, each)
            for each in component.traces
        ),
        environment=_environment(component),
        after={},
        accelerate=_acceleration(component.accelerate),
    )


def _acceleration(given: bool | model_components.Acceleration) -> Acceleration | None:
    if given is False:
        return None
    asked = model_components.Acceleration() if given is True else given
    return _same(Acceleration, asked)


def _in_order(
    components: Sequence[plan.Component], file: model.ExperimentFile, phases: Sequence[str]
) -> tuple[plan.Component, ...]:
    """The components with those that each comes after, by phase."""
    parts = {
        each.name: component_order.Part(
            each.start or component_order.START_UP,
            _possible_phases(each),
            file.components[each.name].after,
        )
        for each in components
    }
    after: dict[str, dict[str, tuple[str, ...]]] = {each.name: {} for each in components}
    together = {phase.name for phase in file.phases if phase.common_start is not None}
    for phase in (component_order.START_UP, *(p for p in phases if p not in together)):
        for name, others in component_order.in_phase(phase, parts, file.groups).items():
            if others:
                after[name][phase] = tuple(others)
    return tuple(replace(each, after=after[each.name]) for each in components)


def _possible_phases(component: plan.Component) -> frozenset[str] | None:
    if component.phases is None and isinstance(component.ready, plan.PhasesReady):
        return None
    return frozenset(component.phases or ())


# What another user's program inherits where its component does not say: as of su or sudo.
_OF_OTHERS = ("PATH", "LANG", "LANGUAGE", "LC_*", "TZ")


def _environment(component: model_components.Component) -> tuple[str, ...]:
    if component.environment is not None:
        return tuple(component.environment)
    return ("*",) if component.user is None else _OF_OTHERS


def _readiness(component: model_components.Component) -> plan.Readiness:
    ready = component.ready
    if isinstance(ready, model_components.LineReady):
        return plan.LineReady(ready.line)
    if isinstance(ready, model_components.PortReady):
        return plan.PortReady(ready.port)
    if isinstance(ready, model_components.ExitReady):
        return plan.ExitReady(ready.exit)
    configured = "with_" in component.model_fields_set
    rule = ready or model_components.default_ready(component.argv[0], configured)
    return plan.PhasesReady() if rule == "phases" else plan.StartedReady()


def _phases(phases: Sequence[model_phases.Phase], order: Sequence[str]) -> tuple[plan.Phase, ...]:
    all_measured = not any(phase.measured for phase in phases)
    made: dict[str, plan.Phase] = {}
    previous: tuple[str, ...] = ()
    for phase in phases:
        after = previous if phase.after is None else tuple(phase.after)
        measured = phase.measured or all_measured
        made[phase.name] = plan.Phase(
            phase.name,
            phase.timeout,
            measured,
            after,
            phase.common_start,
            None if phase.kernel is None else tuple(phase.kernel),
        )
        previous = (phase.name,)
    return tuple(made[name] for name in order)


def _path(
    name: str, path: model_paths.Path, hosts: Mapping[str, str], warmup_ns: int
) -> measures.Path:
    trim_ns = warmup_ns if path.trim is None else path.trim
    steps = [_step(each) for each in path.events]
    if all(step.is_plain for step in steps):
        events = tuple(_event(step.event, hosts) for step in steps)
        return measures.Path(name, path.key, events, trim_ns)
    graph, _ = path_dag.graph(steps, path.key, hosts)
    return measures.Path(
        name=name,
        key=path.key,
        events=tuple(_event(event, hosts) for event in graph.events),
        trim_ns=trim_ns,
        keys=tuple(graph.keys),
        edges=tuple(graph.edges),
    )


def _event(text: str, hosts: Mapping[str, str]) -> measures.PathEvent:
    component, _, entity = text.partition("/")
    group, _, event = entity.partition(":")
    return measures.PathEvent(component, hosts[component], group, event)


def _step(given: str | model_paths.GraphEvent) -> path_dag.Step:
    if isinstance(given, str):
        return path_dag.Step(given)
    joins = None
    if given.join is not None:
        joins = {event: _join(join) for event, join in given.join.items()}
    return path_dag.Step(given.event, given.key, given.from_, given.after, joins, given.source)


def _join(given: str | model_paths.JoinedInput) -> path_dag.Join:
    if isinstance(given, model_paths.JoinedInput):
        return path_dag.Join(given.use or "window", given.from_, given.window)
    return path_dag.Join("every" if given == "every" else "latest")


# Enough that what waits for the collector, one sub-buffer, is a small part of the ring.
_SUBBUFFERS = 16


def stream(name: str, given: model_trace.Stream) -> plan.Stream:
    """A stream of the file, its buffer divided."""
    # Rounded up to the 8 bytes that a sub-buffer's packets are made of.
    subbuffer = -(-given.buffer // (_SUBBUFFERS * 8)) * 8
    return _same(
        plan.Stream,
        given,
        name=name,
        subbuffer=subbuffer,
        subbuffers=_SUBBUFFERS,
        filters=tuple(_same(plan.StreamFilter, each) for each in given.filters),
        triggers=tuple(
            _same(plan.PathTrigger, each)
            if isinstance(each, model_trace.PathTrigger)
            else _same(plan.EntityTrigger, each)
            for each in given.triggers
        ),
    )


def _expectation(
    line: NumberLine | MessageLine,
    events: Mapping[str, list[str]],
    hosts: Mapping[str, str],
) -> measures.Expectation | measures.Requirement:
    if isinstance(line, MessageLine):
        periodic = line.kind == "every"
        hop, op, limit = _hop(line.subject, line.hop, events), line.operator, line.limit
        if line.kind == "before" and hop is not None:
            as_listed = hop.start < hop.end
            hop, op = (hop, ">") if as_listed else (measures.Hop(hop.end, hop.start), "<")
            limit = 0
        return measures.Requirement(
            text=line.text,
            kind=line.kind,
            path=None if periodic else line.subject,
            hop=hop,
            event=_event(line.subject, hosts) if periodic else None,
            op=op,
            limit_ns=limit,
            period_ns=line.period,
            allowed=line.allowed,
            window=line.window,
        )
    of_time = line.stat is not None and unit(line.stat) == "ns"
    return measures.Expectation(
        line.text,
        line.path,
        _hop(line.path, line.hop, events),
        line.stat,
        line.operator,
        line.value,
        of_time or line.clock is not None,
        line.clock,
        _event(line.path, hosts) if is_event(line.path) else None,
        line.window,
    )


def _hop(
    path: str, ends: tuple[str, str] | None, events: Mapping[str, list[str]]
) -> measures.Hop | None:
    if ends is None:
        return None
    known = events[path]
    return measures.Hop(known.index(ends[0]), known.index(ends[1]))


def _value(name: str, value: model_figures.Value) -> measures.Value:
    group, _, event = (value.of or "").partition(":")
    unit = value.unit or ""
    if value.layer is not None:
        unit = model_figures.UNITS_OF_LAYERS[value.stat]
    return _same(measures.Value, value, name=name, group=group, event=event, unit=unit)


def _statistic(subject: StatisticName, events: Mapping[str, list[str]]) -> measures.Statistic:
    hop = _hop(subject.path, subject.hop, events)
    return measures.Statistic(subject.text, subject.path, hop, subject.stat)


def _table(
    file: model.ExperimentFile, paths: Sequence[measures.Path], events: Mapping[str, list[str]]
) -> tuple[measures.Statistic, ...]:
    if file.table is not None:
        return tuple(_statistic(subject, events) for subject in file.table)
    stats: tuple[measures.FigureStat, ...] = ("p50", "p99", "lost")
    return (
        *(
            measures.Statistic(f"{part}.{stat}", path.name, hop, stat)
            for path in paths
            for part, hop in _parts(path)
            for stat in stats
        ),
        *(measures.Statistic(value, value, None, None) for value in file.measure.values_),
    )


def _parts(path: measures.Path) -> list[tuple[str, measures.Hop | None]]:
    """A path as it is written where a statistic of it is named; each of several pairs of ends."""
    if len(path.ends) == 1:
        return [(path.name, None)]
    events = path.events
    return [
        (f"{path.name}[{events[start]} -> {events[end]}]", measures.Hop(start, end))
        for start, end in path.ends
    ]


def _figure(
    name: str, figure: model_figures.Figure, events: Mapping[str, list[str]]
) -> measures.Figure:
    return _same(
        measures.Figure,
        figure,
        name=name,
        y=tuple(_statistic(subject, events) for subject in figure.y),
        error=_statistic(figure.error[0], events) if figure.error else None,
    )
