"""The links of an experiment file: keys, inheritance, and what settings must be together."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loopscope.strict_json import to_json

from . import plan, quantity
from .link_settings import DOCUMENT_NAMES, STEP, WIRE, Link, Pair, ends, step_ns
from .place import Place
from .problem import nearest
from .values import Names
from .yaml_tree import Location, Mark, plain_value

if TYPE_CHECKING:
    from .model_network import Network

# What the file calls a setting of the links document.
_FILE_NAMES = {document: name for name, document in DOCUMENT_NAMES.items()}
# What a veth's MTU is where the file gives no other.
_KERNELS_MTU = 1500


def is_settings(location: Location) -> bool:
    """Whether a place below ``network`` is a link's; else a rule refuses the key as a whole."""
    link, *rest = map(str, location[1:3])
    if link != "default" and not ends(link):
        return False
    return not rest or rest[0] in Link.model_fields or rest[0].startswith(STEP)


def emulation(network: Network, hosts: tuple[str, ...]) -> plan.Emulation | None:
    """Emulation of the links of a valid file; None where nothing is emulated."""
    given = {pair: link for key, link in network.links.items() for pair in ends(key)}
    # Nearly all pairs of many hosts have this link.
    wire = _planned(network, WIRE)
    links = []
    for source, target in itertools.permutations(hosts, 2):
        # What is sent to the router itself passes no link.
        if target == network.router:
            continue
        link = given.get((source, target))
        planned = wire if link is None else _planned(network, link)
        if planned is not None:
            links.append(plan.Link(source, target, *planned))
    if not links and not network.emulate:
        return None
    return plan.Emulation(
        mover=network.mover,
        wait=network.wait,
        seed=network.seed,
        message=None if network.message is None else network.message.model_dump(),
        trace=network.trace,
        links=tuple(links),
        router=network.router,
    )


def _planned(
    network: Network, link: Link
) -> tuple[dict[str, Any], tuple[plan.LinkStep, ...]] | None:
    """A link's settings and steps; None where it is a plain wire."""
    if not _impairs(network.default, link):
        return None
    settings, steps = _inherited(network.default, link)
    settings = {key: value for key, value in settings.items() if value}
    if network.mover == "netem":
        # The devices'; netem knows no other, and none is needed.
        for each in (settings, *steps.values()):
            each.pop("mtu", None)
    return settings, tuple(plan.LinkStep(at, steps[at]) for at in sorted(steps))


def _inherited(default: Link, link: Link) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """A link's settings and steps, with what it takes from the default key by key."""
    steps = {**_steps(default), **_steps(link)}
    return default.document() | link.document(), steps


def _steps(link: Link) -> dict[int, dict[str, Any]]:
    return {step_ns(key): step.document() for key, step in link.steps.items()}


def document(
    experiment: plan.Experiment, ports: Sequence[Mapping[str, str]], sender: str | None = None
) -> dict[str, Any]:
    """The links document of ``schema/links.md`` for the router, whose ports these are.

    With ``sender`` it is for that host, which impairs what it sends; else, where the experiment
    names a router, for that host.
    """
    emulation = experiment.network.emulation
    assert emulation is not None
    return {
        "version": 1,
        "seed": emulation.seed,
        "mover": emulation.mover,
        "wait": emulation.wait,
        **({} if emulation.message is None else {"message": emulation.message}),
        **({} if sender is None else {"sender": sender}),
        **({} if emulation.router is None else {"router": emulation.router}),
        "ports": list(ports),
        "links": [
            {
                "from": link.source,
                "to": link.target,
                "settings": link.settings,
                "steps": [dataclasses.asdict(step) for step in link.steps],
            }
            for link in emulation.links
            if sender in (None, link.source)
        ],
        "phases": [phase.name for phase in experiment.phases],
    }


def check_links(at: Place, keys: Collection[str]) -> None:
    """Reports mistakes in the names of links and in what their settings are together.

    ``at`` is the network, of which ``keys`` are no links.
    """
    first: dict[Pair, Mark] = {}
    router = at.text_at("router")
    for key, link in at.entries():
        if key in keys:
            continue
        pairs = ends(key)
        if not pairs:
            message = f"unknown key {key!r}: a link is written A -> B, or A <-> B for both ways"
            link.report(message, nearest(key, keys), at_key=True)
            continue
        _check_hosts(pairs[0], link)
        repeated = next((pair for pair in pairs if pair in first), None)
        if repeated is not None:
            text, line = " -> ".join(repeated), first[repeated].line
            message = f"the link {text} is given twice: first on line {line}"
            link.report(message, at_key=True)
        for pair in pairs:
            first.setdefault(pair, link.key_mark)
        if router in [target for _, target in pairs]:
            link.report(
                f"{router} is the router, and what is sent to it passes no link; give the links "
                "between the others, and those from it",
                at_key=True,
            )
    _check_router(at)
    _check_settings(at)


