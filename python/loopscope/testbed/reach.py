"""A machine that is logged in to and has the host side's programs."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from loopscope import __version__
from loopscope.experiment import Machine
from loopscope.provider import TestbedError
from loopscope.testbed import kit
from loopscope.testbed.program import PRELOAD
from loopscope.testbed.scratch import Scratch
from loopscope.testbed.ssh_machine import SshMachine, check_programs

# So many machines are asked at the same time.
AT_ONCE = 16

# On the machine, below the home folder unless XDG variables say otherwise.
PLACES = (
    'echo "${XDG_CACHE_HOME:-$HOME/.cache}/loopscope"; '
    'echo "${XDG_STATE_HOME:-$HOME/.local/state}/loopscope"; '
    'uname -s; uname -m; echo "$SSH_CONNECTION"; command -v tar || echo none; '
    "cat /proc/sys/kernel/random/boot_id; id -u"
)
ANSWERS = 8


@dataclass(frozen=True)
class Reached:
    """What is known of the machine.

    ``programs`` is the folder of the host side's programs on it, ``binary_hash`` the SHA-256 that
    the host binary among them has to have, ``spools`` the folder of what runs measure there,
    ``connection`` is what sshd(8) has in SSH_CONNECTION, ``boot`` is the id of its boot,
    ``is_root`` is whether the login is root's, and ``accelerator`` the library among the programs
    that has the user-mode stack transfer connections, where there is one.
    """

    machine: SshMachine
    programs: str
    binary_hash: str
    spools: str
    connection: str
    boot: str
    is_root: bool
    accelerator: str | None = None

    @property
    def program(self) -> str:
        """The host side's program there."""
        return f"{self.programs}/{kit.BINARY}"

    @property
    def binary(self) -> str:
        """The same, for a shell."""
        return shlex.quote(self.program)

    def spool(self, name: str) -> str:
        """The folder of a spool there."""
        return f"{self.spools}/{name}"


@asynccontextmanager
async def logged_in(host: str, machine: Machine) -> AsyncIterator[Reached]:
    """A machine that is reached for as long as the context lasts. Raises TestbedError."""
    check_programs()
    scratch = Scratch()
    connection = SshMachine(host, machine, scratch.path / "c")
    try:
        yield await reach(connection, secrets.token_hex(3))
    finally:
        await connection.close()
        scratch.remove()


async def reach(machine: SshMachine, token: str) -> Reached:
    """Logs in and sends what the machine lacks. Raises TestbedError.

    ``token`` tells apart those who send at the same time.
    """
    await machine.connect()
    answers = await machine.ask(PLACES)
    if len(answers) != ANSWERS:
        raise TestbedError(f"host {machine.host}: its shell does not tell where its folders are")
    cache, state, system, kind, connection, tar, boot, user = answers
    if system != "Linux":
        raise TestbedError(f"host {machine.host}: it runs {system}, and only Linux is supported")
    try:
        programs = kit.for_machine(kind)
    except TestbedError as error:
        raise TestbedError(f"host {machine.host}: {error}") from None
    if tar == "none":
        raise TestbedError(f"host {machine.host}: it has no program tar, by which files are sent")
    place = f"{cache}/kit-{programs.hash}"
    spools = f"{state}/runs"
    accelerator = f"{place}/{PRELOAD}" if PRELOAD in programs.files else None
    reached = Reached(
        machine,
        place,
        programs.binary_hash,
        spools,
        connection,
        boot,
        is_root=user == "0",
        accelerator=accelerator,
    )
    await _send_programs(reached, programs, token)
    return reached


async def _send_programs(reached: Reached, programs: kit.Kit, token: str) -> None:
    machine, binary = reached.machine, reached.binary
    (there,) = (await machine.ask(f"[ -x {binary} ] && echo yes || echo no"))[-1:] or ["no"]
    if there == "no":
        to = shlex.quote(reached.programs)
        draft = shlex.quote(f"{reached.programs}.{token}")
        await machine.run(
            f"umask 077; mkdir -p {draft} && {{ tar -C {draft} -xf - || "
            # The connection was closed before all had come.
            f"{{ rm -rf {draft}; exit 1; }}; }} && {{ mv -T {draft} {to} || rm -rf {draft}; }}",
            programs.archive(),
            f"send the host's programs to {reached.programs}",
            "its user has to be able to write there, or XDG_CACHE_HOME of its logins has to name "
            "a folder where that is so",
        )
    try:
        version = (await machine.ask(f"{binary} --version"))[-1:]
    except TestbedError as error:
        raise TestbedError(f"{error}; the host programs cannot run there") from None
    if version != [f"loopscope-host {__version__}"]:
        raise TestbedError(f"host {machine.host}: {binary} says that it is {version}")
