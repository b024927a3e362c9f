"""Logs in to machines of testbed ssh outside of a run: for its links, to collect and to undo."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from loopscope.experiment import Machine
from loopscope.provider import TestbedError
from loopscope.provider.left_out import LeftOut
from loopscope.testbed import rights
from loopscope.testbed.reach import Reached, logged_in
from loopscope.testbed.spools import (
    SPOOLS,
    FetchError,
    Spool,
    Spools,
    at_rest,
    collect,
    remove,
)

__all__ = ["SPOOLS", "Fetched", "Undone", "fetch", "net", "reset", "setup"]

# An agent that has lost its controller has ended after so long.
LEASE_S = 20.0
RESET_S = 60.0
# The system's words for what needs other rights.
NO_RIGHT = ("Permission denied", "Operation not permitted")
# Printed after a program that has ended well.
DONE = "loopscope-done"


@dataclass
class Fetched:
    """The outcome of collecting: bytes by host that are here now, and what is still on hosts."""

    bytes: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    """Hosts that had nothing any more."""
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """Entries of hosts that were not kept."""
    problems: list[str] = field(default_factory=list)


@dataclass
class Undone:
    """The outcome of a reset, for people; each text begins with its host."""

    removed: list[str] = field(default_factory=list)
    in_use: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Settings that somebody else has changed meanwhile."""
    problems: list[str] = field(default_factory=list)


UNUSABLE = (ValueError, TypeError, KeyError, RecursionError)


async def fetch(repeat: Path, quota_bytes: int | None, progress: Callable[[str], None]) -> Fetched:
    """Collects what a repeat left on its hosts into its directory, and removes it from them.

    ``quota_bytes`` of each host at most, None: as the experiment has it. Raises ValueError where
    the repeat's note of its hosts is damaged, and OSError.
    """
    spools, fetched = Spools.read(repeat), Fetched()

    async def one(host: str, spool: Spool) -> None:
        quota = spool.machine.quota_bytes if quota_bytes is None else quota_bytes
        try:
            async with logged_in(host, spool.machine) as reached:
                size = await at_rest(reached, spool.name, LEASE_S, progress)
                if size is None:
                    fetched.gone.append(host)
                else:
                    progress(f"host {host}: {size} bytes to fetch")
                    folder = reached.spool(spool.name)
                    unpacked = await collect(reached.machine, folder, host, repeat, quota)
                    fetched.bytes[host] = unpacked.bytes
                    fetched.left_out[host] = unpacked.left_out
                    await remove(reached.machine, folder)
                spools.done(host)
        except (TestbedError, FetchError) as error:
            fetched.problems.append(str(error))

    await asyncio.gather(*(one(*each) for each in list(spools.by_host.items())))
    return fetched


async def net(repeat: Path, words: Sequence[str], host: str | None = None) -> list[str]:
    """Answers of ``loopscope-host net`` on a host of a repeat, or on all of them.

    Raises TestbedError, also where one refuses, and ValueError where the repeat's note of its hosts
    is damaged or does not have the host.
    """
    spools = Spools.read(repeat).by_host
    if host is not None and host not in spools:
        raise ValueError(f"{host} is no host of this run; it has {', '.join(spools)}")

    async def one(host: str) -> str:
        async with logged_in(host, spools[host].machine) as reached:
            command = shlex.join(["net", "--to", spools[host].name, *words])
            said = await reached.machine.ask(f"{reached.binary} {command} && echo {DONE} || true")
            if said[-1:] != [DONE]:
                raise TestbedError(f"host {host}: {' '.join(said[-3:])}")
            return "\n".join(said[:-1])

    asked = list(spools) if host is None else [host]
    return await asyncio.gather(*map(one, asked))


async def reset(machines: Mapping[str, Machine], data: bool, cache: bool) -> Undone:
    """Undoes what the ledgers of runs hold on machines that do not live any more.

    ``data``: also deletes what runs measured there; ``cache``: also the programs that were sent.
    """
    undone = Undone()
    options = (" --data" if data else "") + (" --cache" if cache else "")

    async def one(host: str, machine: Machine) -> None:
        try:
            async with logged_in(host, machine) as reached:
                commands, refusal = await _commands(reached, partial(by_user, host, reached))
                for command in commands:
                    # What it cannot undo, the one below says.
                    said = await ask(reached, rights.by_line(command, ["reset", "--json"]))
                    with suppress(*UNUSABLE):
                        for kind in ("removed", "left"):
                            getattr(undone, kind).extend(_texts(host, json.loads(said), kind))
                problems = await by_user(host, reached, options)
                undone.problems += problems
                if refusal and any(word in text for text in problems for word in NO_RIGHT):
                    undone.problems.append(refusal)
        except TestbedError as error:
            undone.problems.append(str(error))

    async def by_user(host: str, reached: Reached, options: str = "") -> list[str]:
        """What the machine's user cannot undo."""
        said = await ask(reached, f"{reached.binary} reset --json{options}")
        try:
            report = json.loads(said)
            for kind in ("removed", "in_use", "left"):
                getattr(undone, kind).extend(_texts(host, report, kind))
            return _texts(host, report, "problems")
        except UNUSABLE:
            return [f"host {host}: reset failed: {said[:200]}"]

    async def ask(reached: Reached, script: str) -> str:
        # Its exit status is 1 where something could not be undone.
        return "\n".join(await reached.machine.ask(f"{script} || true", RESET_S))

    await asyncio.gather(*(one(*each) for each in machines.items()))
    return undone


async def _commands(
    reached: Reached, by_user: Callable[[], Awaitable[list[str]]]
) -> tuple[list[str], str]:
    """What sudo may start on a machine to undo what its user cannot; why not, and what to do.

    It is installed there if the user cannot do without it.
    """
    found = await rights.commands(reached)
    if found or reached.is_root:
        return found, ""
    if not rights.by_sudo(reached):
        return [], (
            f"host {reached.machine.host}: if the run had rights by `become: sudo`, name its file: "
            "loopscope reset --hosts FILE"
        )
    if not await by_user():
        return [], ""
    try:
        # The run was of another version than this, or its rights have been removed.
        return await rights.installed(reached), ""
    except TestbedError as error:
        return [], str(error)


def _texts(host: str, report: dict[str, list[object]], kind: str) -> list[str]:
    return [f"host {host}: {text!s}" for text in report[kind]]


async def setup(host: str, machine: Machine, *arguments: str) -> bool:
    """Installs on a machine what sudo starts there, or removes it; whether that worked.

    It is done as root, for which sudo may ask on this process's terminal. ``arguments`` are those
    of ``loopscope-host setup``. Raises TestbedError.
    """
    async with logged_in(host, machine) as reached:
        script = rights.installing(reached, "setup", *arguments)
        sudo = "" if reached.is_root else "sudo "
        return await reached.machine.attend(f"{sudo}{script}") == 0