def _check_router(at: Place) -> None:
    given, known = at.get("router"), at.names.hosts
    if given is not None and known is not None and len(known) < 3:
        given.report(f"a router stands between two others, and there are {len(known)} hosts")


def _check_hosts(pair: Pair, link: Place) -> None:
    source, target = pair
    known = link.names.hosts
    for end in dict.fromkeys(pair):
        if known is not None and end not in known:
            link.report(f"there is no host {end!r}", nearest(end, known), at_key=True)
    if source == target:
        message = f"a link joins two hosts, this one {source!r} with itself"
        link.report(message, at_key=True)


def _check_settings(at: Place) -> None:
    """Checks the settings of a link together, its own and the inherited ones."""
    default = _read(at.get("default"))
    if default is None:
        return
    is_netem = at.text_at("mover") == "netem"
    for key in ("wait", "seed", "trace", "message") if is_netem else ():
        if given := at.get(key):
            given.report(f"netem has no {key}: use mover: auto, or leave it out")
    impaired = False
    for key, place in _links(at, at.names):
        link = _read(place)
        if link is None:
            return
        device, mtu = default.mtu or _KERNELS_MTU, None if place is None else place.get("mtu")
        if key != "default" and mtu is not None and link.mtu is not None and link.mtu > device:
            mtu.report(
                f"this drops nothing: the hosts' devices have an MTU of {device}B; for a larger "
                "one set that of default"
            )
        impaired = impaired or _impairs(default, link)
        for at_ns, state in _states(default, link):
            mistake = _mistake(state, default.mtu, is_netem)
            if mistake is not None:
                name, message = mistake
                _report_setting(at, key, at_ns, _FILE_NAMES.get(name, name), message)
                break
    if not impaired and not _is_asked_for(at):
        for key in ("mover", "router", "wait", "message"):
            if given := at.get(key):
                message = f"{key} does nothing: no link is impaired; impair one, or set emulate: "
                given.report(message + "true", severity="warning")


def emulates(at: Place) -> bool:
    """Whether packets of a file go through a router, as far as it can be read."""
    network = at.get("network")
    default = _read(None if network is None else network.get("default")) or WIRE
    read = [_read(place) or WIRE for _, place in _links(network, at.names)]
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


def _is_asked_for(network: Place | None) -> bool:
    asked = None if network is None else network.get("emulate")
    return asked is not None and asked.is_true


def _mistake(
    state: dict[str, Any], device_mtu: int | None, is_netem: bool
) -> tuple[str, str] | None:
    """A setting and what is wrong with it, in the link model's own words.

    So what is right here is right there.
    """
    from loopscope import _native

    given = {name: value for name, value in state.items() if value is not None}
    mistake = _native.check_link(to_json(given))
    if mistake is None and is_netem:
        if given.get("mtu") == device_mtu:
            given.pop("mtu", None)
        mistake = _native.check_netem(to_json(given))
    return mistake


def _links(network: Place | None, names: Names) -> Iterator[tuple[str, Place | None]]:
    """The links that a network has: those with a key, and, if there are others, ``default``."""
    named: set[Pair] = set()
    for key, place in [] if network is None else network.entries():
        if ends(key):
            named.update(ends(key))
            yield key, place
    pairs = itertools.permutations(names.hosts or (), 2)
    if names.hosts is None or not named.issuperset(pairs):
        yield "default", None if network is None else network.get("default")


def _read(link: Place | None) -> Link | None:
    """A link's section, None where its mistakes are reported elsewhere."""
    if link is None:
        return WIRE
    try:
        read = Link.model_validate(plain_value(link.tree), context=link.names)
        _steps(read)
    except (ValidationError, quantity.QuantityError):
        return None
    return read


def _report_setting(network: Place, key: str, at_ns: int | None, name: str, message: str) -> None:
    """Reports a mistake at the setting, or where what it does not go with begins."""
    message = f"{name}: {message}"
    sections = list(_sections(network, key, at_ns))
    found = next((each for each in sections if each.get(name)), None)
    setting = None if found is None else found.get(name)
    if setting is not None:
        setting.report(message)
    else:
        sections[0].report(message, at_key=True)


def _sections(network: Place, key: str, at_ns: int | None) -> Iterator[Place]:
    """Sections with a link's settings at the start or at a step: its own, then the default's."""
    own_first = sorted(network.entries(), key=lambda entry: entry[0] != key)
    for link, place in own_first:
        if link not in (key, "default"):
            continue
        if at_ns is None:
            yield place
            continue
        for step, settings in place.entries():
            if step.startswith(STEP) and step_ns(step) == at_ns:
                yield settings
