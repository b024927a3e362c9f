"""Starts and phases of a run: who begins when, and what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from loopscope.control.awaited import Awaited
from loopscope.control.components import Components, Limit, State
from loopscope.control.failure import PhaseTimedOut, RunFailed
from loopscope.control.progress import Progress
from loopscope.control.starts import start_of
from loopscope.experiment import (
    Component,
    ExitReady,
    Experiment,
    LineReady,
    Phase,
    PhasesReady,
    PortReady,
)
from loopscope.provider import AgentError, AgentLost, Host
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.addresses import DataAddresses, Family
from loopscope.provider.patience import within
from loopscope.strict_json import to_json

# Components that come before the first phase have this long to become ready.
START_TIMEOUT_S = 10.0
START = "start-up"
# Starts that a host's agent is asked for at the same time.
STARTS_AT_ONCE = 8
# Starts that all agents are asked for at the same time. More take a machine that has many hosts so
# long together that the first are not answered in time.
STARTS_IN_ALL = 64
# A host whose time is not known has so long to know it again, before a start in common.
CLOCK_PATIENCE_S = 5.0
CLOCK_LOOK_S = 0.1
# So much is begun before the event loop takes its next turn: the first requests leave, and are
# answered, while the others are still being made.
BEGUN_AT_ONCE = 16


class Stages:
    """Starts components and leads them through phases.

    What begins together is asked for at the same time. A component that comes after others waits
    until these have done their part in the phase.
    """

    def __init__(
        self,
        experiment: Experiment,
        hosts: Mapping[str, Host],
        addresses: DataAddresses,
        components: Components,
        streams: Callable[[Component], str],
        environment: Callable[[Component], dict[str, str]],
        progress: Progress,
    ) -> None:
        self._experiment = experiment
        self._hosts = hosts
        self._addresses = addresses
        self._components = components
        self._streams = streams
        self._environment = environment
        self._progress = progress
        self._starts = {host: asyncio.Semaphore(STARTS_AT_ONCE) for host in hosts}
        self._starts_in_all = asyncio.Semaphore(STARTS_IN_ALL)
        self.phase_name = START
        """The phase that began last."""
        self._cannot_start = False
        self._together: dict[str, list[State]] = {}
        self._at_ns: dict[str, int] = {}
        self.failed: dict[str, dict[str, str]] = {}
        """How each component failed that the run goes on without, and in which phase."""

    async def start(self, components: Sequence[Component]) -> None:
        """Starts components before the first phase; returns when all are ready."""
        waiting = self._awaited(components, None)

        async def late(spec: Component, limit: Limit) -> None:
            await self._wait_for_those_before(spec, None, limit)
            await self._start_one(spec, START)

        limit = Limit(START_TIMEOUT_S)
        now = [c for c in components if not c.after.get("")]
        afterwards = [c for c in components if c.after.get("")]
        await _together(self._start_all(now, START), *(late(c, limit) for c in afterwards))
        await self._barrier(START, Limit(START_TIMEOUT_S), waiting)

    async def phase(self, phase: Phase) -> None:
        """Leads the components through a phase."""
        self.phase_name = phase.name
        limit = Limit(phase.timeout_ns / 1e9)
        every = list(self._components.specs)
        waiting = self._awaited(every, phase)
        begin = self._begin(every, phase, limit)
        try:
            await within(limit.left_s, begin)
        except (asyncio.TimeoutError, PhaseTimedOut):
            if not self._give_up(phase.name, limit, waiting.all()):
                raise self._components.timed_out(phase.name, limit, waiting.all()) from None
        await self._barrier(phase.name, limit, waiting)

    async def _begin(self, every: Sequence[Component], phase: Phase, limit: Limit) -> None:
        """Has every component that takes part start, and enter the phase."""

        def waits(spec: Component) -> bool:
            # Nobody waits for one that may fail.
            may_fail = spec.allow_failure and spec.start == phase.name
            return bool(spec.after.get(phase.name)) or may_fail

        late = [c for c in every if waits(c)]
        now = [c for c in every if not waits(c)]
        common = self._peers()
        together: list[Component] = []

        async def now_ones() -> None:
            starting = [c for c in now if c.start == phase.name]
            await self._start_all(starting, phase.name)
            await self._greeted(starting, phase, limit)
            together.extend(c for c in now if self._takes_part(c, phase))
            start_ns = await self._start_ns(phase, {c.host for c in together})
            await _together(*(self._enter(c, phase, common[c.host], start_ns) for c in together))

        async def late_one(spec: Component) -> None:
            await self._wait_for_those_before(spec, phase, limit)
            if spec.start == phase.name:
                await self._start_one(spec, phase.name)
                await self._greeted([spec], phase, limit)
            if self._takes_part(spec, phase):
                # With what the others have published in this phase.
                await self._enter(spec, phase, self._peers()[spec.host])

        await _together(now_ones(), *map(late_one, late))
        if phase.common_start_ns is not None:
            self._together[phase.name] = [self._state(c) for c in together]

    async def _start_ns(self, phase: Phase, hosts: Iterable[str]) -> int | None:
        """When a phase begins for all, on the global clock; None: for each as it is told.

        The components that begin together are on ``hosts``, whose time may be unknown for a moment.
        """
        if phase.common_start_ns is None:
            return None
        first = self._experiment.hosts[0]
        until = asyncio.get_running_loop().time() + CLOCK_PATIENCE_S
        while True:
            clocks = await self._clocks(sorted({*hosts} - {first}))
            # Last, because its time passes.
            clocks |= await self._clocks([first])
            unknown = [name for name, clock in clocks.items() if not clock.HasField("now")]
            if not unknown:
                break
            if asyncio.get_running_loop().time() >= until:
                what = f"the time of host {unknown[0]} is not known"
                raise RunFailed(f"phase {phase.name}: {what} for {CLOCK_PATIENCE_S:g} s")
            await asyncio.sleep(CLOCK_LOOK_S)
        self._at_ns[phase.name] = at = clocks[first].now.global_ns + phase.common_start_ns
        return int(at)

    async def _clocks(self, names: Iterable[str]) -> dict[str, pb.ReadClockReply]:
        """What hosts say of their time, by their names."""
        clocks: dict[str, pb.ReadClockReply] = {}

        async def read(name: str) -> None:
            clocks[name] = await self._hosts[name].agent.read_clock()

        await _together(*map(read, names))
        return clocks

    @property
    def starts(self) -> dict[str, dict[str, Any]]:
        """When components began each phase that had a common start (schema/run-directory.md)."""
        return {
            phase: start_of(phase, self._at_ns[phase], states)
            for phase, states in self._together.items()
        }

    async def _greeted(self, components: Sequence[Component], phase: Phase, limit: Limit) -> None:
        """Waits until programs have said which phases they know."""
        speakers = [c for c in components if isinstance(c.ready, PhasesReady)]

        def is_silent(name: str) -> bool:
            state = self._state(name)
            return not (state.ready or state.is_out)

        if speakers:
            silent = Awaited((c.name for c in speakers), is_silent)
            await self._components.barrier(phase.name, limit, silent)

    async def _wait_for_those_before(
        self, spec: Component, phase: Phase | None, limit: Limit
    ) -> None:
        name = START if phase is None else phase.name
        after = spec.after.get("" if phase is None else name, ())
        before = [self._state(each).spec for each in after]
        await self._components.barrier(name, limit, self._awaited(before, phase))

    def _awaited(self, components: Iterable[Component], phase: Phase | None) -> Awaited:
        """Those that have not done their part in a phase, None: before the first."""
        return Awaited(
            (c.name for c in components),
            lambda name: not self._has_done_its_part(self._state(name).spec, phase),
        )

    def _has_done_its_part(self, spec: Component, phase: Phase | None) -> bool:
        """Whether nothing of a component is awaited in a phase, None: before the first."""
        if self._state(spec).is_out:
            return True
        if spec.start == (None if phase is None else phase.name) and not self._is_ready(spec):
            return False
        if phase is None or not self._takes_part(spec, phase):
            return True
        return phase.name in self._state(spec).done

    async def _barrier(self, phase: str, limit: Limit, waiting: Awaited) -> None:
        try:
            await self._components.barrier(phase, limit, waiting)
        except PhaseTimedOut as failure:
            if not self._give_up(phase, limit, failure.waiting):
                raise

    def _give_up(self, phase: str, limit: Limit, waiting: Sequence[str]) -> bool:
        """Goes on without components that are not done in time, where all of them may fail."""
        states = [self._components.states[name] for name in waiting]
        if not all(state.spec.allow_failure for state in states):
            return False
        for state in states:
            what = f"{phase} did not end within {limit.seconds:g} s"
            self.note_failure(state, f"it waits for {state.waits_for(phase)}, and {what}")
        return True

    def note_failure(self, state: State, what: str | None = None) -> None:
        """Takes down the failure of a component that may fail, where it has failed.

        ``what``: how, where only the controller knows.
        """
        spec = state.spec
        if not spec.allow_failure or spec.name in self.failed:
            return
        state.error = state.error or what
        # One that has ended can take no part any more.
        found = state.failure(pending=self._is_awaited(spec))
        if found is not None:
            self.failed[spec.name] = {"phase": self.phase_name, "what": found}
            self._progress.note(
                f"{spec.name} on {spec.host} failed in phase {self.phase_name}: {found}; "
                "the run goes on without it (allow_failure)"
            )

    def _is_awaited(self, spec: Component) -> bool:
        state = self._state(spec)
        entered = bool(state.entered) and state.entered not in state.done
        return entered or (state.started and not state.ready)

    async def _start_all(self, components: Sequence[Component], phase: str) -> None:
        """Starts components at the same time, each host in the file's order."""
        outcomes = await asyncio.gather(
            *(self._start_one(spec, phase) for spec in components), return_exceptions=True
        )
        # All that were asked for have been answered, so that none starts after the end.
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _start_one(self, spec: Component, phase: str) -> None:
        state = self._state(spec)
        try:
            async with self._starts[spec.host], self._starts_in_all:
                # What fails ends the run, so nobody else need start.
                if self._cannot_start:
                    return
                await self._hosts[spec.host].agent.start(
                    spec.name,
                    spec.argv,
                    self._environment(spec),
                    spec.config,
                    _readiness(spec),
                    self._streams(spec),
                    inherit=spec.environment,
                    user=spec.user,
                    output_limit=spec.output_bytes,
                )
        except AgentError as error:
            if isinstance(error, AgentLost):
                self._cannot_start = True
                raise
            if spec.allow_failure:
                self.note_failure(state, error.what)
                return
            self._cannot_start = True
            raise self._components.cannot_start(spec, phase, error.what) from None
        state.started = True
        self._progress.component(spec.host, spec.name, state.status)

    async def _enter(
        self, spec: Component, phase: Phase, peers_json: str, start_ns: int | None = None
    ) -> None:
        """Tells a component to begin a phase, at an instant of the global clock or at once."""
        state = self._state(spec)
        state.entered = phase.name
        self._progress.component(spec.host, spec.name, state.status)
        agent = self._hosts[spec.host].agent
        try:
            await agent.enter_phase(spec.name, phase.name, phase.measured, peers_json, start_ns)
        except AgentError as error:
            if spec.allow_failure and not isinstance(error, AgentLost):
                self.note_failure(state, error.what)
                return
            # One that has ended is refused too, and how it ended says more.
            await self._components.raise_failure(phase.name)
            raise

    def _peers(self) -> dict[str, str]:
        """The peers as they are now, in JSON, by the host whose programs get them."""
        views = {host: self._addresses.view(host) for host in self._hosts}

        def seen(view: frozenset[Family]) -> str:
            peers = self._components.peers(lambda host: self._addresses.seen(host, view))
            # As an agent keeps it: it need not read the same text again for its other components.
            return to_json(peers, sort_keys=True, separators=(",", ":"))

        made = {view: seen(view) for view in set(views.values())}
        return {host: made[view] for host, view in views.items()}

    def _takes_part(self, spec: Component, phase: Phase) -> bool:
        state = self._state(spec)
        if not state.started or state.phases is None or state.is_out:
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

    def _is_ready(self, spec: Component) -> bool:
        return self._state(spec).ready

    def _state(self, spec: Component | str) -> State:
        return self._components.states[spec if isinstance(spec, str) else spec.name]


async def _together(*work: Coroutine[Any, Any, None]) -> None:
    """Does all at the same time. The first that fails ends the others, and its error is raised."""
    waiting = list(reversed(work))
    tasks: list[asyncio.Future[None]] = []
    try:
        while waiting:
            tasks.append(asyncio.ensure_future(waiting.pop()))
            if len(tasks) % BEGUN_AT_ONCE == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
    finally:
        for each in waiting:
            each.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
