"""A run on hosts that exist: clocks, programs, phases, and what they left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from loopscope import __version__
from loopscope.control import acceleration, channels, disk_space, router
from loopscope.control.clocks import HostClocks
from loopscope.control.components import SETTLE_S, WHY_LOST_S, Components, State, instant_of
from loopscope.control.desk_clock import DeskClock
from loopscope.control.failure import ComponentsFailed, RunFailed, consequences
from loopscope.control.instant import PrintedLine
from loopscope.control.kernel import STAMP_SOCKETS, Kernels
from loopscope.control.progress import Progress
from loopscope.control.spare_time import SpareTime
from loopscope.control.stages import Stages
from loopscope.control.unwritten import write_unwritten
from loopscope.experiment import (
    Component,
    ExitReady,
    Experiment,
    quantity,
    streams_of_host,
)
from loopscope.files import write_whole
from loopscope.provider import (
    DATA,
    AgentError,
    AgentLost,
    Host,
    Testbed,
)
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.addresses import EMULATED_LINKS, DataAddresses, of_one_family
from loopscope.provider.printable import printable
from loopscope.provider.untrusted import UntrustedError
from loopscope.strict_json import to_json

DRAIN = "drain"
GRACE_S = 2.0
# Room on the run's disk for what is written when a repeat ends: the run's description, and accounts
# that hosts had no room for.
RESERVE = ".reserve"


class Repeat:
    """A run in progress on a testbed that exists."""

    def __init__(
        self,
        experiment: Experiment,
        bed: Testbed,
        run_id: str,
        progress: Progress,
        spare: SpareTime | None = None,
    ) -> None:
        self._experiment = experiment
        self._run_id = run_id
        self._bed = bed
        self._hosts = dict(bed.hosts)
        self._router: Host | None = None
        self._links: list[Component] = []
        linked: dict[str, str] | None = None
        if bed.router is not None:
            self._links = [router.links(experiment, bed.router)]
            self._router = bed.router.host
            self._hosts[self._router.name] = self._router
        elif bed.links_at_hosts:
            linked = of_one_family(bed.hosts.values(), DATA, EMULATED_LINKS)
            emulation = experiment.network.emulation
            if emulation is not None and emulation.router is not None:
                name = emulation.router
                self._links = [router.links_at_router(experiment, linked, name)]
            else:
                self._links = router.links_at_senders(experiment, linked)
        serving = [bed.hosts[name] for name in channels.hosts(experiment)]
        used = linked or of_one_family(serving, DATA, "channels of several hosts")
        acceleration.check_hosts(experiment, bed.hosts)
        self._servers = [
            *channels.services(experiment, used),
            *acceleration.services(experiment, bed.hosts, run_id),
        ]
        addresses = DataAddresses(self._hosts, linked)
        if apart := addresses.unreachable(each.host for each in experiment.components):
            progress.note(apart)
        self._progress = progress
        self._spare = spare or SpareTime()
        self._desk_clock = DeskClock()
        self._components = Components(
            [*self._links, *self._servers, *experiment.components], self._desk_clock, self._look
        )
        self._stages = Stages(
            experiment,
            self._hosts,
            addresses,
            self._components,
            self._streams_of,
            self._environment_of,
            progress,
        )
        self._watchers: list[asyncio.Task[None]] = []
        self._looks: list[asyncio.Task[None]] = []
        self._looked_ns = 0
        self._clocks = HostClocks(
            experiment.clock,
            experiment.clocks,
            self._hosts,
            progress,
            self._each,
            links_at_hosts=bed.links_at_hosts,
        )
        self._kernels = Kernels(
            experiment,
            bed.kernels,
            {name: host.agent for name, host in bed.hosts.items()},
            progress,
            is_shared=bed.is_shared,
        )
        self._collecting = False
        self.left: dict[str, str] = {}
        """The phase in which a component ended that was to go on."""
        self._finished: dict[str, pb.FinishTraceReply] = {}
        """Hosts whose files are closed in good order, and what they count."""
        self._noted: set[str] = set()
        self.unfinished: dict[str, str] = {}
        """Why an agent did not end the run in order, by host, for people."""

    async def run(self) -> dict[str, float]:
        """Clocks, then the phases one after the other; each phase's seconds."""
        for host in self._hosts.values():
            self._watchers.append(asyncio.create_task(self._watch(host)))
        notes = await asyncio.gather(*(self._greet(host) for host in self._hosts.values()))
        self._tell_counters(dict(zip(self._hosts, notes, strict=True)))
        begun = await asyncio.gather(
            self._start_clocks(), self._kernels.start(), return_exceptions=True
        )
        # Both have come to their end, so that what was begun can be ended.
        for failure in filter(None, begun):
            raise failure
        # From here on the desk leaves the processors to the programs.
        await self._spare.pause()
        await self._stages.start(self._servers)
        seconds: dict[str, float] = {}
        measured = {phase.name for phase in self._experiment.phases if phase.measured}
        before = [c for c in self._experiment.components if c.start is None]
        for spec in self._experiment.components:
            self._progress.component(spec.host, spec.name, self._state(spec).status)
        self._progress.stage("starting components")
        await self._stages.start(before)
        for phase in self._experiment.phases:
            if phase.measured and not any(name in seconds for name in measured):
                await self._clocks.gate()
            await self._kernels.enter(phase)
            began = time.monotonic()
            self._progress.phase(phase.name, phase.timeout_ns / 1e9, phase.measured)
            async with self._kernels.alternating(phase):
                await self._stages.phase(phase)
            seconds[phase.name] = time.monotonic() - began
            self._note_left(phase.name)
        await self._drain()
        return seconds

    async def _start_clocks(self) -> None:
        # The clocks are there when something can happen, unless their probes need the links.
        if self._emulates_clock:
            await self._start_links()
            await self._clocks.start()
        else:
            await self._clocks.start()
            await self._start_links()
        await self._clocks.start_mesh()

    def _note_left(self, phase: str) -> None:
        """Tells of components that ended by themselves, with 0, though nobody waits for that."""
        for spec in self._experiment.components:
            state = self._state(spec)
            if (
                state.exited
                and not isinstance(spec.ready, ExitReady)
                and spec.name not in self.failed
                and spec.name not in self.left
            ):
                self.left[spec.name] = phase
                self._progress.note(
                    f"{spec.name} on {spec.host} ended by itself in phase {phase} (exit status 0)"
                )

    async def _drain(self) -> None:
        """Waits for what is still under way to somebody."""
        drain_ns = self._experiment.drain_ns
        if drain_ns and any(not self._state(c).exited for c in self._experiment.components):
            self._progress.stage(
                f"waiting {quantity.format(drain_ns, quantity.DURATION)} for messages on their way"
            )
            await asyncio.sleep(drain_ns / 1e9)
        # Nobody was asked to end yet.
        if self._components.failed:
            await self._components.raise_failure(DRAIN)

    async def collect(self, directory: Path) -> None:
        """Ends everything and has the hosts close their files."""
        await self._components.outlast_loss(spec.name for spec in self._experiment.components)
        self._collecting = True
        self._progress.stage("ending components")
        # Links last: what others say as they end goes through them, and so may the last probes.
        # Channels tell what is left in them.
        serving = {spec.host for spec in self._services}
        last = [host for host in self._hosts.values() if host.name in serving]
        await self._each(self._end_programs)
        if not self._emulates_clock:
            await self._each(self._end, last)
        self._spare.begin()
        self._progress.stage("collecting")
        _, cost = await asyncio.gather(self._kernels.finish(), self._clocks.stop())
        if self._emulates_clock:
            await self._each(self._end, last)
        await self._each(self._finish_trace)
        await self._bed.fetch()
        (directory / RESERVE).unlink(missing_ok=True)
        for line in write_unwritten(directory / "hosts", self._finished):
            self._progress.note(line)
        background = [*self._watchers, *self._looks]
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        self._kernels.write(directory)
        if cost is not None:
            write_whole(directory / "clock.json", to_json(cost, indent=2) + "\n")

    @property
    def collected(self) -> str:
        """Text for people that says from which hosts data was collected."""
        hosts = [host for host in self._hosts if host != router.NAME]
        rest = [host for host in hosts if host not in self._finished]
        text = f"collected from {len(hosts) - len(rest)} of {len(hosts)} hosts"
        if rest:
            text += f"; of {', '.join(rest)} there is what was written until its agent ended"
        return text

    async def failure_of_loss(self, error: AgentLost) -> RunFailed:
        """The failure of a run in which a request found an agent gone."""
        try:
            await self._components.raise_failure(self._stages.phase_name)
        except RunFailed as failure:
            return failure
        return RunFailed(str(error))

    def completed(self, failure: RunFailed) -> RunFailed:
        """A failure as it is known when all is collected.

        It has what others printed soon after the first cause. A first cause that is another one
        than was shown is shown now.
        """
        failed = self._components.completed(failure)
        if failed is not failure and failed.first_line != failure.first_line:
            failed.show(self._progress)
        if not isinstance(failed, ComponentsFailed):
            return failed
        lines = consequences(
            failed.failures[0], self._components.printed(), self._components.printed_more()
        )
        return failed.with_lines(*lines)

    def _look(self) -> None:
        """Begins to ask every host for its time: an answer is a sign of life, too."""
        # Each of many failures at once may be the reason.
        asked_ns = time.monotonic_ns()
        if self._looks and asked_ns - self._looked_ns < SETTLE_S * 1e9:
            return
        self._looked_ns = asked_ns

        async def ask(host: Host) -> None:
            # The watch reports an agent that is gone.
            with suppress(AgentError):
                reply = await host.agent.read_clock()
                if reply.HasField("now"):
                    self._desk_clock.take(asked_ns, time.monotonic_ns(), reply.now)

        self._looks += [asyncio.create_task(ask(host)) for host in self._hosts.values()]

    async def _each(
        self, ask: Callable[[Host], Awaitable[object]], hosts: Iterable[Host] | None = None
    ) -> None:
        """Asks every host; one that fails is noted and does not keep the others from it."""
        asked = list(self._hosts.values() if hosts is None else hosts)
        for result in await asyncio.gather(*(ask(h) for h in asked), return_exceptions=True):
            if isinstance(result, AgentError):
                if self._collecting:
                    why = f"host {result.host}: it did not end the run in order: {result.what}"
                    self.unfinished.setdefault(result.host, why)
                # A host whose agent is gone fails every request alike.
                if str(result) not in self._noted:
                    self._noted.add(str(result))
                    self._progress.note(str(result))
            elif isinstance(result, BaseException):
                raise result

    async def _greet(self, host: Host) -> str:
        """What the host has to say of its counter."""
        version, counter_note = await host.agent.hello()
        if version != __version__:
            raise RunFailed(
                f"host {host.name}: its agent is loopscope {version}, this is {__version__}; "
                "build and install both sides with: make build"
            )
        return counter_note

    def _tell_counters(self, notes: Mapping[str, str]) -> None:
        """Notes once what several hosts say of their counters alike."""
        for text in dict.fromkeys(filter(None, notes.values())):
            hosts = [name for name, note in notes.items() if note == text]
            self._progress.note(f"host {', '.join(hosts)}: {text}")

    async def _watch(self, host: Host) -> None:
        """Takes what the host's agent reports. Whatever ends that early ends the run."""
        gone = False
        try:
            async for event in host.agent.watch():
                await self._take(host, event)
            gone, why = True, self._text_of(host.agent.lost())
        except AgentError as error:
            gone, why = isinstance(error, AgentLost), self._text_of(error)
        except UntrustedError as error:
            why = f"its agent reports {error}".__str__
        except Exception as error:
            unusable = (
                f"what its agent reports cannot be used: {type(error).__name__}: {error}; "
                "please report this"
            )
            why = unusable.__str__
            if self._collecting:
                self._progress.note(f"host {host.name}: {unusable}")
        # While all is collected, too: what failed before may have failed because of it.
        missed = await self._components.lose_agent(host.name, why, host.agent.alive_ns, gone)
        try:
            await asyncio.sleep(WHY_LOST_S)
        finally:
            missed.settle()

    @staticmethod
    def _text_of(error: AgentError) -> Callable[[], str]:
        """Reads why an agent failed when that is wanted."""
        return lambda: error.what

    async def _take(self, host: Host, event: pb.Event) -> None:
        what = event.WhichOneof("what")
        if what == "triggered":
            await self._pass_on(host, event.triggered)
            return
        if what == "departures":
            await self._forward_departures(event.departures)
            return
        if what == "disk_full":
            disk_space.note(self._progress, f"host {host.name}", event.disk_full.left_bytes)
            return
        state = self._components.states.get(event.component)
        if state is None or state.spec.host != host.name:
            named = event.component[:80]
            raise UntrustedError(f"an event of {named!r}, which is not on it")
        if what == "output":
            line = PrintedLine(instant_of(host.name, event), printable(event.output.line))
            self._progress.output(host.name, event.component, line, event.output.stderr)
        await self._components.take(event)
        if what in ("exited", "phase_failed", "phase_refused") and not self._collecting:
            self._stages.note_failure(state)
        if what != "output":
            self._progress.component(host.name, event.component, state.status)
        if what == "exited":
            self._note_left_out(state)
            if state.ignored_sigterm:
                self._progress.note(
                    f"{state.spec.name} on {state.spec.host} went on for {GRACE_S:g} s after "
                    "SIGTERM and was killed"
                )

    def _note_left_out(self, state: State) -> None:
        for name, count in state.left_out.items():
            kept = quantity.format(state.spec.output_bytes, quantity.SIZE)
            self._progress.note(
                f"{state.spec.name} on {state.spec.host}: {count} bytes of its {name} were left "
                f"out, beyond {kept}; `output:` of the component keeps more"
            )

    async def _pass_on(self, host: Host, triggered: pb.Triggered) -> None:
        """Triggers the same flight recorder on the other hosts, and tells."""
        others = [each for each in self._hosts.values() if each is not host]
        await self._kernels.keep(triggered.stream)
        await self._each(lambda each: each.agent.trigger(triggered.stream, host.name), others)
        hit = f": {triggered.entity} {triggered.id}" if triggered.entity else ""
        late = " was late" if triggered.cause == "path" else ""
        self._progress.note(
            f"flight recorder {triggered.stream} triggered on {host.name}{hit}{late}"
        )

    async def _forward_departures(self, departures: pb.Departures) -> None:
        """Tells the host where a path ends of messages that are on their way to it."""
        path = next((p for p in self._experiment.paths if p.name == departures.path), None)
        if path is None:
            raise UntrustedError(f"departures of {departures.path[:80]!r}, which is no path")
        end = self._hosts[path.events[-1].host]
        await self._each(lambda host: host.agent.departed(departures), [end])

    async def trigger(self, stream: str = "") -> bool:
        """Triggers a flight recorder, ``""`` all, on every host; whether any program has one."""
        asked = (host.agent.trigger(stream) for host in self._hosts.values())
        return any(await asyncio.gather(*asked))

    async def _end(self, host: Host) -> None:
        await host.agent.stop(grace_s=GRACE_S)

    async def _end_programs(self, host: Host) -> None:
        """Ends what the experiment has started on a host, all of it where nothing else runs."""
        if all(spec.host != host.name for spec in self._services):
            await self._end(host)
            return
        ours = [spec for spec in self._experiment.components if spec.host == host.name]
        names = [spec.name for spec in ours if self._state(spec).started]
        if names:
            await host.agent.stop(names, grace_s=GRACE_S)

    async def _start_links(self) -> None:
        if not self._links:
            return
        self._progress.stage("starting the links")
        await self._stages.start(self._links)

    @property
    def _services(self) -> list[Component]:
        """What runs for the experiment's components, and ends after them."""
        return [*self._links, *self._servers]

    @property
    def _emulates_clock(self) -> bool:
        """Whether the probes go through the links, which have to be there first and last."""
        return self._experiment.clock.network == DATA and bool(self._links)

    async def _finish_trace(self, host: Host) -> None:
        self._finished[host.name] = reply = await host.agent.finish_trace()
        for problem in reply.problems:
            self._progress.note(f"host {host.name}: {problem}")

    def _streams_of(self, spec: Component) -> str:
        if router.emulates(spec.name):
            return router.streams(self._experiment)
        stamps = self._kernels.counts_alone(spec.host)
        return streams_of_host(self._experiment, spec.host, socket_stamps=stamps)

    def _environment_of(self, spec: Component) -> dict[str, str]:
        # Links start before it is known what is recorded of kernels.
        counts_alone = not router.emulates(spec.name) and self._kernels.counts_alone(spec.host)
        stamps = {STAMP_SOCKETS: "1"} if counts_alone else {}
        served = channels.variables(self._experiment, spec.host, self._run_id)
        accelerated = acceleration.variables(spec, self._hosts[spec.host], self._run_id)
        return stamps | served | spec.env | accelerated

    @property
    def failed(self) -> dict[str, dict[str, str]]:
        """How each component failed that the run went on without, and in which phase."""
        return self._stages.failed

    @property
    def starts(self) -> dict[str, dict[str, Any]]:
        """When components began each phase that had a common start."""
        return self._stages.starts

    def _state(self, spec: Component) -> State:
        return self._components.states[spec.name]
