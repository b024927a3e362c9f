"""One execution of an experiment on a testbed: clocks, programs, phases, and what they left."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from loopscope import __version__
from loopscope.control import router
from loopscope.control.components import Components, State
from loopscope.control.failure import RunFailed
from loopscope.control.progress import Progress
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
from loopscope.testbed import AgentError, Host, LocalTestbed, TestbedError
from loopscope.testbed._proto import agent_pb2 as pb

# Components that come before the first phase have this long to become ready.
START_TIMEOUT_S = 10.0
START = "start-up"
GRACE_S = 2.0
ANY_ADDRESS = "0.0.0.0"
# Between looks at the clocks that a run waits for.
GATE_S = 0.05


def testbed(experiment: Experiment, run_id: str) -> LocalTestbed:
    """The experiment's testbed, not yet made."""
    return LocalTestbed(
        run_id,
        experiment.hosts,
        data_network=experiment.network.data,
        clock_network=experiment.network.clock,
        data_mtu=experiment.network.mtu,
        synthetic_seed=experiment.clocks.seed,
        router=router.is_needed(experiment),
    )


async def execute(
    experiment: Experiment, run_id: str, directory: Path, progress: Progress
) -> dict[str, float]:
    """Runs the experiment once and leaves its files in ``directory``; each phase's seconds.

    Whatever happens, components are ended, what they left is fetched, and the testbed is removed.
    Raises RunFailed with the first cause.
    """
    progress.stage(f"making {len(experiment.hosts)} hosts")
    bed = testbed(experiment, run_id)
    try:
        async with bed:
            repeat = Repeat(experiment, bed, progress)
            try:
                return await repeat.run()
            finally:
                # Also when interrupted: what was measured is kept.
                await asyncio.shield(repeat.collect(directory))
    except (AgentError, TestbedError) as error:
        raise RunFailed(str(error)) from None
    finally:
        for problem in bed.problems:
            progress.note(problem)


