"""The client of the agent protocol (proto/agent.proto): one host's agent over its Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.connection import AgentError, AgentLost, Connection
from loopscope.strict_json import to_json

__all__ = ["Agent", "AgentError", "AgentLost"]

SERVICE = "loopscope.agent.v1.Agent"
# What a component publishes is the largest.
MAX_EVENT = 2 << 20
# How old a sign of life may be when it comes: agents over ssh send one each second.
SIGN_AGE_NS = 1_000_000_000
# What an event takes here besides its content.
EACH_EVENT = 64


class Agent(Connection):
    """A host's agent. Every method raises AgentError with what the agent said."""

    def __init__(
        self,
        host: str,
        socket: Path | str,
        *,
        lost: Callable[[], str] = lambda: "its agent is gone",
        quota_bytes: int | None = None,
        sign_ns: Callable[[], int] = lambda: 0,
        silence_s: float | None = None,
    ) -> None:
        """Connects at the first request. ``lost`` says why the connection has ended.

        ``silence_s``: that is so when nothing has come from the agent for so long.

        ``sign_ns``: when anything came from the host last, by CLOCK_MONOTONIC here; 0: unknown.

        ``quota_bytes``: the events of a run are at most so large together.
        """
        super().__init__(host, socket, SERVICE, pb, lost, silence_s)
        self._quota_bytes = quota_bytes
        self._sign_ns = sign_ns
        self._peers: dict[str, str] = {}
        self._entries: asyncio.Queue[pb.EnterPhaseRequest | None] = asyncio.Queue()

    @property
    def alive_ns(self) -> int:
        """The agent was alive at this instant of CLOCK_MONOTONIC here, or later; 0: unknown."""
        return max(self.answered_ns, self._sign_ns() - SIGN_AGE_NS, 0)

    async def hello(self) -> tuple[str, str]:
        """Has the host describe its environment in its env.json.

        The agent's version, and why its counter is not the one that is best; empty: it is, or was
        asked for.
        """
        reply: pb.HelloReply = await self.ask("Hello", pb.HelloRequest(), 30)
        return reply.version, reply.counter_note

    async def set(self, request: pb.SetRequest) -> pb.SetReply:
        """Gives settings of the machine other values until the end of the run."""
        reply: pb.SetReply = await self.ask("Set", request, 60)
        return reply

    async def watch(self) -> AsyncIterator[pb.Event]:
        """Everything that happens to the host's components, until the agent ends.

        The phases that components are told to begin go out on the same stream.
        """
        taken = 0
        try:
            async for content in self.exchange("Watch", self._sent()):
                size = len(content)
                taken += size + EACH_EVENT
                if size > MAX_EVENT:
                    raise AgentError(self.host, f"its agent reports {size} bytes at once")
                if self._quota_bytes is not None and taken > self._quota_bytes:
                    raise AgentError(
                        self.host,
                        f"its agent has reported more than {self._quota_bytes} bytes: `quota` of "
                        "its machine allows more",
                    )
                event = self.parsed(pb.Event, content)
                if event.HasField("phase_refused"):
                    # The agent may have kept no peers of it.
                    self._peers.pop(event.component, None)
                yield event
        finally:
            self._entries.put_nowait(None)

    async def _sent(self) -> AsyncIterator[pb.EnterPhaseRequest]:
        while (request := await self._entries.get()) is not None:
            yield request

    async def start_clock_reference(
        self,
        address: str,
        root: bytes,
        *,
        port: int | None,
        realtime_step: tuple[int, int] | None,
        past_links: bool = False,
    ) -> int:
        """Answers the probes of followers whose keys are derived from ``root``; the port.

        ``address`` and ``port``: where to answer, None: on any port.

        ``realtime_step``: after how many ns loopscope sees CLOCK_REALTIME set, and by how many ns
        forward. ``past_links``: probes do not pass links that the host emulates itself.
        """
        reference = pb.ClockReference(address=address, port=port or 0)
        step = _step(realtime_step)
        request = pb.StartClockRequest(
            reference=reference, key=root, realtime_step=step, past_links=past_links
        )
        answering: int = (await self.ask("StartClock", request, 10)).port
        return answering

    async def start_clock_follower(
        self,
        address: str,
        reference: str,
        key: bytes,
        number: int,
        *,
        rate_hz: float,
        burst: int,
        load_burst: int,
        wander_ppm: float,
        realtime_step: tuple[int, int] | None,
        past_links: bool = False,
    ) -> int:
        """Probes ``reference`` ("address:port") from ``address``; exchanges of the first burst.

        ``number``: that of ``key``.
        """
        follower = pb.ClockFollower(
            address=address,
            reference=reference,
            rate_hz=rate_hz,
            burst=burst,
            load_burst=load_burst,
            wander_ppm=wander_ppm,
            number=number,
        )
        step = _step(realtime_step)
        request = pb.StartClockRequest(
            follower=follower, key=key, realtime_step=step, past_links=past_links
        )
        answered: int = (await self.ask("StartClock", request, 30)).answered
        return answered

    async def read_clock(self) -> pb.ReadClockReply:
        """Status and maximum error of the host's time now."""
        reply: pb.ReadClockReply = await self.ask("ReadClock", pb.ReadClockRequest(), 10)
        return reply

    async def answer_peers(self, root: bytes, port: int | None) -> int:
        """Has a follower answer others too, whose keys are derived from ``root``; the port.

        ``port``: the one to answer on, None: any.
        """
        request = pb.AnswerPeersRequest(key=root, port=port or 0)
        answering: int = (await self.ask("AnswerPeers", request, 10)).port
        return answering

    async def probe_peers(self, peers: Sequence[pb.ClockPeer], rate_hz: float) -> None:
        """Has the host probe others besides the reference, each ``rate_hz`` times a second."""
        await self.ask("ProbePeers", pb.ProbePeersRequest(peers=peers, rate_hz=rate_hz), 10)

    async def stop_peers(self) -> Sequence[pb.PeerEnd]:
        """Ends that with a last burst; what came of each."""
        reply: pb.StopPeersReply = await self.ask("StopPeers", pb.StopPeersRequest(), 30)
        return list(reply.peers)

    async def stop_clock(self) -> pb.StopClockReply:
        """Ends probing with a last burst."""
        reply: pb.StopClockReply = await self.ask("StopClock", pb.StopClockRequest(), 30)
        return reply

    async def start(
        self,
        component: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        config: Mapping[str, Any],
        readiness: pb.Readiness,
        streams: str,
        *,
        inherit: Sequence[str],
        user: str | None,
        output_limit: int,
    ) -> int:
        """Starts a component, which records ``streams`` (schema/streams.md); its process id.

        It inherits the variables that ``inherit`` names and runs as ``user``, None: as the agent.
        ``output_limit`` bytes are kept of each of its outputs.
        """
        # The agent has kept no peers of a program that has not started.
        self._peers.pop(component, None)
        request = pb.StartRequest(
            component=component,
            command=list(command),
            environment=dict(environment),
            config_json=to_json(config),
            readiness=readiness,
            streams_json=streams,
            inherit=list(inherit),
            user=user or "",
            output_limit=output_limit,
        )
        pid: int = (await self.ask("Start", request, 30)).pid
        return pid

    async def enter_phase(
        self,
        component: str,
        phase: str,
        measured: bool,
        peers_json: str,
        start_ns: int | None = None,
    ) -> None:
        """Tells a component to begin a phase; ``peers_json`` is the object of its peers.

        ``start_ns``: when, on the global clock; None: at once. It returns before the agent has got
        it. Where the agent cannot do it, `watch` has the event ``phase_refused``.
        """
        kept = self._peers.get(component)
        request = pb.EnterPhaseRequest(
            component=component,
            phase=phase,
            measured=measured,
            peers_json=None if peers_json == kept else peers_json,
            start_global_ns=start_ns,
        )
        # The agent takes requests in this order.
        self._peers[component] = peers_json
        self._entries.put_nowait(request)

    async def stop(self, components: Sequence[str] = (), grace_s: float = 2) -> None:
        """Ends components (none named: all) and waits until they are gone."""
        request = pb.StopRequest(components=list(components), grace_s=grace_s)
        await self.ask("Stop", request, grace_s + 30)

    async def trigger(self, stream: str, host: str = "") -> bool:
        """Triggers a flight recorder, ``""`` all, because ``host``'s was, ``""`` for a person.

        Whether any program's recorder was triggered now.
        """
        request = pb.TriggerRequest(stream=stream, host=host)
        triggered: bool = (await self.ask("Trigger", request, 10)).triggered
        return triggered

    async def departed(self, departures: pb.Departures) -> None:
        """Tells the host where a path ends of messages that departed where it begins."""
        await self.ask("Departed", departures, 10)

    async def finish_trace(self) -> pb.FinishTraceReply:
        """Closes the host's trace streams."""
        reply: pb.FinishTraceReply = await self.ask("FinishTrace", pb.FinishTraceRequest(), 120)
        return reply

    async def start_kernel(
        self,
        host: str,
        classes: Mapping[str, Sequence[str]],
        buffer: int,
        period_ns: int = 0,
        numbers: Iterable[Mapping[str, Any]] = (),
        flight: tuple[int, bool] | None = None,
        histograms: bool = False,
        filters: Mapping[str, Any] | None = None,
    ) -> pb.StartKernelReply:
        """Begins to record the kernel's events, tracepoints by class, by the clock of ``host``.

        Each processor has ``buffer`` bytes for each class. Counts of threads are looked at every
        ``period_ns``. ``numbers`` is where messages have their number, with the keys of the
        protocol's ``MessageNumber``. ``flight``: what comes is held, so long in ns and longer,
        until `keep_kernel`, or also until the end. ``histograms``: the kernel keeps some too.
        ``filters`` says what is recorded alone, with the keys of ``KernelFilters``.
        """
        named = [pb.KernelClass(name=name, events=events) for name, events in classes.items()]
        request = pb.StartKernelRequest(
            host=host,
            classes=named,
            buffer=buffer,
            period_ns=period_ns,
            numbers=[pb.MessageNumber(**each) for each in numbers],
            flight=None if flight is None else pb.KernelFlight(keep_ns=flight[0], at_end=flight[1]),
            histograms=histograms,
            filters=None if filters is None else pb.KernelFilters(**filters),
        )
        reply: pb.StartKernelReply = await self.ask("StartKernel", request, 60)
        return reply

    async def choose_kernel(self, classes: Iterable[str]) -> None:
        """Has these classes of the kernel's events recorded alone; returns when that is so."""
        await self.ask("ChooseKernel", pb.ChooseKernelRequest(classes=classes), 60)

    async def keep_kernel(self, post_ns: int) -> None:
        """Has what is held of the kernel's events written, and what comes for ``post_ns``."""
        await self.ask("KeepKernel", pb.KeepKernelRequest(post_ns=post_ns), 60)

    async def finish_kernel(self) -> pb.FinishKernelReply:
        """Ends that."""
        request = pb.FinishKernelRequest()
        reply: pb.FinishKernelReply = await self.ask("FinishKernel", request, 120)
        return reply

    async def shutdown(self, timeout: float = 30) -> list[str]:
        """Undoes everything and ends the agent; what could not be undone."""
        reply = await self.ask("Shutdown", pb.ShutdownRequest(), timeout)
        return list(reply.problems)


def _step(step: tuple[int, int] | None) -> pb.RealtimeStep | None:
    return None if step is None else pb.RealtimeStep(after_ns=step[0], by_ns=step[1])
