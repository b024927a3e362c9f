"""The local testbed: every host a network namespace of this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

from loopscope.experiment import Experiment, MachineSettings
from loopscope.provider import (
    CLOCK,
    DATA,
    Host,
    Lack,
    Network,
    Provider,
    Request,
    Router,
    RouterPort,
    Testbed,
    TestbedError,
)
from loopscope.provider.agent import Agent, AgentError
from loopscope.provider.patience import within
from loopscope.testbed import machine, settings
from loopscope.testbed._proto import machine_pb2 as pb
from loopscope.testbed.program import dormant, host_binary, preload_library_or_none
from loopscope.testbed.relay import SILENCE_S

NONE = MachineSettings()
# Hosts share the processors of one machine. All of them together are asked for a sign of life 40
# times a second at most, twice in this time each.
SILENCE_OF_EACH_S = 0.05


class LocalTestbed(Testbed):
    """Hosts made by the machine's agent.

    With a router the data links end at it; else they are one bridge.
    """

    def __init__(self, request: Request, machine: MachineSettings = NONE) -> None:
        super().__init__()
        self._settings = machine
        self._run_id = request.run_id
        self._directory = request.directory.absolute()
        self._silence_s = max(SILENCE_S, SILENCE_OF_EACH_S * len(request.hosts))
        self._request = pb.BuildTestbedRequest(
            hosts=list(request.hosts),
            data_network=request.networks[DATA],
            clock_network=request.networks[CLOCK],
            data_mtu=request.data_mtu or 0,
            synthetic_seed=request.hidden_clocks,
            router=request.router,
            probes_on_data=request.probes_on_data,
            counters=request.counters,
            clock_pairs=[pb.ClockPair(a=a, b=b) for a, b in request.clock_pairs],
            working_directory=request.folder or os.getcwd(),
            path=os.environ.get("PATH", os.defpath),
        )
        self._log: IO[bytes] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._agent: Agent | None = None

    async def make(self) -> None:
        """Starts the machine's agent, which makes the hosts."""
        # Made and removed by the agent, through its ledger: it outlives neither of us.
        scratch = Path(tempfile.gettempdir()) / f"loopscope-{self._run_id}"
        machine_socket = scratch / "machine.sock"
        self._log = tempfile.TemporaryFile()
        # Its own session: Ctrl-C is the controller's to handle, and the agent outlives it for as
        # long as the clean-up takes. It ends when its standard input closes.
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                host_binary(),
                "agent",
                "--run",
                self._run_id,
                "--scratch",
                scratch,
                "--socket",
                machine_socket,
                "--dir",
                self._directory,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._log,
                env=dormant(),
                start_new_session=True,
            )
        )
        try:
            await asyncio.shield(starting)
        finally:
            # asyncio kills what it is about to hand over to somebody who is cancelled; an agent
            # that is killed leaves what it has made.
            self._process = await starting
        await self._wait_until_ready()
        self._agent = Agent(machine.NAME, machine_socket)
        try:
            unset = await settings.make(self._agent, self._settings)
        except AgentError as error:
            raise TestbedError(error.what) from None
        try:
            made = await machine.build_testbed(machine_socket, self._request)
        except AgentError as error:
            raise TestbedError(f"the testbed could not be made: {error}") from None
        # They are all of this machine.
        lacking = [*unset, *(Lack(each.what, each.why, each.cost) for each in made.lacking)]
        self.hosts = {host.name: self._host(host, lacking) for host in made.hosts}
        # All hosts share it.
        self.kernels = {"_kernel": self._agent}
        self.knows_neighbours = made.neighbours
        if made.HasField("router"):
            ports = [
                RouterPort(each.name, each.port, each.data_link_address) for each in made.hosts
            ]
            self.router = Router(self._host(made.router, lacking), ports)

    def _host(self, made: pb.TestbedHost, lacking: Sequence[Lack]) -> Host:
        addresses: dict[Network, tuple[str, ...]] = {CLOCK: (made.clock_address,)}
        if made.data_address:
            addresses[DATA] = (made.data_address,)
        lost = partial(self._why_lost, made.agent_socket)
        agent = Agent(made.name, made.agent_socket, lost=lost, silence_s=self._silence_s)
        library = preload_library_or_none()
        return Host(made.name, agent, addresses, lacking, None if library is None else str(library))

    def _why_lost(self, host_socket: str) -> str:
        """Why the agent of a host is gone; the machine's takes all of them with it."""
        if _is_listened_on(host_socket):
            return f"it has said nothing for {self._silence_s:g} s; its agent is stopped or hangs"
        process = self._process
        if process is None or process.returncode is None:
            return "its agent is gone"
        code = process.returncode
        ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"its agent is gone, and so is the agent of this machine: {ended}"

    async def _wait_until_ready(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        try:
            line = await within(10, self._process.stdout.readline())
        except asyncio.TimeoutError:
            raise TestbedError("the machine's agent was not ready within 10 s") from None
        if line != b"ready\n":
            # It ends where it has nothing to read any more.
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._process.wait()
            raise TestbedError(f"the machine's agent ended at once:\n{self._error_output()}")

    def _error_output(self) -> str:
        """Standard error of the machine's agent."""
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()

    async def fetch(self) -> None:
        """Does nothing: the hosts have written there themselves."""

    async def remove(self) -> None:
        """Has the machine's agent undo its ledger, and ends it."""
        for host in (*self.hosts.values(), *([self.router.host] if self.router else [])):
            await host.agent.close()
        if self._agent is not None:
            try:
                self.problems += await self._agent.shutdown()
            except AgentError as error:
                self.problems += [str(error), *self._error_output().splitlines()]
            await self._agent.close()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                await within(15, self._process.wait())
            except asyncio.TimeoutError:
                self._process.kill()
                await self._process.wait()
                self.problems.append(
                    "the machine's agent did not end by itself; run: loopscope reset"
                )
        if self._log is not None:
            self._log.close()
        self.hosts = {}
        self.router = None
        self._agent = self._process = self._log = None


def _is_listened_on(path: str) -> bool:
    """Whether a process has a Unix socket on which it listens, also one that is stopped."""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        try:
            client.connect(path)
        except BlockingIOError:
            # As many as it takes are waiting already.
            return True
        except OSError:
            return False
        return True


def provide(experiment: Experiment) -> Provider:
    """The provider of an experiment's hosts, which need no machines."""
    return partial(LocalTestbed, machine=experiment.settings)
