"""The testbed of machines that are there, over the system's ssh.

What a machine lacks of the host side is copied to it once. Its agent speaks over the standard input
and output of an ssh session, so that no port has to be opened. What it measures stays on it until
it is copied here.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import tarfile
import tempfile
from asyncio.subprocess import Process
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loopscope import __version__
from loopscope.experiment import Experiment, Machine
from loopscope.provider import (
    CLOCK,
    DATA,
    Host,
    Provider,
    Request,
    Testbed,
    TestbedError,
)
from loopscope.provider.agent import Agent, AgentError
from loopscope.testbed import kit
from loopscope.testbed.relay import SILENCE_S, Relay
from loopscope.testbed.ssh_machine import SshMachine
from loopscope.testbed.unpack import UnpackError

# So many machines are asked at the same time.
AT_ONCE = 16
# For the agent's last answers.
SHUTDOWN_S = 15.0
# On the machine, below the home folder unless XDG variables say otherwise.
PLACES = (
    'echo "${XDG_CACHE_HOME:-$HOME/.cache}/loopscope"; '
    'echo "${XDG_STATE_HOME:-$HOME/.local/state}/loopscope"; '
    'uname -s; uname -m; echo "$SSH_CONNECTION"; command -v tar || echo none'
)


@dataclass
class _Remote:
    """A machine in use.

    ``folder`` is the run's on it, ``relay`` and ``process`` are of its agent's session, and
    ``fetched`` is whether all that its agent wrote is here.
    """

    machine: SshMachine
    folder: str
    relay: Relay | None = None
    process: Process | None = None
    fetched: bool = False


class SshTestbed(Testbed):
    """Hosts on machines that are reached by ssh."""

    def __init__(self, machines: dict[str, Machine], request: Request) -> None:
        super().__init__()
        self.links_at_senders = request.router
        self._machines = machines
        self._request = request
        self._remotes: dict[str, _Remote] = {}
        self._scratch: Path | None = None
        self._asked = asyncio.Semaphore(AT_ONCE)

    async def make(self) -> None:
        """Logs in everywhere, sends what is missing, and starts the agents."""
        if shutil.which("ssh") is None:
            raise TestbedError("testbed ssh needs the program ssh: install openssh-client")
        # This user's alone; in the shortest place, because names of sockets have 107 bytes.
        self._scratch = Path(tempfile.mkdtemp(prefix="loopscope-"))
        names = list(self._request.hosts)
        made = await asyncio.gather(*map(self._make_one, names), return_exceptions=True)
        failed = [each for each in made if isinstance(each, BaseException)]
        for error in failed:
            if not isinstance(error, (TestbedError, AgentError)):
                raise error
        if failed:
            raise TestbedError("\n".join(str(error) for error in failed))
        self.hosts = {name: host for name, host in zip(names, made, strict=True)}  # type: ignore[misc]

    async def _make_one(self, name: str) -> Host:
        async with self._asked:
            assert self._scratch is not None
            number = list(self._request.hosts).index(name)
            machine = SshMachine(name, self._machines[name], self._scratch / f"{number}")
            remote = self._remotes[name] = _Remote(machine, "")
            await machine.connect()
            cache, state, system, kind, connection, tar = (await machine.ask(PLACES))[:6]
            programs = kit.installed()
            if (system, kind) != ("Linux", programs.machine):
                raise TestbedError(
                    f"host {name}: it is a {system} machine of kind {kind}; this installation has "
                    f"programs for Linux on {programs.machine}"
                )
            if tar == "none":
                raise TestbedError(f"host {name}: it has no program tar, by which files are sent")
            place = f"{cache}/kit-{programs.hash}"
            await self._send_kit(machine, programs, place)
            remote.folder = f"{state}/runs/{self._request.run_id}-{name}"
            await self._send_files(machine, remote.folder)
            return await self._start_agent(name, remote, place, connection)

    async def _send_kit(self, machine: SshMachine, programs: kit.Kit, place: str) -> None:
        binary = shlex.quote(f"{place}/{kit.BINARY}")
        (there,) = await machine.ask(f"[ -x {binary} ] && echo yes || echo no")
        if there == "no":
            to, draft = shlex.quote(place), shlex.quote(f"{place}.{self._request.run_id}")
            await machine.run(
                f"umask 077; mkdir -p {draft} && tar -C {draft} -xf - && "
                f"{{ mv -T {draft} {to} || rm -rf {draft}; }}",
                programs.archive(),
            )
        try:
            version = (await machine.ask(f"{binary} --version"))[-1:]
        except TestbedError as error:
            raise TestbedError(f"{error}; the host programs cannot run there") from None
        if version != [f"loopscope-host {__version__}"]:
            raise TestbedError(f"host {machine.host}: {binary} says that it is {version}")

    async def _send_files(self, machine: SshMachine, folder: str) -> None:
        desk = Path(self._request.folder or ".")
        try:
            files = kit.archive({str(each): desk / each for each in self._request.files})
        except OSError as error:
            raise TestbedError(f"cannot send {error.filename}: {error.strerror}") from None
        work = shlex.quote(f"{folder}/work")
        await machine.run(f"umask 077; mkdir -p {work} && tar -C {work} -xf -", files)

    async def _start_agent(self, name: str, remote: _Remote, place: str, connection: str) -> Host:
        request, folder = self._request, remote.folder
        agent = ["agent", "--stdio", "--host", name, "--run", f"{request.run_id}-{name}"]
        agent += ["--dir", folder]
        if request.hidden_clocks is not None:
            agent += ["--synthetic-seed", str(request.hidden_clocks)]
        quoted = shlex.quote(place)
        process = remote.process = await remote.machine.start(
            f"cd {shlex.quote(folder)}/work && export LOOPSCOPE_RUNTIME_DIR= "
            f"PATH={quoted}/bin:$PATH "
            f'LD_LIBRARY_PATH={quoted}/{kit.LIBRARIES}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" '
            f'PYTHONPATH={quoted}/{kit.PACKAGES}"${{PYTHONPATH:+:$PYTHONPATH}}" && '
            f"exec {quoted}/{kit.BINARY} {shlex.join(agent)}"
        )
        assert self._scratch is not None
        socket = self._scratch / f"{name}.sock"
        relay = remote.relay = await Relay.listen(socket, process)

        def lost() -> str:
            if relay.silent:
                return f"it has said nothing for {SILENCE_S:g} s; its network or it may be down"
            words = remote.machine.last_words
            return "its agent is gone" + (f": {words}" if words else "")

        client = Agent(name, socket, lost=lost)
        data = self._machines[name].data or _server_address(connection)
        if data is None:
            raise TestbedError(f"host {name}: it does not tell its address; give `data` of it")
        return Host(name, client, {DATA: data, CLOCK: self._machines[name].clock or data})

    async def fetch(self) -> None:
        """Copies what the hosts measured, and removes it from them."""
        await asyncio.gather(*map(self._fetch_one, self.hosts))

    async def _fetch_one(self, name: str) -> None:
        remote = self._remotes[name]
        async with self._asked:
            try:
                await remote.machine.ask("true")
                await remote.machine.fetch(
                    f"{remote.folder}/hosts", name, self._request.directory / "hosts"
                )
                remote.fetched = True
            except (TestbedError, UnpackError, tarfile.TarError, OSError) as error:
                what = str(error) if isinstance(error, TestbedError) else f"host {name}: {error}"
                self.problems.append(f"{what}; what it measured stays there, in {remote.folder}")

    async def remove(self) -> None:
        """Ends the agents and the connections."""
        await asyncio.gather(*map(self._remove_one, self._remotes))
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.hosts = {}
        self._remotes = {}

    async def _remove_one(self, name: str) -> None:
        remote = self._remotes[name]
        host = self.hosts.get(name)
        if host is not None:
            if remote.process is not None and remote.process.returncode is None:
                try:
                    self.problems += await host.agent.shutdown(SHUTDOWN_S)
                except AgentError as error:
                    self.problems.append(str(error))
            await host.agent.close()
        if remote.relay is not None:
            await remote.relay.close()
        # Where not all hosts came to be, nothing was measured.
        if remote.folder and (remote.fetched or host is None):
            try:
                await remote.machine.ask(f"rm -rf {shlex.quote(remote.folder)}")
            except TestbedError as error:
                self.problems.append(str(error))
        await remote.machine.close()


def _server_address(connection: str) -> str | None:
    """The machine's own address, from SSH_CONNECTION (sshd(8))."""
    words = connection.split()
    return words[2] if len(words) == 4 else None


def provide(experiment: Experiment) -> Provider:
    """The provider of an experiment's machines."""
    return partial(SshTestbed, dict(experiment.machines))
