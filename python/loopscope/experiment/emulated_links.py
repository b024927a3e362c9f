"""The links of an experiment file: keys, inheritance, and what settings must be together."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loopscope.strict_json import to_json

from . import plan, quantity
from .link_settings import DOCUMENT_NAMES, WIRE, Link
from .problem import nearest
from .values import Names
from .yaml_tree import Location, Mark, Scalar, Tree, child, entries, plain_value, text_of
from .yaml_tree import Mapping as MappingTree

if TYPE_CHECKING:
    from .model_network import Network
    from .values import Report

_STEP = "at "
# What the file calls a setting of the links document.
_FILE_NAMES = {document: name for name, document in DOCUMENT_NAMES.items()}
# What a veth's MTU is where the file gives no other.
_KERNELS_MTU = 1500

Pair = tuple[str, str]


def ends(key: str) -> list[Pair]:
    """The directions that a key names, ``A -> B`` or ``A <-> B``; none where it names no link."""
    arrow = "<->" if "<->" in key else "->"
    hosts = [host.strip() for host in key.split(arrow)]
    if len(hosts) != 2:
        return []
    source, target = hosts
    return [(source, target), (target, source)] if arrow == "<->" else [(source, target)]


def is_settings(location: Location) -> bool:
    """Whether a place below ``network`` is a link's; else a rule refuses the key as a whole."""
    link, *rest = map(str, location[1:3])
    if link != "default" and not ends(link):
        return False
    return not rest or rest[0] in Link.model_fields or rest[0].startswith(_STEP)


def emulation(network: Network, hosts: tuple[str, ...]) -> plan.Emulation | None:
    """What the links of a right file do to packets; None: nothing is emulated."""
    given = {pair: link for key, link in network.links.items() for pair in ends(key)}
    links = []
    for source, target in itertools.permutations(hosts, 2):
        link = given.get((source, target), WIRE)
        if not _impairs(network.default, link):
            continue
        settings, steps = _inherited(network.default, link)
        settings = {key: value for key, value in settings.items() if value}
        if network.mover == "netem":
            # The devices'; netem knows no other, and none is needed.
            for each in (settings, *steps.values()):
                each.pop("mtu", None)
        made = tuple(plan.LinkStep(at, steps[at]) for at in sorted(steps))
        links.append(plan.Link(source, target, settings, made))
    if not links and not network.emulate:
        return None
    return plan.Emulation(
        mover=network.mover,
        wait=network.wait,
        seed=network.seed,
        message=None if network.message is None else network.message.model_dump(),
        trace=network.trace,
        links=tuple(links),
    )


def _inherited(default: Link, link: Link) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """A link's settings and steps, with what it takes from the default key by key."""
    steps = {**_steps(default), **_steps(link)}
    return default.document() | link.document(), steps


def _steps(link: Link) -> dict[int, dict[str, Any]]:
    return {_step_ns(key): step.document() for key, step in link.steps.items()}


def _step_ns(key: str) -> int:
    return quantity.parse_whole(key.removeprefix(_STEP).strip(), quantity.DURATION)


