"""What several values of the file must be together.

The rules look at the tree after the replacement of parameters, take what they can read and leave
the rest to the models, so that a mistake elsewhere never hides one here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Network
from itertools import pairwise
from pathlib import Path

from pydantic_core import PydanticCustomError

from . import analysis_rules, expect_lines, links, order, path_rules, quantity, study_rules, values
from .model import Network, Pattern
from .problem import Problem, Severity, dotted, nearest
from .source import Location, Mapping, Mark, Scalar, Tree, child, elements, entries, text_of
from .sweep import swept
from .values import Names, Report

# Hosts without a component that are each told of; of more there is one warning.
FEW = 3


def names(root: Tree, file: str) -> Names:
    """The names that the file gives to hosts, components, phases and paths."""
    hosts = child(root, "hosts")
    components = child(root, "components")
    paths = child(child(root, "measure"), "paths")
    measured = child(child(root, "measure"), "values")
    return Names(
        hosts=_texts(hosts) if elements(hosts) else None,
        components=frozenset(name for name, _, _ in entries(components)) or None,
        phases=frozenset(name for _, name in _phases(root) if name) or None,
        paths=None
        if _unreadable(child(root, "measure")) or _unreadable(paths)
        else path_rules.events(paths),
        graphs=path_rules.graphs(paths),
        values=None
        if _unreadable(child(root, "measure")) or _unreadable(measured)
        else study_rules.units(measured),
        swept=swept(root),
        folder=Path(file).parent,
    )


def problems(root: Tree, file: str) -> list[Problem]:
    """Everything that the rules find."""
    return _found(
        root,
        file,
        _hosts,
        _links,
        _subnets,
        _phase_names,
        _phase_order,
        _readiness,
        _traces,
        _path_events,
        path_rules.graphs_are_whole,
        _pattern_events,
        _expected_events,
        _streams,
        _clock_messages,
        study_rules.values_are_whole,
        study_rules.table,
        study_rules.figures,
        *analysis_rules.RULES,
    )


def problems_of_streams(root: Tree, file: str) -> list[Problem]:
    """What the rules find in ``trace.streams``."""
    return _found(root, file, _streams)


def problems_of_graph(root: Tree, file: str) -> list[Problem]:
    """What the rules find in ``analyse``."""
    return _found(root, file, *analysis_rules.RULES)


def _found(root: Tree, file: str, *rules: Callable[[Tree, Names, Report], None]) -> list[Problem]:
    found: list[Problem] = []

    def report(
        mark: Mark,
        path: Location,
        message: str,
        hint: str | None = None,
        severity: Severity = "error",
    ) -> None:
        place = (file, mark.line, mark.column, dotted(path))
        found.append(Problem(*place, message, hint, severity))

    known = names(root, file)
    for rule in rules:
        rule(root, known, report)
    return found


def default_ready(program: str, configured: bool) -> str:
    """The readiness rule of a component that gives none."""
    speaks = configured or program.rsplit("/", 1)[-1] == "loopscope-host"
    return "phases" if speaks else "started"


def phase_order(root: Tree) -> list[str]:
    """The phases' names in the order in which they run."""
    return order.in_order(_after(root))


def _hosts(root: Tree, known: Names, report: Report) -> None:
    first: dict[str, Mark] = {}
    for i, item in enumerate(elements(child(root, "hosts"))):
        name = text_of(item)
        if name is None:
            continue
        if name in first:
            message = f"the host {name!r} is given twice: first on line {first[name].line}"
            report(item.mark, ("hosts", i), message)
        first.setdefault(name, item.mark)
    components = [component for _, _, component in entries(child(root, "components"))]
    used = {text_of(child(component, "host")) for component in components}
    if not used or None in used or not used <= (known.hosts or set()):
        return
    hosts = [(i, item, text_of(item)) for i, item in enumerate(elements(child(root, "hosts")))]
    idle = [(i, item, name) for i, item, name in hosts if name and name not in used]
    if len(idle) > FEW:
        i, item, _ = idle[0]
        names = ", ".join(name for _, _, name in idle[:FEW])
        message = f"no component runs on {len(idle)} of {len(hosts)} hosts: {names}, …"
        report(item.mark, ("hosts", i), message, severity="warning")
        return
    for i, item, name in idle:
        message = f"no component runs on the host {name!r}"
        report(item.mark, ("hosts", i), message, severity="warning")


def _links(root: Tree, known: Names, report: Report) -> None:
    links.rule(root, known, report, _longest_ns(root))


def _longest_ns(root: Tree) -> int | None:
    """What the run takes at most from the beginning of its first measured phase."""
    phases = {name: phase for phase, name in _phases(root)}
    order = [phases[name] for name in phase_order(root)]
    measured = [_is_true(child(phase, "measured")) for phase in order]
    try:
        timeouts = [
            quantity.parse_whole(text_of(child(phase, "timeout")), quantity.DURATION)
            for phase in order[measured.index(True) if True in measured else 0 :]
        ]
    except quantity.QuantityError:
        return None
    return sum(timeouts) or None


