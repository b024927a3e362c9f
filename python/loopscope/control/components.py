"""States of an experiment's components while it runs, and the barrier over them."""

from __future__ import annotations

import asyncio
import shlex
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from loopscope.control.awaited import NOBODY, Awaited
from loopscope.control.desk_clock import DeskClock
from loopscope.control.failure import (
    CONSEQUENCES_NS,
    ComponentFailure,
    ComponentsFailed,
    Failure,
    PhaseTimedOut,
    RunFailed,
    describe_exit,
    last_lines,
    meaning,
    output_of,
)
from loopscope.control.host_loss import HostLoss, Missed
from loopscope.control.instant import Instant, PrintedLine
from loopscope.control.router import emulates
from loopscope.experiment import Component, ExitReady, LineReady, PhasesReady, PortReady
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.patience import within
from loopscope.provider.printable import printable
from loopscope.provider.untrusted import (
    LONGEST_LIST,
    UntrustedError,
    json_object,
)

LAST_LINES = 40

# How long after the first failure another one may still turn out to be earlier. The cause is to be
# shown within 250 ms after its end was seen.
SETTLE_S = 0.1
# How long it may take after that to learn what took an agent with it.
WHY_LOST_S = 0.1


class Limit:
    """The time that something may take, from now on."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left of it."""
        return max(self._end - asyncio.get_running_loop().time(), 0)


