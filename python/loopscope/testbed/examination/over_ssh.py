"""Machines of testbed ssh, as a run finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from loopscope.experiment import Machine
from loopscope.provider import TestbedError
from loopscope.testbed import rights
from loopscope.testbed.examination import clocks, kernel, software
from loopscope.testbed.examination.facts import STAMPS, UNUSABLE, Facts, script
from loopscope.testbed.examination.finding import Finding, either
from loopscope.testbed.reach import AT_ONCE, Reached, logged_in
from loopscope.testbed.rights import Rights
from loopscope.testbed.ssh_machine import by_hand

# For all that is asked of a machine.
EXAMINED_S = 60.0
# After this time a person is told which machines are waited for.
PATIENCE_S = 2.0
# The longest text of a machine that is shown, in characters.
LONGEST = 1000
TO_BE_ROOT = ": `user: root` in `machines` (become: sudo is not enough)"
IF_ASKED = "; a run over SSH records them where its `trace: kernel` asks for them"
NO_RUN = "a run with this machine ends before anything starts"


@dataclass(frozen=True)
class Examined:
    """What was found on a machine, and whether it could be examined."""

    findings: list[Finding]
    complete: bool


async def examine_machines(
    machines: Mapping[str, Machine], waiting: Callable[[str], None]
) -> dict[str, Examined]:
    """Looks at all machines at the same time; sends them the host side's programs where they lack.

    ``waiting`` is told what is waited for where that takes long. Raises OSError.
    """
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(host: str, machine: Machine) -> Examined:
        async with at_once:
            return await _examine(host, machine)

    tasks = {host: asyncio.ensure_future(one(host, each)) for host, each in machines.items()}
    told = asyncio.ensure_future(_tell(tasks, waiting))
    try:
        found = await asyncio.gather(*tasks.values())
    finally:
        # Also when one has failed, the others close their connections before this ends.
        for task in (told, *tasks.values()):
            task.cancel()
        await asyncio.gather(told, *tasks.values(), return_exceptions=True)
    return dict(zip(tasks, found, strict=True))


async def _tell(
    tasks: Mapping[str, asyncio.Future[Examined]], waiting: Callable[[str], None]
) -> None:
    before = ""
    while True:
        await asyncio.sleep(PATIENCE_S)
        text = f"examining {', '.join(host for host, task in tasks.items() if not task.done())}"
        if text != before:
            waiting(text)
        before = text


async def _examine(host: str, machine: Machine) -> Examined:
    by = by_hand(machine)
    try:
        async with logged_in(host, machine) as reached:
            findings = await _findings(reached)
    except TestbedError as error:
        text = _without_host(host, str(error))
        cost = NO_RUN if by in text else f"{NO_RUN}; by hand: {by}"
        return Examined([Finding("connection", False, text, cost)], complete=False)
    except UNUSABLE as error:
        text = f"its answers cannot be used: {error!r:.100}"
        return Examined([Finding("connection", False, _shown(text), NO_RUN)], complete=False)
    findings.insert(0, Finding("connection", True, by))
    shown = [replace(each, found=_shown(each.found), cost=_shown(each.cost)) for each in findings]
    return Examined(shown, complete=True)


def _shown(text: str) -> str:
    """Text of a machine, without what a terminal would act on."""
    return "".join(each for each in text if each.isprintable())[:LONGEST]


def _without_host(host: str, text: str) -> str:
    return text.removeprefix(f"host {host}: ")


async def _findings(reached: Reached) -> list[Finding]:
    # The shell of a user's login finds python3 where components find it.
    programs = {
        "stamps": ["python3", "-c", STAMPS],
        **software.commands(reached.program, reached.binary_hash),
    }
    asked = script(kernel.tracepoints(), programs)
    facts = Facts(await reached.machine.ask(asked, EXAMINED_S))
    return [*_basics(facts, reached), *await _rights(reached, facts), *_rest(facts, reached)]


def _basics(facts: Facts, reached: Reached) -> Iterator[Finding]:
    yield software.kernel(facts)
    yield either(
        "root",
        facts.is_root,
        "yes",
        f"no, this is what user {facts.text('user')} finds",
        "what takes root cannot be had, see below: `user: root` in `machines`",
    )
    yield Finding("loopscope-host", True, reached.program)


async def _rights(reached: Reached, facts: Facts) -> list[Finding]:
    """What the machine's agent may do, as a run tries it out."""
    host, findings = reached.machine.host, []
    what = "rights by become: sudo"
    by_sudo = rights.by_sudo(reached)
    try:
        found = await rights.tried(reached)
    except TestbedError as error:
        name = what if by_sudo else "rights of its agent"
        return [Finding(name, False, _without_host(host, str(error)), NO_RUN)]
    if found is None:
        text = (
            "a run gets them, and they are not examined before: sudo allows everything without a "
            "password, so the run installs the program that it starts"
        )
        return [Finding(what, True, text)]
    if by_sudo:
        findings.append(Finding(what, True, "yes, without a password"))
    lacks = {each.what: each for each in rights.lacking(found)}
    for name in rights.NAMES:
        if (lack := lacks.get(name)) is None:
            findings.append(Finding(name, True, "yes"))
        else:
            findings.append(Finding(name, False, lack.why, lack.cost))
    return [*findings, _links(facts, host, found)]


def _links(facts: Facts, host: str, found: Rights) -> Finding:
    """Whether the machine can emulate links."""
    missing = ""
    try:
        rights.check_links(host, found)
    except TestbedError as error:
        missing = _without_host(host, str(error))
    if not missing and not facts.is_there("/dev/net/tun"):
        missing = "there is no /dev/net/tun: modprobe tun"
    if not missing and not facts.text("ip"):
        missing = "there is no ip in PATH: install iproute2"
    return either(
        "emulated links (mover tap)",
        not missing,
        "yes",
        missing,
        "a run whose `network:` has links ends before anything starts, unless its `router` is "
        "another machine",
    )


def _rest(facts: Facts, reached: Reached) -> Iterator[Finding]:
    yield from clocks.counter(facts)
    yield clocks.moves(facts)
    yield from clocks.stamps(facts)
    yield clocks.hardware_clocks(facts)
    yield software.shared_memory(facts)
    yield from kernel.events(facts, TO_BE_ROOT, IF_ASKED)
    yield kernel.counts(facts)
    yield from kernel.programs(facts)
    yield clocks.governor(facts)
    if not facts.is_root:
        yield from software.started_by_sudo(
            facts,
            "runs on this machine get no rights by become: sudo",
            "runs with become: sudo need it, and install it only where sudo asks for no password: "
            f"loopscope host setup {reached.machine.address}",
        )