def _subnets(root: Tree, known: Names, report: Report) -> None:
    hosts = len(elements(child(root, "hosts")))
    networks: dict[str, IPv4Network] = {}
    for key in ("data", "clock"):
        given = child(child(root, "network"), key)
        default = Network.model_fields[key].default
        try:
            value = given.value if isinstance(given, Scalar) else default
            network = values.Subnet().read(value, known)
        except PydanticCustomError:
            continue
        networks[key] = network
        room = max(0, network.num_addresses - 2)
        wanted = hosts + (key == "clock" and links.emulates(root, known))
        if wanted > room:
            mark = given.mark if given else _mark(child(root, "hosts"))
            path = ("network", key) if given else ("hosts",)
            router = " and the router" if wanted > hosts else ""
            message = f"the {key} network {network} has {room} addresses for {hosts} hosts{router}"
            report(mark, path, message)
    if len(networks) == 2 and networks["data"].overlaps(networks["clock"]):
        key = "clock" if child(child(root, "network"), "clock") else "data"
        mark = _mark(child(child(root, "network"), key))
        message = f"the networks overlap: data {networks['data']}, clock {networks['clock']}"
        report(mark, ("network", key), message)


def _phase_names(root: Tree, known: Names, report: Report) -> None:
    first: dict[str, Mark] = {}
    for i, (phase, name) in enumerate(_phases(root)):
        if name is None:
            continue
        mark = _mark(child(phase, "name"))
        if name in first:
            message = f"the phase {name!r} is given twice: first on line {first[name].line}"
            report(mark, ("phases", i, "name"), message)
        first.setdefault(name, mark)


def _phase_order(root: Tree, known: Names, report: Report) -> None:
    if known.phases is None:
        return
    after = _after(root)
    never = [name for name in after if name not in order.in_order(after)]
    for i, (phase, _) in enumerate(_phases(root)):
        for j, item in enumerate(elements(child(phase, "after"))):
            wanted = text_of(item)
            if wanted and wanted not in known.phases:
                message = f"there is no phase {wanted!r} to come after"
                report(item.mark, ("phases", i, "after", j), message, nearest(wanted, known.phases))
    circle = order.cycle(after)
    if circle is None:
        return
    i, phase = next(
        (i, phase) for i, (phase, name) in enumerate(_phases(root)) if name == circle[0]
    )
    message = f"the phases wait for each other: {' after '.join([*circle, circle[0]])}"
    rest = [name for name in never if name not in circle]
    if rest:
        message += f"; so {', '.join(rest)} can never begin"
    report(_mark(child(phase, "after") or phase), ("phases", i, "after"), message)


def _readiness(root: Tree, known: Names, report: Report) -> None:
    for name, _, component in entries(child(root, "components")):
        config = child(component, "with")
        phases = child(component, "phases")
        given = child(component, "ready")
        if given is not None:
            rule = text_of(given) or next((key for key, _, _ in entries(given)), None)
        else:
            program = next((text_of(word) for word in elements(child(component, "run"))), None)
            rule = default_ready(program, config is not None) if program else None
        if rule is None or rule == "phases":
            continue
        if config is not None and rule in ("started", "line", "port", "exit"):
            message = "with is handed over by the phase protocol, which ready: phases stands for"
            report(config.mark, ("components", name, "with"), message)
        if phases is not None and rule in ("started", "line", "port", "exit"):
            message = "only a program of the phase protocol (ready: phases) takes part in phases"
            report(phases.mark, ("components", name, "phases"), message)


def _traces(root: Tree, known: Names, report: Report) -> None:
    for name, _, component in entries(child(root, "components")):
        first: dict[str, Mark] = {}
        for i, item in enumerate(elements(child(component, "traces"))):
            given = item if text_of(item) else child(item, "path")
            path = text_of(given)
            if given is None or path is None:
                continue
            if path in first:
                message = f"the trace {path!r} is given twice: first on line {first[path].line}"
                report(given.mark, ("components", name, "traces", i), message)
            first.setdefault(path, given.mark)


def _path_events(root: Tree, known: Names, report: Report) -> None:
    recorded = _recorded(root)
    for name, _, path in entries(child(child(root, "measure"), "paths")):
        first: dict[str, Mark] = {}
        for i, item in enumerate(elements(child(path, "events"))):
            event = path_rules.event_of(item)
            if event is None:
                continue
            place = ("measure", "paths", name, "events", i)
            if event in first:
                message = f"the event {event} is in the path twice: a message has it once"
                report(item.mark, place, message)
            first.setdefault(event, item.mark)
            entity = event.partition("/")[2]
            if recorded is None or not re.fullmatch(f"{values.EVENT}:{values.EVENT}", entity):
                continue
            if not values.chosen(entity, recorded):
                report(item.mark, place, _not_recorded(entity))


def _pattern_events(root: Tree, known: Names, report: Report) -> None:
    recorded = _recorded(root)
    if recorded is None:
        return
    for name, mark, pattern in entries(child(child(root, "measure"), "patterns")):
        for key in ("sent", "received"):
            given = child(pattern, key)
            entity = (text_of(given) if given else Pattern.model_fields[key].default) or ""
            is_entity = re.fullmatch(f"{values.EVENT}:{values.EVENT}", entity)
            if is_entity and not values.chosen(entity, recorded):
                place = ("measure", "patterns", name, key)
                report(given.mark if given else mark, place, _not_recorded(entity))