@dataclass
class State:
    """One component, as its agent's events tell."""

    spec: Component
    started: bool = False
    ready: bool = False
    phases: list[str] | None = None
    done: set[str] = field(default_factory=set)
    values: dict[str, Any] = field(default_factory=dict)
    began: dict[str, Instant] = field(default_factory=dict)
    """When it began each phase that had a common start."""
    error: str | None = None
    refused: str | None = None
    """Why its agent could not tell it to begin a phase."""
    code: int | None = None
    signal: int | None = None
    exited: bool = False
    stopped_by_us: bool = False
    left_out: dict[str, int] = field(default_factory=dict)
    """Bytes that were not kept of ``stdout`` and ``stderr``, where there are any."""
    failed_at: Instant | None = None
    failure_received_ns: int | None = None
    """CLOCK_MONOTONIC here when its failure was reported."""
    lines: int = 0
    entered: str = ""
    """The phase that it was told to begin last."""
    core: str = ""
    """Where its core dump is; empty: there is none."""
    stdout: deque[tuple[int, PrintedLine]] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    stderr: deque[tuple[int, PrintedLine]] = field(
        default_factory=lambda: deque(maxlen=LAST_LINES // 2)
    )

    def fail(self, at: Instant) -> None:
        """Takes down when it failed or ended; the first time counts."""
        if self.failed_at is None:
            self.failed_at = at
            self.failure_received_ns = time.monotonic_ns()

    def take_line(self, at: Instant, line: str, stderr: bool) -> None:
        """Keeps a line that the component printed."""
        self.lines += 1
        kept = PrintedLine(at, printable(line))
        (self.stderr if stderr else self.stdout).append((self.lines, kept))

    @property
    def last_lines(self) -> tuple[PrintedLine, ...]:
        """The last lines of both streams, as they came.

        The two race each other, so what a failing program says on stderr keeps its place whatever
        it still prints on stdout.
        """
        room = LAST_LINES - len(self.stderr)
        kept = [*list(self.stdout)[-room:], *self.stderr]
        return tuple(line for _, line in sorted(kept, key=lambda each: each[0]))

    @property
    def expected_code(self) -> int:
        return self.spec.ready.code if isinstance(self.spec.ready, ExitReady) else 0

    @property
    def _ending(self) -> str:
        what = meaning(self.code, self.signal)
        return describe_exit(self.code, self.signal) + (f", {what}" if what else "")

    @property
    def status(self) -> str:
        """What it does now, for people."""
        if self.exited and self.stopped_by_us and self.signal == signal.SIGTERM:
            return "ended when asked to"
        if self.exited:
            return f"ended{' when asked to' if self.stopped_by_us else ''}: {self._ending}"
        if not self.started:
            return "not started"
        if self.entered and self.entered not in self.done:
            return f"in phase {self.entered}"
        if not self.ready:
            return "running" if isinstance(self.spec.ready, ExitReady) else "starting"
        return f"done with phase {self.entered}" if self.entered else "ready"

    @property
    def ignored_sigterm(self) -> bool:
        """Whether it was asked to end, did not, and was killed."""
        return self.stopped_by_us and self.signal == signal.SIGKILL

    def waits_for(self, phase: str) -> str:
        """Event for which it waits in ``phase``, for people."""
        if not self.started:
            return "to be started"
        if self.ready:
            return f'its "done" of phase {phase}'
        ready = self.spec.ready
        if isinstance(ready, PortReady):
            return f"port {ready.port}, on which nothing listens (TCP) and which nothing has (UDP)"
        if isinstance(ready, LineReady):
            return f"a line on its stdout with {ready.text!r} in it"
        if isinstance(ready, PhasesReady):
            return "its hello: it is to speak the phase protocol (`ready:` can say otherwise)"
        return f"its end with exit status {self.expected_code}"

    @property
    def is_out(self) -> bool:
        """Whether the run goes on without it, whatever it still does."""
        failed = self.error is not None or self.refused is not None
        return self.spec.allow_failure and (self.exited or failed)

    def failure(self, pending: bool) -> str | None:
        """Why this component has failed, if it has. ``pending``: it is being waited for."""
        ending = self._ending if self.exited else None
        if self.error is not None:
            return f"{self.error} ({ending})" if ending else self.error
        unexpected = self.signal is not None or self.code != self.expected_code
        if self.exited and not self.stopped_by_us and unexpected:
            # One that has ended is refused too, and how it ended says more.
            return ending
        if self.refused is not None:
            return f"{self.refused} ({ending})" if ending else self.refused
        if not self.exited or self.stopped_by_us:
            return None
        if self.spec.background:
            return f"it ended (exit status {self.code}), though it is to be alive at the run's end"
        if emulates(self.spec.name):
            return f"it ended ({ending}) though the run needs it to the end"
        if pending:
            return f"it ended (exit status {self.code}) before the phase was done"
        return None


class Components:
    """All components of a run. ``take`` feeds it events; ``barrier`` waits for a condition."""

    def __init__(
        self, specs: Iterable[Component], clock: DeskClock, look: Callable[[], None]
    ) -> None:
        """``look`` begins to ask every host for its time, for ``clock`` and as a sign of life."""
        self.states = {spec.name: State(spec) for spec in specs}
        self.specs = tuple(state.spec for state in self.states.values())
        self._changed = asyncio.Condition()
        self._clock = clock
        self._look = look
        self._missed: dict[str, Missed] = {}
        self._may_have_failed: set[str] = set()
        self._reported: dict[str, Instant] = {}
        self._failed_phase = ""

    async def take(self, event: pb.Event) -> None:
        """Applies one event."""
        state = self.states[event.component]
        what = event.WhichOneof("what")
        self._reported[state.spec.host] = instant_of(state.spec.host, event)
        if what == "output":
            at = instant_of(state.spec.host, event)
            state.take_line(at, event.output.line, event.output.stderr)
            return
        if what == "phase_hello":
            state.phases = [printable(name) for name in event.phase_hello.phases]
        elif what == "phase_begun":
            begun = instant_of(state.spec.host, event)
            state.began[event.phase_begun.phase] = begun
            return
        elif what == "phase_done":
            state.done.add(event.phase_done.phase)
            state.values.update(json_object(event.phase_done.values_json or "{}"))
            if max(len(state.done), len(state.values)) > LONGEST_LIST:
                raise UntrustedError(f"more than {LONGEST_LIST} values or phases of a component")
        elif what == "phase_failed":
            state.error = printable(event.phase_failed.error)
            state.fail(instant_of(state.spec.host, event))
        elif what == "phase_refused":
            refused = event.phase_refused
            reason = printable(refused.error)
            state.refused = f"it cannot begin phase {printable(refused.phase)}: {reason}"
            state.fail(instant_of(state.spec.host, event))
        elif what == "ready":
            state.ready = True
        elif what == "exited":
            state.exited = True
            state.stopped_by_us = event.exited.stopped_by_us
            left_out = {
                "stdout": event.exited.stdout_left_out,
                "stderr": event.exited.stderr_left_out,
            }
            state.left_out = {name: count for name, count in left_out.items() if count}
            state.core = event.exited.core
            if event.exited.WhichOneof("how") == "signal":
                state.signal = event.exited.signal
            else:
                state.code = event.exited.code
            state.fail(instant_of(state.spec.host, event))
        if what in ("phase_failed", "phase_refused", "exited"):
            self._may_have_failed.add(event.component)
        async with self._changed:
            self._changed.notify_all()

    async def lose_agent(
        self, host: str, why: Callable[[], str], alive_ns: int, gone: bool
    ) -> Missed:
        """A host's agent went away, or what it reports cannot be used.

        The provider may know ``why`` only a moment later: the result has to be settled then.
        """
        missed = Missed(
            host,
            why,
            gone,
            time.monotonic_ns(),
            alive_ns,
            self._reported.get(host),
            [state.spec.name for state in self._going(host)] if gone else [],
        )
        self._missed[host] = missed
        async with self._changed:
            self._changed.notify_all()
        return missed

    async def outlast_loss(self, names: Iterable[str]) -> None:
        """Returns a second after a host was last found gone, or when none of ``names`` runs.

        Peers that are ended before cannot print what they do because of the loss.
        """
        lost_ns = [each.noticed_ns for each in self._missed.values() if each.gone]
        end_ns = max(lost_ns, default=0) + CONSEQUENCES_NS
        asked = set(names)
        async with self._changed:
            while any(state.spec.name in asked for state in self._going()):
                left_ns = end_ns - time.monotonic_ns()
                if left_ns <= 0:
                    return
                with suppress(asyncio.TimeoutError):
                    await within(left_ns / 1e9, self._changed.wait())

    def peers(self, addresses: Callable[[str], Sequence[str]]) -> dict[str, Any]:
        """The peers of a phase message: where each component is and what it has published."""

        def peer(state: State) -> dict[str, Any]:
            preferred, *others = addresses(state.spec.host)
            several = {"addresses": [preferred, *others]} if others else {}
            return {
                "host": state.spec.host,
                "address": preferred,
                **several,
                "values": state.values,
            }

        return {name: peer(state) for name, state in self.states.items() if not emulates(name)}

    async def barrier(self, phase: str, limit: Limit, waiting: Awaited) -> None:
        """Returns when nobody is awaited. Raises ComponentsFailed or PhaseTimedOut."""
        async with self._changed:
            while True:
                if self._missed or self._failures(phase, waiting):
                    break
                if not waiting.any():
                    return
                try:
                    await within(limit.left_s, self._changed.wait())
                except asyncio.TimeoutError:
                    raise self.timed_out(phase, limit, waiting.all()) from None
        await self.raise_failure(phase, waiting)

    @property
    def failed(self) -> bool:
        """Whether a component has failed that nobody waits for, or an agent is gone."""
        return bool(self._failures("", NOBODY) or self._missed)

    async def raise_failure(self, phase: str, waiting: Awaited = NOBODY) -> None:
        """Raises RunFailed with what has failed; returns if nothing has."""
        self._failed_phase = phase
        self._look()
        # Events of several hosts arrive in any order: what failed first is known a little later.
        await asyncio.sleep(SETTLE_S)
        if self._missed:
            await asyncio.sleep(WHY_LOST_S)
        failures: list[Failure] = [*self._losses(), *self._failures(phase, waiting)]
        if failures:
            raise ComponentsFailed(failures, self._running())

    def completed(self, failure: RunFailed) -> RunFailed:
        """A failure with what became known after it was shown.

        The loss of a host may be noticed seconds after its peers failed because of it.
        """
        if not self._missed:
            return failure
        lost = {
            _on_host(self.states[name]) for each in self._missed.values() for name in each.with_it
        }
        if isinstance(failure, PhaseTimedOut):
            stopped = [each for each in failure.stopped if each not in lost]
            return failure.completed(self._losses(), stopped)
        if not isinstance(failure, ComponentsFailed):
            return failure
        before = [each for each in failure.failures if isinstance(each, ComponentFailure)]
        known = {each.component for each in before}
        later = self._failures(self._failed_phase, NOBODY)
        failures = [*before, *(each for each in later if each.component not in known)]
        ended = {f"{each.component} ({each.host})" for each in failures}
        stopped = [each for each in failure.stopped if each not in lost | ended]
        return failure.completed([*self._losses(), *failures], stopped)

    def cannot_start(self, spec: Component, phase: str, why: str) -> ComponentsFailed:
        """The failure of a component that could not be started at all."""
        self._failed_phase = phase
        at, received_ns = Instant(spec.host, monotonic_ns=0), time.monotonic_ns()
        failure = ComponentFailure(
            spec.name, spec.host, phase, spec.argv, why, at, received_ns=received_ns
        )
        self._look()
        return ComponentsFailed([failure], self._running())

    def printed(self) -> dict[str, Sequence[PrintedLine]]:
        """The last lines of each component, by its name."""
        return {name: state.last_lines for name, state in self.states.items()}

    def printed_more(self) -> set[str]:
        """Components that printed other lines before their last ones."""
        return {n for n, state in self.states.items() if state.lines > len(state.last_lines)}

    def _failures(self, phase: str, pending: Awaited) -> list[ComponentFailure]:
        failures = []
        for name, state in self.states.items():
            if name not in self._may_have_failed or state.spec.allow_failure:
                continue
            what = state.failure(name in pending)
            if what is not None and state.failed_at is not None:
                failures.append(
                    ComponentFailure(
                        component=name,
                        host=state.spec.host,
                        phase=phase,
                        command=state.spec.argv,
                        what=what,
                        at=state.failed_at,
                        last_lines=state.last_lines,
                        core=state.core,
                        left_out=sum(state.left_out.values()),
                        received_ns=state.failure_received_ns,
                    )
                )
        return failures

    def _losses(self) -> list[HostLoss]:
        return [each.loss(self._failed_phase, self._clock) for each in self._missed.values()]

    def _going(self, host: str | None = None) -> list[State]:
        """Components that run, of a host or of all that are not gone."""
        gone = {each.host for each in self._missed.values() if each.gone}
        return [
            state
            for state in self.states.values()
            if state.started
            and not state.exited
            and state.spec.host not in gone
            and host in (None, state.spec.host)
        ]

    def _running(self) -> list[str]:
        return [_on_host(state) for state in self._going()]

    def timed_out(self, phase: str, limit: Limit, waiting: Sequence[str]) -> PhaseTimedOut:
        """The failure of a phase whose time is over before ``waiting`` are done."""
        at_ns = time.monotonic_ns()
        self._failed_phase = phase
        self._look()
        lines = []
        for name in waiting:
            state = self.states[name]
            lines.append(f"still not done: {name} on {state.spec.host}")
            lines.append(f"  it waits for {state.waits_for(phase)}")
            lines.append(f"  command: {printable(shlex.join(state.spec.argv))}")
            lines += last_lines(state.last_lines)
            if state.started:
                # It is not known yet whether that is more than is kept.
                lines.append(f"  what it printed: {output_of(state.spec.host, name)}")
        others = [name for name in self._running() if name.split(" ")[0] not in waiting]
        return PhaseTimedOut(phase, limit.seconds, waiting, lines, others, at_ns)


def _on_host(state: State) -> str:
    return f"{state.spec.name} ({state.spec.host})"


def instant_of(host: str, event: pb.Event) -> Instant:
    """When an event happened on its host."""
    if not event.HasField("at"):
        return Instant(host, event.at_monotonic_ns)
    at, within = event.at.global_ns, event.at.within_ns
    return Instant(host, event.at_monotonic_ns, at - within, at + within)
