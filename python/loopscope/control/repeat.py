"""A run on hosts that exist: clocks, programs, phases, and what they left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from loopscope import __version__
from loopscope.control import router
from loopscope.control.clocks import HostClocks
from loopscope.control.components import Components, Limit, State, instant_of
from loopscope.control.failure import ComponentsFailed, RunFailed, consequences, printable
from loopscope.control.instant import PrintedLine
from loopscope.control.progress import Progress
from loopscope.control.unwritten import write_unwritten
from loopscope.experiment import (
    Component,
    ExitReady,
    Experiment,
    LineReady,
    Phase,
    PhasesReady,
    PortReady,
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
from loopscope.provider.patience import within
from loopscope.strict_json import to_json

# Components that come before the first phase have this long to become ready.
START_TIMEOUT_S = 10.0
START = "start-up"
DRAIN = "drain"
GRACE_S = 2.0
# Room on the run's disk for what is written when a repeat ends: the run's description, and accounts
# that hosts had no room for.
RESERVE = ".reserve"


class Repeat:
    """A run in progress on a testbed that exists."""

    def __init__(self, experiment: Experiment, bed: Testbed, progress: Progress) -> None:
        self._experiment = experiment
        self._bed = bed
        self._hosts = dict(bed.hosts)
        self._router: Host | None = None
        self._links: list[Component] = []
        if bed.router is not None:
            self._links = [router.links(experiment, bed.router)]
            self._router = bed.router.host
            self._hosts[self._router.name] = self._router
        elif bed.links_at_senders:
            self._links = router.links_at_senders(experiment, bed.hosts)
        self._progress = progress
        self._components = Components([*self._links, *experiment.components])
        self._watchers: list[asyncio.Task[None]] = []
        self._clocks = HostClocks(
            experiment.clock,
            experiment.clocks,
            self._hosts,
            progress,
            self._each,
            links_at_senders=bed.links_at_senders,
        )
        self._collecting = False
        self.left: dict[str, str] = {}
        """The phase in which a component ended that was to go on."""
        self._finished: dict[str, pb.FinishTraceReply] = {}
        """Hosts whose files are closed in good order, and what they count."""
        self._noted: set[str] = set()

    async def run(self) -> dict[str, float]:
        """Clocks, then the phases one after the other; each phase's seconds."""
        for host in self._hosts.values():
            self._watchers.append(asyncio.create_task(self._watch(host)))
        await asyncio.gather(*(self._greet(host) for host in self._hosts.values()))
        # The clocks are there when something can happen, unless their probes need the links.
        if self._emulates_clock:
            await self._start_links()
            await self._clocks.start()
        else:
            await self._clocks.start()
            await self._start_links()
        await self._clocks.start_mesh()
        seconds: dict[str, float] = {}
        measured = {phase.name for phase in self._experiment.phases if phase.measured}
        before = [c for c in self._experiment.components if c.start is None]
        for spec in self._experiment.components:
            self._progress.component(spec.host, spec.name, self._state(spec).status)
        self._progress.stage("starting components")
        await self._start(before, START)
        limit = Limit(START_TIMEOUT_S)
        await self._components.barrier(START, limit, lambda: self._unready(before))
        for phase in self._experiment.phases:
            if phase.measured and not any(name in seconds for name in measured):
                await self._clocks.gate()
            began = time.monotonic()
            self._progress.phase(phase.name, phase.timeout_ns / 1e9, phase.measured)
            await self._phase(phase)
            seconds[phase.name] = time.monotonic() - began
            self._note_left(phase.name)
        await self._drain()
        return seconds

    def _note_left(self, phase: str) -> None:
        """Tells of components that ended by themselves, with 0, though nobody waits for that."""
        for spec in self._experiment.components:
            state = self._state(spec)
            if (
                state.exited
                and not isinstance(spec.ready, ExitReady)
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
            await self._components.raise_failure(DRAIN, lambda: [])

    async def collect(self, directory: Path) -> None:
        """Ends everything and has the hosts close their files."""
        self._collecting = True
        self._progress.stage("ending components")
        # Links last: what others say as they end goes through them, and so may the last probes.
        emulating = {spec.host for spec in self._links}
        last = [host for host in self._hosts.values() if host.name in emulating]
        await self._each(self._end_programs)
        if not self._emulates_clock:
            await self._each(self._end, last)
        self._progress.stage("collecting")
        cost = await self._clocks.stop()
        if self._emulates_clock:
            await self._each(self._end, last)
        await self._each(self._finish_trace)
        await self._bed.fetch()
        (directory / RESERVE).unlink(missing_ok=True)
        for line in write_unwritten(directory / "hosts", self._finished):
            self._progress.note(line)
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
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

    def consequences(self, failure: ComponentsFailed) -> list[str]:
        """Text about what other components printed soon after the first failure."""
        return consequences(failure.failures[0], self._components.printed())

    async def _each(
        self, ask: Callable[[Host], Awaitable[object]], hosts: Iterable[Host] | None = None
    ) -> None:
        """Asks every host; one that fails is noted and does not keep the others from it."""
        asked = list(self._hosts.values() if hosts is None else hosts)
        for result in await asyncio.gather(*(ask(h) for h in asked), return_exceptions=True):
            if isinstance(result, AgentError):
                # A host whose agent is gone fails every request alike.
                if str(result) not in self._noted:
                    self._noted.add(str(result))
                    self._progress.note(str(result))
            elif isinstance(result, BaseException):
                raise result

    async def _greet(self, host: Host) -> None:
        version = await host.agent.hello()
        if version != __version__:
            raise RunFailed(
                f"host {host.name}: its agent is loopscope {version}, this is {__version__}; "
                "build and install both sides with: make build"
            )

    async def _watch(self, host: Host) -> None:
        """Takes what the host's agent reports. Whatever ends that early ends the run."""
        try:
            async for event in host.agent.watch():
                await self._take(host, event)
            why = host.agent.lost().__str__
        except AgentError as error:
            why = error.__str__
        except Exception as error:
            unusable = (
                f"host {host.name}: what its agent reports cannot be used: "
                f"{type(error).__name__}: {error}; please report this"
            )
            why = unusable.__str__
            if self._collecting:
                self._progress.note(unusable)
        if not self._collecting:
            await self._components.lose_agent(why)

    async def _take(self, host: Host, event: pb.Event) -> None:
        what = event.WhichOneof("what")
        if what == "triggered":
            await self._pass_on(host, event.triggered)
            return
        if what == "departures":
            await self._forward_departures(event.departures)
            return
        if what == "output":
            line = PrintedLine(instant_of(host.name, event), printable(event.output.line))
            self._progress.output(host.name, event.component, line, event.output.stderr)
        await self._components.take(event)
        state = self._components.states[event.component]
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
        await self._each(lambda each: each.agent.trigger(triggered.stream, host.name), others)
        hit = f": {triggered.entity} {triggered.id}" if triggered.entity else ""
        late = " was late" if triggered.cause == "path" else ""
        self._progress.note(
            f"flight recorder {triggered.stream} triggered on {host.name}{hit}{late}"
        )

    async def _forward_departures(self, departures: pb.Departures) -> None:
        """Tells the host where a path ends of messages that are on their way to it."""
        (path,) = (each for each in self._experiment.paths if each.name == departures.path)
        end = self._hosts[path.events[-1].host]
        await self._each(lambda host: host.agent.departed(departures), [end])

    async def trigger(self, stream: str = "") -> bool:
        """Triggers a flight recorder, ``""`` all, on every host; whether any program has one."""
        asked = (host.agent.trigger(stream) for host in self._hosts.values())
        return any(await asyncio.gather(*asked))

    async def _end(self, host: Host) -> None:
        await host.agent.stop(grace_s=GRACE_S)

    async def _end_programs(self, host: Host) -> None:
        """Ends what the experiment has started on a host, all of it where no links are emulated."""
        if all(spec.host != host.name for spec in self._links):
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
        await self._start(self._links, START)
        limit = Limit(START_TIMEOUT_S)
        await self._components.barrier(START, limit, lambda: self._unready(self._links))

    @property
    def _emulates_clock(self) -> bool:
        """Whether the probes go through the links, which have to be there first and last."""
        return self._experiment.clock.network == DATA and bool(self._links)

    async def _finish_trace(self, host: Host) -> None:
        self._finished[host.name] = reply = await host.agent.finish_trace()
        for problem in reply.problems:
            self._progress.note(f"host {host.name}: {problem}")

    async def _start(self, components: Sequence[Component], phase: str) -> None:
        """Starts components, on each host in the file's order, on all hosts at the same time."""
        failed: dict[str, AgentError] = {}

        async def start_on(host: str) -> None:
            for spec in components:
                # What fails ends the run, so nobody else need start.
                if spec.host == host and not failed:
                    try:
                        await self._start_one(spec)
                    except AgentError as error:
                        failed[spec.name] = error

        await asyncio.gather(*(start_on(host) for host in {spec.host for spec in components}))
        for spec in components:
            if spec.name in failed:
                if isinstance(failed[spec.name], AgentLost):
                    raise failed[spec.name]
                raise self._components.cannot_start(spec, phase, failed[spec.name].what)

    async def _start_one(self, spec: Component) -> None:
        streams = (
            router.streams(self._experiment)
            if router.emulates(spec.name)
            else streams_of_host(self._experiment, spec.host)
        )
        await self._hosts[spec.host].agent.start(
            spec.name,
            spec.argv,
            spec.env,
            spec.config,
            _readiness(spec),
            streams,
            inherit=spec.environment,
            user=spec.user,
            output_limit=spec.output_bytes,
        )
        self._state(spec).started = True
        self._progress.component(spec.host, spec.name, self._state(spec).status)

    def _unready(self, components: Sequence[Component]) -> list[str]:
        return [c.name for c in components if not self._state(c).ready]

    def _state(self, spec: Component) -> State:
        return self._components.states[spec.name]

    async def _phase(self, phase: Phase) -> None:
        limit = Limit(phase.timeout_ns / 1e9)
        beginning = [c for c in self._experiment.components if c.start == phase.name]
        asked: list[Component] = []

        def waiting() -> list[str]:
            pending = self._unready(beginning)
            return pending + [c.name for c in asked if phase.name not in self._state(c).done]

        await self._in_time(phase.name, limit, self._start(beginning, phase.name), waiting)
        # A program that starts in this phase says which phases it knows before it can be asked.
        speakers = [c for c in beginning if isinstance(c.ready, PhasesReady)]
        if speakers:
            await self._components.barrier(phase.name, limit, lambda: self._unready(speakers))
        every = [*self._links, *self._experiment.components]
        asked += [c for c in every if self._takes_part(c, phase)]
        await self._in_time(phase.name, limit, self._enter(asked, phase), waiting)
        await self._components.barrier(phase.name, limit, waiting)

    async def _in_time(
        self,
        phase: str,
        limit: Limit,
        work: Coroutine[Any, Any, None],
        waiting: Callable[[], Sequence[str]],
    ) -> None:
        """Does a phase's ``work`` within its time. Raises PhaseTimedOut."""
        try:
            await within(limit.left_s, work)
        except asyncio.TimeoutError:
            raise self._components.timed_out(phase, limit, waiting()) from None

    async def _enter(self, components: Sequence[Component], phase: Phase) -> None:
        """Tells components to begin a phase, all at the same time."""
        peers = self._components.peers(lambda host: self._hosts[host].addresses[DATA])
        peers_json = to_json(peers)

        async def enter(spec: Component) -> None:
            agent = self._hosts[spec.host].agent
            self._state(spec).entered = phase.name
            self._progress.component(spec.host, spec.name, self._state(spec).status)
            await agent.enter_phase(spec.name, phase.name, phase.measured, peers_json)

        entered = await asyncio.gather(*map(enter, components), return_exceptions=True)
        for outcome in entered:
            if isinstance(outcome, BaseException):
                # One that has ended is refused too, and how it ended says more.
                await self._components.raise_failure(phase.name, lambda: [])
                raise outcome

    def _takes_part(self, spec: Component, phase: Phase) -> bool:
        state = self._state(spec)
        if not state.started or state.phases is None:
            return False
        if spec.phases is not None:
            missing = set(spec.phases) - set(state.phases)
            if missing:
                raise RunFailed(
                    f"{spec.name} on {spec.host} is to take part in {', '.join(sorted(missing))}, "
                    f"but its program knows only {', '.join(state.phases) or 'no phase'}"
                )
            return phase.name in spec.phases
        return phase.name in state.phases


def _readiness(spec: Component) -> pb.Readiness:
    ready = spec.ready
    if isinstance(ready, PhasesReady):
        return pb.Readiness(phases=True)
    if isinstance(ready, LineReady):
        return pb.Readiness(line=ready.text)
    if isinstance(ready, PortReady):
        return pb.Readiness(port=ready.port)
    if isinstance(ready, ExitReady):
        return pb.Readiness(exit=ready.code)
    return pb.Readiness(started=True)