def _expected_events(root: Tree, known: Names, report: Report) -> None:
    recorded = _recorded(root)
    for i, item in enumerate(elements(child(root, "expect"))):
        event = expect_lines.event_of(text_of(item) or "")
        if recorded is None or event is None:
            continue
        entity = event.partition("/")[2]
        if re.fullmatch(f"{values.EVENT}:{values.EVENT}", entity) and not values.chosen(
            entity, recorded
        ):
            report(item.mark, ("expect", i), _not_recorded(entity))


def _recorded(root: Tree) -> list[str] | None:
    """The patterns of what is recorded; None: everything, or not to be read, or other tools record
    too."""
    if any(child(component, "traces") for _, _, component in entries(child(root, "components"))):
        return None
    trace = child(child(root, "trace"), "user")
    patterns = [text_of(item) for item in elements(trace)]
    return None if trace is None or None in patterns else [p for p in patterns if p]


def _not_recorded(entity: str) -> str:
    return f"no pattern of trace.user records {entity}: add {entity.partition(':')[0]}:*"


def _streams(root: Tree, known: Names, report: Report) -> None:
    for name, _, stream in entries(child(child(root, "trace"), "streams")):
        place: Location = ("trace", "streams", name)
        kind = child(stream, "kind")
        if kind is None or text_of(kind) == "normal":
            for key in ("triggers", "post", "on_death"):
                given = child(stream, key)
                if given is not None:
                    message = f"only a flight recorder has {key}: give it kind: flight-recorder"
                    report(given.mark, (*place, key), message)
        for i, item in enumerate(elements(child(stream, "filters"))):
            if isinstance(item, Mapping) and not item.items.keys() & {"where", "every", "rate"}:
                message = "this filter lets everything through: give it where, every or rate"
                report(item.mark, (*place, "filters", i), message)
        for i, item in enumerate(elements(child(stream, "triggers"))):
            path = text_of(child(item, "path"))
            if path is not None:
                wrong = _not_watched(root, path)
                if wrong is not None:
                    mark = _mark(child(item, "path"))
                    report(mark, (*place, "triggers", i, "path"), wrong)


def _clock_messages(root: Tree, names: Names, report: Report) -> None:
    hosts = [text_of(host) for host in elements(child(root, "hosts"))]
    host_of = {
        name: text_of(child(component, "host"))
        for name, _, component in entries(child(root, "components"))
    }
    paths = names.paths or {}
    for i, item in enumerate(elements(child(child(root, "clock"), "messages"))):
        events = paths.get(text_of(item) or "", ())
        places = [host_of.get((event or "").partition("/")[0]) for event in events]
        if text_of(item) in names.graphs:
            message = (
                f"{text_of(item)!r} is a graph: only messages of a list of events bound clocks"
            )
            report(_mark(item), ("clock", "messages", i), message)
            continue
        known = text_of(item) in paths and None not in places
        if hosts and known and not any(_to_or_from(hosts[0], places)):
            message = f"no message of {text_of(item)!r} goes to or from {hosts[0]}, the reference"
            report(_mark(item), ("clock", "messages", i), message)


def _to_or_from(reference: str | None, places: Sequence[str | None]) -> Iterator[bool]:
    """Of each hop: whether it has one end there."""
    return ((a == reference) != (b == reference) for a, b in pairwise(places))


def _not_watched(root: Tree, name: str) -> str | None:
    """Why no host can tell while the run goes on that a path's message is late, if none can."""
    path = child(child(child(root, "measure"), "paths"), name)
    if path_rules.is_graph(path):
        return f"the path {name!r} is a graph: only a list of events can trigger"
    key = path_rules.key_text(child(path, "key"))
    if key not in (None, "id"):
        return f"the path {name!r} goes by {key}: only one that goes by id can trigger"
    return None


def _phases(root: Tree) -> list[tuple[Tree, str | None]]:
    return [(phase, text_of(child(phase, "name"))) for phase in elements(child(root, "phases"))]


def _after(root: Tree) -> dict[str, list[str]]:
    """What each phase waits for; what cannot be read is left out."""
    after: dict[str, list[str]] = {}
    previous: str | None = None
    for phase, name in _phases(root):
        if name is not None and name not in after:
            given = child(phase, "after")
            if given is None:
                after[name] = [previous] if previous else []
            else:
                after[name] = [wanted for wanted in map(text_of, elements(given)) if wanted]
        previous = name
    return after


def _is_true(tree: Tree | None) -> bool:
    return isinstance(tree, Scalar) and tree.value is True


def _texts(tree: Tree | None) -> frozenset[str]:
    return frozenset(text for text in map(text_of, elements(tree)) if text)


def _unreadable(tree: Tree | None) -> bool:
    return tree is not None and not isinstance(tree, Mapping)


def _mark(tree: Tree | None) -> Mark:
    return tree.mark if tree is not None else Mark(1, 1)
