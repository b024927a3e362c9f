"""The local testbed: every host a network namespace of this machine."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from loopscope.testbed._proto import agent_pb2 as pb
from loopscope.testbed.agent import Agent, AgentError
from loopscope.testbed.patience import to_the_end, within
from loopscope.testbed.program import TestbedError, dormant, host_binary


@dataclass(frozen=True)
class Host:
    """A host of the testbed."""

    name: str
    data_address: str
    clock_address: str
    namespace: str
    port: str
    """The device of the router that its data link ends at."""
    data_link_address: str
    """Ethernet address of its own end of it."""
    agent: Agent


class LocalTestbed:
    """Hosts made by the machine's agent. ``async with`` makes them and removes them.

    Each writes ``hosts/<host>/`` into ``directory``, so that what was measured stays, whichever
    process is killed. With a ``router`` the data links end at it; else they are one bridge.
    ``probes_on_data``: clock probes share them. Relative paths in commands begin in ``folder``,
    else in the current one. ``problems`` lists afterwards what could not be removed.
    """

    def __init__(
        self,
        run_id: str,
        hosts: Sequence[str],
        directory: Path,
        *,
        data_network: str,
        clock_network: str,
        data_mtu: int | None = None,
        synthetic_seed: int | None = None,
        router: bool = False,
        probes_on_data: bool = False,
        folder: str = "",
    ) -> None:
        self._run_id = run_id
        self._directory = directory.absolute()
        self._request = pb.BuildTestbedRequest(
            hosts=list(hosts),
            data_network=data_network,
            clock_network=clock_network,
            data_mtu=data_mtu or 0,
            synthetic_seed=synthetic_seed,
            router=router,
            probes_on_data=probes_on_data,
            working_directory=folder or os.getcwd(),
            path=os.environ.get("PATH", os.defpath),
        )
        self._log: IO[bytes] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._agent: Agent | None = None
        self.hosts: dict[str, Host] = {}
        self.router: Host | None = None
        self.knows_neighbours = False
        """Whether every host has the others' Ethernet addresses from the start."""
        self.problems: list[str] = []

    async def __aenter__(self) -> LocalTestbed:
        if os.geteuid() != 0:
            raise TestbedError(
                "the local testbed makes network namespaces, which needs root.\n"
                "  Run it with: sudo loopscope run …"
            )
        try:
            await self._build()
        except BaseException:
            await to_the_end(self._remove())
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_the_end(self._remove())

    async def _build(self) -> None:
        # Made and removed by the agent, through its ledger: it outlives neither of us.
        scratch = Path(tempfile.gettempdir()) / f"loopscope-{self._run_id}"
        socket = scratch / "machine.sock"
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
                socket,
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
        self._agent = Agent("machine", socket)
        try:
            made = await self._agent.build_testbed(self._request)
        except AgentError as error:
            raise TestbedError(f"the testbed could not be made: {error}") from None
        self.hosts = {host.name: _host(host) for host in made.hosts}
        self.knows_neighbours = made.neighbours
        if made.HasField("router"):
            self.router = _host(made.router)

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

    async def _remove(self) -> None:
        for host in (*self.hosts.values(), *([self.router] if self.router else [])):
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


def _host(made: pb.TestbedHost) -> Host:
    return Host(
        name=made.name,
        data_address=made.data_address,
        clock_address=made.clock_address,
        namespace=made.namespace,
        port=made.port,
        data_link_address=made.data_link_address,
        agent=Agent(made.name, made.agent_socket),
    )
