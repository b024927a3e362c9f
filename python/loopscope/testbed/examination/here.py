"""This machine, for the local testbed and all that needs no testbed."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator

from loopscope.provider import TestbedError
from loopscope.testbed import kit
from loopscope.testbed.examination import clocks, kernel, software
from loopscope.testbed.examination.facts import STAMPS, Facts, script
from loopscope.testbed.examination.finding import Finding, either
from loopscope.testbed.program import dormant, host_binary

# What moves packets through emulated links, and what its absence costs.
MOVERS = {
    "xdp": ("AF_XDP", "links are emulated by AF_PACKET instead: fewer packets a second"),
    "tap": ("AF_PACKET", "where AF_XDP cannot be had either, no link is emulated"),
    "netem": ("the kernel's netem", "mover: netem is refused; the others need nothing of it"),
}


def examine_here() -> Iterator[Finding]:
    """Looks at this machine; changes nothing."""
    programs = {"stamps": [sys.executable, "-c", STAMPS]}
    try:
        binary = str(host_binary())
        binary_hash = kit.for_machine(platform.machine()).binary_hash
        host = Finding("loopscope-host", True, binary)
        programs |= {
            "testbed": [binary, "agent", "--probe"],
            "movers": [binary, "emulate", "--probe", "--json"],
            **software.commands(binary, binary_hash),
        }
    except TestbedError as error:
        host = Finding("loopscope-host", False, "not found", str(error))
    done = subprocess.run(
        ["sh", "-c", script(kernel.tracepoints(), programs)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        env=dormant(),
    )
    yield from judge(Facts(done.stdout.splitlines()), host)


def judge(facts: Facts, host: Finding) -> Iterator[Finding]:
    """The findings of this machine. ``host``: that of the host side's program."""
    yield software.kernel(facts)
    yield from _testbed(facts)
    yield software.ip(facts, "no local testbed: install iproute2")
    yield from clocks.counter(facts)
    yield clocks.moves(facts)
    yield from clocks.stamps(facts)
    yield clocks.hardware_clocks(facts)
    yield software.shared_memory(facts)
    yield host
    yield from _movers(facts)
    yield from kernel.events(facts)
    yield kernel.counts(facts)
    yield from kernel.programs(facts)
    yield clocks.governor(facts)
    yield from software.started_by_sudo(
        facts,
        "runs on this machine get no rights by become: sudo",
        "runs of testbed ssh on this machine with become: sudo need it: loopscope host setup",
    )
    reader = shutil.which("babeltrace2")
    yield either(
        "babeltrace2",
        reader is not None,
        str(reader),
        "not in PATH",
        "traces cannot be looked at with it; loopscope itself does not need it",
    )


def _testbed(facts: Facts) -> Iterator[Finding]:
    """Whether this user can have a local testbed, and what its hosts cannot do."""
    root = facts.is_root
    yield either("root", root, "yes", "no", "less works on hosts of the local testbed, see below")
    what, cost = "local testbed", "no experiment can be run on this machine alone"
    answer = facts.answer("testbed")
    if answer is None:
        # Another finding says why.
        return
    if answer.failure:
        yield Finding(what, False, answer.failure, cost)
        return
    tried = answer.read()
    yield either(
        what, tried["works"], "yes" if root else "yes, in a user namespace", tried["why"], cost
    )
    for each in tried["lacking"]:
        yield Finding(f"{each['what']} on its hosts", False, each["why"], each["cost"])


def _movers(facts: Facts) -> Iterator[Finding]:
    """What can move packets through the local testbed's links."""
    answer = facts.answer("movers")
    if answer is None:
        # The finding before says why.
        return
    if answer.failure:
        yield Finding("emulated links", False, answer.failure, "no link can be emulated")
        return
    tried = {each["mover"]: each for each in answer.read()}
    auto = next((name for name in ("xdp", "tap") if tried[name]["works"]), None)
    for name, (what, cost) in MOVERS.items():
        works, why = tried[name]["works"], str(tried[name]["why"])
        used = ", used by mover: auto" if name == auto else ""
        yield either(f"mover {name} ({what})", works, f"yes{used} ({why})", why, cost)