class Repeat:
    """A run in progress on a testbed that exists."""

    def __init__(self, experiment: Experiment, bed: LocalTestbed, progress: Progress) -> None:
        self._experiment = experiment
        self._hosts = dict(bed.hosts)
        self._router = bed.router
        self._links: list[Component] = []
        if bed.router is not None:
            self._links = [router.links(experiment, bed.hosts, bed.router)]
            self._hosts[bed.router.name] = bed.router
        self._progress = progress
        self._components = Components([*self._links, *experiment.components])
        self._watchers: list[asyncio.Task[None]] = []
        self._clocks_running: list[Host] = []
        self._clocks_began: float | None = None
        self._followers = list(bed.hosts.values())[1:]
        self._probing_peers: list[Host] = []
        self._probes: dict[str, Counter[str]] = defaultdict(Counter)
        self._collecting = False
        self._noted: set[str] = set()

    async def run(self) -> dict[str, float]:
        """Clocks, then the phases one after the other; each phase's seconds."""
        for host in self._hosts.values():
            self._watchers.append(asyncio.create_task(self._watch(host)))
        await asyncio.gather(*(self._greet(host) for host in self._hosts.values()))
        # The clocks are there when something can happen, unless their probes need the links.
        if self._emulates_clock:
            await self._start_links()
            await self._start_clocks()
        else:
            await self._start_clocks()
            await self._start_links()
        await self._start_mesh()
        seconds: dict[str, float] = {}
        measured = {phase.name for phase in self._experiment.phases if phase.measured}
        before = [c for c in self._experiment.components if c.start is None]
        self._progress.stage("starting components")
        await self._start(before, START)
        await self._components.barrier(START, START_TIMEOUT_S, lambda: self._unready(before))
        for phase in self._experiment.phases:
            if phase.measured and not any(name in seconds for name in measured):
                await self._gate()
            began = time.monotonic()
            self._progress.phase(phase.name, phase.timeout_ns / 1e9, phase.measured)
            await self._phase(phase)
            seconds[phase.name] = time.monotonic() - began
        return seconds

    async def collect(self, directory: Path) -> None:
        """Ends everything and fetches the hosts' files."""
        self._collecting = True
        self._progress.stage("ending components")
        # Links last: what others say as they end goes through them, and so may the last probes.
        routers = [self._router] if self._router is not None else []
        others = [host for host in self._hosts.values() if host is not self._router]
        await self._each(self._end, others)
        if not self._emulates_clock:
            await self._each(self._end, routers)
        self._progress.stage("collecting")
        # Who answers others' last bursts stops after them: followers, then the reference.
        await self._each(self._stop_peers, self._probing_peers)
        await self._each(self._stop_clock, self._clocks_running[1:])
        await self._each(self._stop_clock, self._clocks_running[:1])
        self._write_cost(directory / "clock.json")
        if self._emulates_clock:
            await self._each(self._end, routers)
        await self._each(self._finish_trace)
        await self._each(lambda host: host.agent.fetch(directory / "hosts" / host.name))
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

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
        try:
            async for event in host.agent.watch():
                if event.WhichOneof("what") == "output":
                    output = event.output
                    self._progress.output(host.name, event.component, output.line, output.stderr)
                if event.WhichOneof("what") == "triggered":
                    await self._pass_on(host, event.triggered)
                elif event.WhichOneof("what") == "departures":
                    await self._tell_where_it_ends(event.departures)
                else:
                    await self._components.take(event)
        except AgentError as error:
            if not self._collecting:
                await self._components.lose_agent(str(error))

    async def _pass_on(self, host: Host, triggered: pb.Triggered) -> None:
        """Triggers the same flight recorder on the other hosts, and tells."""
        others = [each for each in self._hosts.values() if each is not host]
        await self._each(lambda each: each.agent.trigger(triggered.stream, host.name), others)
        hit = f": {triggered.entity} {triggered.id}" if triggered.entity else ""
        late = " was late" if triggered.cause == "path" else ""
        self._progress.note(
            f"flight recorder {triggered.stream} triggered on {host.name}{hit}{late}"
        )

    async def _tell_where_it_ends(self, departures: pb.Departures) -> None:
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

    async def _start_links(self) -> None:
        if not self._links:
            return
        self._progress.stage("starting the links")
        await self._start(self._links, START)
        await self._components.barrier(START, START_TIMEOUT_S, lambda: self._unready(self._links))

    @property
    def _emulates_clock(self) -> bool:
        """Whether the probes go through the router, which has to be there first and last."""
        return self._on_data and self._router is not None

    @property
    def _on_data(self) -> bool:
        return self._experiment.clock.network == "data"

    async def _start_clocks(self) -> None:
        reference, *followers = self._hosts.values()
        self._progress.stage("synchronising clocks")
        self._clocks_began = time.monotonic()
        # The router itself has no data link: it is answered on the other network.
        address = ANY_ADDRESS if self._on_data else reference.clock_address
        # Of this run alone: who else is on the network cannot pass for one of its hosts.
        key = secrets.token_bytes(32)
        steps = {
            name: (step.at_ns, step.by_ns)
            for name, step in self._experiment.clocks.realtime.items()
        }
        port = await reference.agent.start_clock_reference(
            address, key, realtime_step=steps.get(reference.name)
        )
        self._clocks_running.append(reference)
        exchange = self._experiment.clock

        async def follow(host: Host) -> None:
            its = reference.clock_address
            if self._on_data and host is not self._router:
                its = reference.data_address
            await host.agent.start_clock_follower(
                self._probed_at(host),
                f"{its}:{port}",
                key,
                rate_hz=exchange.rate_hz,
                burst=exchange.burst,
                wander_ppm=exchange.wander_ppm,
                realtime_step=steps.get(host.name),
            )
            self._clocks_running.append(host)

        await asyncio.gather(*(follow(host) for host in followers))

    def _probed_at(self, host: Host) -> str:
        on_data = self._on_data and host is not self._router
        return host.data_address if on_data else host.clock_address

    async def _start_mesh(self) -> None:
        """Has each follower probe those before it too. What of that cannot begin is noted: no time
        rests on it."""
        if not self._experiment.clock.mesh or len(self._followers) < 2:
            return
        answering: dict[str, str] = {}

        async def answer(host: Host) -> None:
            answering[host.name] = f"{self._probed_at(host)}:{await host.agent.answer_peers()}"

        async def probe(host: Host) -> None:
            before = takewhile(lambda other: other is not host, self._followers)
            peers = {each.name: answering[each.name] for each in before if each.name in answering}
            if peers:
                await host.agent.probe_peers(peers)
                self._probing_peers.append(host)

        # Nobody is after the last one.
        await self._each(answer, self._followers[:-1])
        await self._each(probe, self._followers)

    async def _gate(self) -> None:
        """Waits until the time of every host is known as well as the file asks for."""
        clock = self._experiment.clock
        if clock.within_ns is None:
            return
        end = time.monotonic() + clock.patience_ns / 1e9
        waiting: list[str] = []
        while wide := await self._wider_than(clock.within_ns):
            if time.monotonic() >= end:
                hosts = "; ".join(f"{host} {reading}" for host, reading in wide.items())
                raise RunFailed(
                    f"the clocks are not within {_time(clock.within_ns)} after "
                    f"{_time(clock.patience_ns)}: {hosts}. Raise clock.within or "
                    "clock.patience, or take load off the hosts and the network of the probes"
                )
            if list(wide) != waiting:
                waiting = list(wide)
                self._progress.stage(
                    f"waiting for clocks within {_time(clock.within_ns)}: {', '.join(waiting)}"
                )
            await asyncio.sleep(GATE_S)

    async def _wider_than(self, within_ns: int) -> dict[str, str]:
        """Each host whose time is not known so well, with its width and the reason."""
        hosts = list(self._hosts.values())
        readings = await asyncio.gather(*(host.agent.read_clock() for host in hosts))
        return {
            host.name: _reading(reading)
            for host, reading in zip(hosts, readings, strict=True)
            if not reading.HasField("half_width_ns") or reading.half_width_ns > within_ns
        }

    async def _stop_peers(self, host: Host) -> None:
        for peer in await host.agent.stop_peers():
            if peer.error:
                self._progress.note(f"host {host.name} could not probe {peer.name}: {peer.error}")
            elif not peer.answered:
                self._progress.note(f"host {host.name}: {peer.name} answered none of its probes")
            else:
                self._note_lost(host, peer, f"probes of {peer.name}")
            if peer.contradictions:
                self._progress.note(
                    f"host {host.name}: its time and {peer.name}'s contradict each other in "
                    f"{peer.contradictions} of {peer.answered} probes"
                )
            self._count_traffic(host, peer)

    async def _stop_clock(self, host: Host) -> None:
        reply = await host.agent.stop_clock()
        self._note_lost(host, reply, "probes")
        self._count_traffic(host, reply)

    def _note_lost(self, host: Host, reply: pb.StopClockReply | pb.PeerEnd, what: str) -> None:
        # Who is not told the session because others ask at the same time asks again.
        lost = {cause: n for cause, n in reply.lost.items() if cause != "unknown-session"}
        if lost:
            causes = ", ".join(f"{cause} {n}" for cause, n in sorted(lost.items()))
            total = sum(lost.values())
            self._progress.note(f"host {host.name}: {total} of {reply.sent} {what} lost ({causes})")

    def _count_traffic(self, host: Host, reply: pb.StopClockReply | pb.PeerEnd) -> None:
        self._probes[host.name].update(packets=reply.packets, bytes=reply.bytes)

    def _write_cost(self, file: Path) -> None:
        """What the probes have put on their network."""
        if self._clocks_began is None:
            return
        cost = {
            "version": 1,
            "network": self._experiment.clock.network,
            "seconds": time.monotonic() - self._clocks_began,
            "hosts": dict(sorted(self._probes.items())),
        }
        file.write_text(json.dumps(cost, indent=2) + "\n")

    async def _finish_trace(self, host: Host) -> None:
        for problem in (await host.agent.finish_trace()).problems:
            self._progress.note(f"host {host.name}: {problem}")

    async def _start(self, components: Sequence[Component], phase: str) -> None:
        for spec in components:
            agent = self._hosts[spec.host].agent
            readiness = _readiness(spec)
            streams = (
                router.streams(self._experiment)
                if spec.name == router.LINKS
                else streams_of_host(self._experiment, spec.host)
            )
            try:
                await agent.start(
                    spec.name,
                    spec.argv,
                    spec.env,
                    spec.config,
                    readiness,
                    streams,
                )
            except AgentError as error:
                raise self._components.cannot_start(spec, phase, error.what) from None
            self._components.states[spec.name].started = True

    def _unready(self, components: Sequence[Component]) -> list[str]:
        return [c.name for c in components if not self._state(c).ready]

    def _state(self, spec: Component) -> State:
        return self._components.states[spec.name]

    async def _phase(self, phase: Phase) -> None:
        timeout_s = phase.timeout_ns / 1e9
        beginning = [c for c in self._experiment.components if c.start == phase.name]
        await self._start(beginning, phase.name)
        entered = False
        asked: list[Component] = []

        def waiting() -> list[str]:
            pending = self._unready(beginning)
            if entered:
                pending += [c.name for c in asked if phase.name not in self._state(c).done]
            return pending

        # A program that starts in this phase says which phases it knows before it can be asked.
        speakers = [c for c in beginning if isinstance(c.ready, PhasesReady)]
        if speakers:
            await self._components.barrier(phase.name, timeout_s, lambda: self._unready(speakers))
        every = [*self._links, *self._experiment.components]
        asked = [c for c in every if self._takes_part(c, phase)]
        peers = self._components.peers(lambda host: self._hosts[host].data_address)
        for spec in asked:
            await self._hosts[spec.host].agent.enter_phase(
                spec.name, phase.name, phase.measured, peers
            )
        entered = True
        await self._components.barrier(phase.name, timeout_s, waiting)

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


def _reading(reading: pb.ReadClockReply) -> str:
    if not reading.HasField("half_width_ns"):
        return f"has none: {reading.why}"
    return f"is within {_time(reading.half_width_ns)}: {reading.why}"


def _time(ns: int) -> str:
    return quantity.format(ns, quantity.DURATION)


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