def document(experiment: plan.Experiment, ports: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """What the router is told: the links document of ``schema/links.md``, whose ports these are."""
    emulation = experiment.network.emulation
    assert emulation is not None
    return {
        "version": 1,
        "seed": emulation.seed,
        "mover": emulation.mover,
        "wait": emulation.wait,
        **({} if emulation.message is None else {"message": emulation.message}),
        "ports": list(ports),
        "links": [
            {
                "from": link.source,
                "to": link.target,
                "settings": link.settings,
                "steps": [dataclasses.asdict(step) for step in link.steps],
            }
            for link in emulation.links
        ],
        "phases": [phase.name for phase in experiment.phases],
    }


def rule(
    root: Tree, known: Names, report: Report, longest_ns: int | None, keys: Collection[str]
) -> None:
    """Every mistake in the links' keys, and in what their settings are together.

    ``longest_ns`` is what the run takes at most from the beginning of the first measured phase;
    ``keys`` are those of ``network`` that are no links.
    """
    network = child(root, "network")
    first: dict[Pair, Mark] = {}
    for key, mark, tree in entries(network):
        path = ("network", key)
        if key in keys:
            if key == "default":
                _step_keys(tree, path, report, longest_ns)
            continue
        pairs = ends(key)
        if not pairs:
            message = f"unknown key {key!r}: a link is written A -> B, or A <-> B for both ways"
            report(mark, path, message, nearest(key, keys))
            continue
        _hosts(pairs, mark, path, known, report)
        repeated = next((pair for pair in pairs if pair in first), None)
        if repeated is not None:
            text, line = " -> ".join(repeated), first[repeated].line
            report(mark, path, f"the link {text} is given twice: first on line {line}")
        for pair in pairs:
            first.setdefault(pair, mark)
        _step_keys(tree, path, report, longest_ns)
    _settings(root, known, report)


def _hosts(pairs: list[Pair], mark: Mark, path: Location, known: Names, report: Report) -> None:
    source, target = pairs[0]
    if known.hosts is not None:
        for end in dict.fromkeys((source, target)):
            if end not in known.hosts:
                report(mark, path, f"there is no host {end!r}", nearest(end, known.hosts))
    if source == target:
        report(mark, path, f"a link joins two hosts, this one {source!r} with itself")


def _step_keys(link: Tree, path: Location, report: Report, longest_ns: int | None) -> None:
    first: dict[int, Mark] = {}
    for key, mark, tree in entries(link):
        if key in Link.model_fields:
            continue
        place = (*path, key)
        if not key.startswith(_STEP):
            message = f"unknown key {key!r}: a change of the link is written at 30s: {{…}}"
            report(mark, place, message, nearest(key, Link.model_fields))
            continue
        try:
            at = _step_ns(key)
        except quantity.QuantityError as error:
            hint = f"at {error.hint}" if error.hint else None
            report(mark, place, f"{key!r} is not a time: {error.message}", hint)
            continue
        if at in first:
            message = f"there are two changes at {key.removeprefix(_STEP).strip()}: the first is "
            report(mark, place, message + f"on line {first[at].line}")
        first.setdefault(at, mark)
        if longest_ns is not None and at >= longest_ns:
            end = quantity.format(longest_ns, quantity.DURATION)
            message = f"{key} never comes: counted from the beginning of the first measured "
            report(mark, place, message + f"phase, the run ends after {end} at the latest")
        if isinstance(tree, MappingTree) and not tree.items:
            report(mark, place, f"{key} changes nothing: give it settings")
        _codel(tree, place, report)
    _codel(link, path, report)


def _codel(link: Tree, path: Location, report: Report) -> None:
    """Refuses what only CoDel has where there is none."""
    queue = child(link, "queue")
    if isinstance(queue, MappingTree) and text_of(child(queue, "discipline")) != "codel":
        for key in queue.items.keys() & {"target", "interval"}:
            message = f"only CoDel has {key}: add discipline: codel"
            report(queue.keys[key], (*path, "queue", key), message)


def _settings(root: Tree, known: Names, report: Report) -> None:
    """What the settings of a link are wrong in together, its own and what it inherits."""
    network = child(root, "network")
    default_tree = child(network, "default")
    default = _read(default_tree, known)
    if default is None:
        return
    is_netem = text_of(child(network, "mover")) == "netem"
    if is_netem:
        _without_netem(network, report)
    impaired = False
    for key, tree in _links(network, known):
        link = _read(tree, known)
        if link is None:
            return
        path = ("network", key)
        mtu, device = link.mtu, default.mtu or _KERNELS_MTU
        if key != "default" and mtu is not None and mtu > device:
            message = f"this drops nothing: the hosts' devices have an MTU of {device}B; "
            mark = _mark(child(tree, "mtu"))
            report(mark, (*path, "mtu"), message + "for a larger one set that of default")
        impaired = impaired or _impairs(default, link)
        for at, state in _states(default, link):
            mistake = _mistake(state, default.mtu, is_netem)
            if mistake is not None:
                name, message = mistake
                _report_setting(network, key, at, _FILE_NAMES.get(name, name), message, report)
                break
    if not impaired and not _is_asked_for(network):
        _unused(network, report)


def emulates(root: Tree, known: Names) -> bool:
    """Whether packets go through a router, as far as the file can be read."""
    network = child(root, "network")
    default = _read(child(network, "default"), known) or WIRE
    read = [_read(tree, known) or WIRE for _, tree in _links(network, known)]
    return _is_asked_for(network) or any(_impairs(default, link) for link in read)


def _impairs(default: Link, link: Link) -> bool:
    """Whether a link ever differs from a plain wire. The default's MTU is that of the devices."""
    wire = {"mtu": default.mtu}
    return any(
        value and value != wire.get(name)
        for _, state in _states(default, link)
        for name, value in state.items()
    )


def _states(default: Link, link: Link) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """A link's settings from the start (None) and from each step on."""
    settings, steps = _inherited(default, link)
    yield None, settings
    for at in sorted(steps):
        settings = settings | steps[at]
        yield at, settings


def _is_asked_for(network: Tree | None) -> bool:
    asked = child(network, "emulate")
    return isinstance(asked, Scalar) and asked.value is True


def _mistake(
    state: dict[str, Any], device_mtu: int | None, is_netem: bool
) -> tuple[str, str] | None:
    """A setting and what is wrong with it, in the link model's own words, so that what is right
    here is right there."""
    from loopscope import _native

    given = {name: value for name, value in state.items() if value is not None}
    mistake = _native.check_link(to_json(given))
    if mistake is None and is_netem:
        if given.get("mtu") == device_mtu:
            given.pop("mtu", None)
        mistake = _native.check_netem(to_json(given))
    return mistake


def _without_netem(network: Tree | None, report: Report) -> None:
    """Refuses what the kernel's netem does not have, besides single settings."""
    for key in ("wait", "seed", "trace", "message"):
        given = child(network, key)
        if given is not None:
            message = f"netem has no {key}: use mover: auto, or leave it out"
            report(given.mark, ("network", key), message)


def _links(network: Tree | None, known: Names) -> Iterator[tuple[str, Tree | None]]:
    """The links that a network has: those with a key, and, if there are others, ``default``."""
    named: set[Pair] = set()
    for key, _, tree in entries(network):
        if ends(key):
            named.update(ends(key))
            yield key, tree
    pairs = itertools.permutations(known.hosts or (), 2)
    if known.hosts is None or not named.issuperset(pairs):
        yield "default", None


def _read(tree: Tree | None, known: Names) -> Link | None:
    """A link's section, None where its mistakes are told elsewhere."""
    if tree is None:
        return WIRE
    try:
        link = Link.model_validate(plain_value(tree), context=known)
        _steps(link)
    except (ValidationError, quantity.QuantityError):
        return None
    return link


def _report_setting(
    network: Tree | None, key: str, at: int | None, name: str, message: str, report: Report
) -> None:
    """Reports a mistake at the setting, or where what it does not go with begins."""
    message = f"{name}: {message}"
    sections = list(_sections(network, key, at))
    for path, _, tree in sections:
        setting = child(tree, name)
        if setting is not None:
            report(setting.mark, (*path, name), message)
            return
    path, mark, _ = sections[0]
    report(mark, path, message)


def _sections(
    network: Tree | None, key: str, at: int | None
) -> Iterator[tuple[Location, Mark, Tree]]:
    """What gives a link's settings at the start or at a step: its own section, the default's."""
    own_first = sorted(entries(network), key=lambda entry: entry[0] != key)
    for link, mark, tree in own_first:
        if link not in (key, "default"):
            continue
        if at is None:
            yield ("network", link), mark, tree
            continue
        for step, step_mark, settings in entries(tree):
            if step.startswith(_STEP) and _step_ns(step) == at:
                yield ("network", link, step), step_mark, settings


def _unused(network: Tree | None, report: Report) -> None:
    """Warns of what is said of a mover that has nothing to move."""
    for key in ("mover", "wait", "message"):
        given = child(network, key)
        if given is not None:
            message = f"{key} does nothing: no link is impaired; impair one, or set emulate: true"
            report(given.mark, ("network", key), message, severity="warning")


def _mark(tree: Tree | None) -> Mark:
    return tree.mark if tree is not None else Mark(1, 1)
