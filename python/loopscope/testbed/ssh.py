"""The testbed of machines that are there, over the system's ssh.

What a machine lacks of the host side is copied to it once. Its agent speaks over the standard input
and output of an ssh session, so that no port has to be opened. What it measures stays on it until
it is copied here.
"""

from __future__ import annotations

import asyncio
import shlex
from asyncio.subprocess import Process
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from loopscope.experiment import Experiment, Machine
from loopscope.provider import (
    CLOCK,
    DATA,
    Host,
    Network,
    Provider,
    Request,
    Testbed,
    TestbedError,
)
from loopscope.provider.addresses import EMULATED_LINKS, of_one_family
from loopscope.provider.agent import Agent, AgentError
from loopscope.testbed import kit, rights, routes, settings
from loopscope.testbed.loss import Loss, find_out
from loopscope.testbed.reach import AT_ONCE, Reached, reach
from loopscope.testbed.relay import SILENCE_S, Relay
from loopscope.testbed.rights import Rights
from loopscope.testbed.scratch import Scratch, sweep
from loopscope.testbed.spools import FetchError, Spool, Spools, collect, remove
from loopscope.testbed.ssh_machine import SshMachine, check_programs

# For the agent's last answers.
SHUTDOWN_S = 15.0


@dataclass
class _Remote:
    """A machine in use.

    ``folder`` is the run's spool on it, ``relay`` and ``process`` are of its agent's session,
    ``loss`` finds out why that has ended, ``fetched`` is whether all that its agent wrote is here,
    and ``rights`` are what the agent may do.
    """

    machine: SshMachine
    folder: str = ""
    loss: asyncio.Task[Loss] | None = None
    relay: Relay | None = None
    process: Process | None = None
    fetched: bool = False
    rights: Rights | None = None


class SshTestbed(Testbed):
    """Hosts on machines that are reached by ssh."""

    def __init__(self, machines: dict[str, Machine], request: Request) -> None:
        super().__init__()
        self.links_at_hosts = request.router
        self.is_shared = True
        self._machines = machines
        self._request = request
        self._remotes: dict[str, _Remote] = {}
        self._scratch: Scratch | None = None
        self._asked = asyncio.Semaphore(AT_ONCE)
        spools = {host: Spool(f"{request.run_id}-{host}", machines[host]) for host in request.hosts}
        self._spools = Spools(request.directory, spools)

    async def make(self) -> None:
        """Logs in everywhere, sends what is missing, and starts the agents."""
        check_programs()
        sweep()
        self._scratch = Scratch()
        names = list(self._request.hosts)
        # Before anything is on a host: what a killed controller leaves there can be collected.
        self._spools.write()
        made = await asyncio.gather(*map(self._make_one, names), return_exceptions=True)
        failed = [each for each in made if isinstance(each, BaseException)]
        for error in failed:
            if not isinstance(error, (TestbedError, AgentError)):
                raise error
        if failed:
            raise TestbedError("\n".join(str(error) for error in failed))
        hosts: dict[str, Host] = dict(zip(names, made, strict=True))  # type: ignore[arg-type]
        if self._request.router_host is not None:
            addresses = of_one_family(hosts.values(), DATA, EMULATED_LINKS)
            reached = {name: each.machine for name, each in self._remotes.items()}
            router, routed = self._request.router_host, self._request.routed
            await routes.check(router, routed, addresses, reached)
        self.hosts = hosts
        # Each has one of its own.
        self.kernels = {name: host.agent for name, host in hosts.items()}

    async def _make_one(self, name: str) -> Host:
        async with self._asked:
            assert self._scratch is not None
            number = list(self._request.hosts).index(name)
            machine = SshMachine(name, self._machines[name], self._scratch.path / f"{number}")
            remote = self._remotes[name] = _Remote(machine)
            reached = await reach(machine, self._request.run_id)
            allowed = remote.rights = await rights.test(reached)
            if self._request.router and self._request.router_host in (None, name):
                rights.check_links(name, allowed)
            remote.folder = reached.spool(self._spools.by_host[name].name)
            await self._send_files(machine, remote.folder)
            host = await self._start_agent(name, remote, reached)
            try:
                unset = await settings.make(host.agent, self._machines[name].settings)
            except AgentError:
                await host.agent.close()
                raise
            return replace(host, lacking=[*unset, *(host.lacking or ())])

    async def _send_files(self, machine: SshMachine, folder: str) -> None:
        desk = Path(self._request.folder or ".")
        try:
            files = kit.archive({str(each): desk / each for each in self._request.files})
        except OSError as error:
            raise TestbedError(f"cannot send {error.filename}: {error.strerror}") from None
        work = shlex.quote(f"{folder}/work")
        await machine.run(
            f"umask 077; mkdir -p {work} && tar -C {work} -xf -",
            files,
            f"send files to {folder}/work",
            "its user has to be able to write there, or XDG_STATE_HOME of its logins has to name "
            "a folder where that is so",
        )

    async def _start_agent(self, name: str, remote: _Remote, reached: Reached) -> Host:
        request, folder = self._request, remote.folder
        agent = ["agent", "--stdio", "--host", name, "--run", f"{request.run_id}-{name}"]
        agent += ["--dir", folder]
        if request.hidden_clocks is not None:
            agent += ["--synthetic-seed", str(request.hidden_clocks)]
        if name in request.counters:
            agent += ["--counter", request.counters[name]]
        quoted = shlex.quote(reached.programs)
        environment = f"{folder}/environment"
        # sudo passes on no variables: the agent reads them for the components, as the user.
        command, line = f"exec {reached.binary} {shlex.join(agent)}", ""
        if remote.rights is not None and remote.rights.command is not None:
            keep = f"(umask 077; cat /proc/self/environ >{shlex.quote(environment)})"
            command = f"{keep} && exec {remote.rights.command}"
            line = rights.first_line(agent, environment=environment, program=reached.program)
        process = remote.process = await remote.machine.start(
            f"cd {shlex.quote(folder)}/work && export PATH={quoted}/bin:$PATH "
            f'LD_LIBRARY_PATH={quoted}/{kit.LIBRARIES}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" '
            f'PYTHONPATH={quoted}/{kit.PACKAGES}"${{PYTHONPATH:+:$PYTHONPATH}}" && '
            f"{command}"
        )
        assert process.stdin is not None
        process.stdin.write(line.encode())
        assert self._scratch is not None
        socket, spool = self._scratch.path / f"{name}.sock", self._spools.by_host[name].name
        again = SshMachine(name, self._machines[name], self._scratch.path / f"{name}.again")

        def look() -> None:
            remote.loss = asyncio.create_task(find_out(reached, spool, again))

        relay = remote.relay = await Relay.listen(socket, process, look)

        def lost() -> str:
            if relay.silent:
                return f"it has said nothing for {SILENCE_S:g} s; its network or it may be down"
            words = remote.machine.last_words
            return "its agent is gone" + (f": {words}" if words else "")

        quota_bytes = self._machines[name].quota_bytes
        client = Agent(
            name,
            socket,
            lost=lost,
            quota_bytes=quota_bytes,
            sign_ns=lambda: relay.came_ns,
        )
        data = self._machines[name].data or _server_address(reached.connection)
        if not data:
            raise TestbedError(f"host {name}: it does not tell its address; give `data` of it")
        addresses: dict[Network, tuple[str, ...]] = {DATA: data}
        addresses[CLOCK] = self._machines[name].clock or data
        lacking = None if remote.rights is None else rights.lacking(remote.rights)
        return Host(name, client, addresses, lacking, reached.accelerator)

    async def fetch(self) -> None:
        """Copies what the hosts measured, and removes it from them."""
        await asyncio.gather(*map(self._fetch_one, self.hosts))

    async def _fetch_one(self, name: str) -> None:
        remote = self._remotes[name]
        async with self._asked:
            try:
                if remote.loss is not None:
                    await self._replace_connection(remote, await remote.loss)
                unpacked = await collect(
                    remote.machine,
                    remote.folder,
                    name,
                    self._request.directory,
                    self._machines[name].quota_bytes,
                )
                remote.fetched = True
                self.left_out[name] = unpacked.left_out
            except FetchError as error:
                run = self._request.directory.parents[1]
                self.uncollected[name] = f"{error}; to collect it: loopscope fetch {run}"

    async def _replace_connection(self, remote: _Remote, loss: Loss) -> None:
        """Has the host asked over the new connection. Raises FetchError where there is none."""
        if loss.reached is None:
            raise FetchError(f"{loss.text}; what it measured stays there, in {remote.folder}")
        self.problems.append(loss.text)
        await remote.machine.close()
        remote.machine = loss.reached.machine

    async def remove(self) -> None:
        """Ends the agents and the connections."""
        await asyncio.gather(*map(self._remove_one, self._remotes))
        if self._scratch is not None:
            self._scratch.remove()
        self.hosts = {}
        self._remotes = {}

    async def _remove_one(self, name: str) -> None:
        remote = self._remotes[name]
        host = self.hosts.get(name)
        if remote.relay is not None:
            remote.relay.expect_end()
        if host is not None:
            if remote.process is not None and remote.process.returncode is None:
                try:
                    self.problems += await host.agent.shutdown(SHUTDOWN_S)
                except AgentError as error:
                    self.problems.append(str(error))
            await host.agent.close()
        if remote.relay is not None:
            await remote.relay.close()
        if remote.loss is not None:
            loss = await remote.loss
            if loss.reached is not None and loss.reached.machine is not remote.machine:
                await loss.reached.machine.close()
        # Where not all hosts came to be, nothing was measured.
        if remote.folder and (remote.fetched or host is None):
            try:
                await remove(remote.machine, remote.folder)
                self._spools.done(name)
            except (TestbedError, OSError) as error:
                self.problems.append(str(error))
        elif not remote.folder:
            self._spools.done(name)
        await remote.machine.close()


def _server_address(connection: str) -> tuple[str, ...]:
    """The machine's own address, from SSH_CONNECTION (sshd(8)); empty: it is not known."""
    words = connection.split()
    return (words[2],) if len(words) == 4 else ()


def provide(experiment: Experiment) -> Provider:
    """The provider of an experiment's machines."""
    return partial(SshTestbed, dict(experiment.machines))
