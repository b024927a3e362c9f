"""Recording what kernels do: begun before the programs start, ended after they have."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loopscope.control.progress import Progress
from loopscope.control.stages import STARTS_IN_ALL
from loopscope.experiment import Experiment, Phase, kernel_events, quantity
from loopscope.experiment.plan import ProgramMessages
from loopscope.files import write_whole
from loopscope.layout import KERNELS
from loopscope.provider import Agent, AgentError
from loopscope.strict_json import to_json

# For each class on each processor: 50 ms of 80 MB/s.
BUFFER = 4 * 2**20
# Between two looks at the counts of threads, where a machine has few hosts.
LOOKS_NS = 2_000_000
# Tells programs that the kernel's stamps of what they receive are asked for, in their environment.
STAMP_SOCKETS = "LOOPSCOPE_SOCKET_STAMPS"
# All buffers together where nobody asked; none is smaller than the least size, though.
_UNASKED = 64 * 2**20
_LEAST = 256 * 2**10


_PROTOCOLS = {"tcp": 6, "udp": 17}


class Kernels:
    """The kernels of a run's hosts, and what became of recording them."""

    def __init__(
        self,
        experiment: Experiment,
        agents: Mapping[str, Agent],
        hosts: Mapping[str, Agent],
        progress: Progress,
        *,
        is_shared: bool,
    ) -> None:
        self._classes = kernel_events.selected(experiment.kernel)
        self._asked = experiment.kernel_asked
        self._numbers = [
            _number(each) for each in experiment.messages if each.number or each.length
        ]
        # Nobody asked for events of other people's machines, and counts cost little.
        self._counts_only = is_shared and not self._asked
        # The flight recorder that they are written with.
        self._flight = next((each for each in experiment.streams if each.kernel_ns), None)
        self._buffer = BUFFER
        if self._classes and not self._asked:
            each = _UNASKED // (len(self._classes) * (os.cpu_count() or 1))
            self._buffer = min(BUFFER, max(each, _LEAST))
        self._histograms = experiment.kernel_histograms
        chosen = experiment.kernel_filters
        self._filters = None if chosen is None else asdict(chosen)
        self._agents = dict(agents) if self._classes or self._histograms else {}
        self._reference = experiment.hosts[0]
        self._hosts = dict(hosts)
        self._progress = progress
        self._recorded: dict[str, Agent] = {}
        self._found: dict[str, dict[str, Any]] = {}
        self._chosen = list(self._classes)
        self._alternate_ns = experiment.alternate_ns
        self._at_once = asyncio.Semaphore(STARTS_IN_ALL)

    async def start(self) -> None:
        """Begins to record each of them. One that cannot be is noted, and the run goes on."""
        if self._agents and self._asked:
            self._progress.stage("starting to record kernel events")
        await asyncio.gather(*(self._start(name) for name in self._agents))
        if self._counts_only:
            await asyncio.gather(*(self._start_counts(host, 1) for host in self._hosts))

    async def _start(self, name: str) -> None:
        # A kernel of several hosts is placed by the clock of the reference.
        clock = name if name in self._hosts else self._reference
        flight = self._flight
        kept = None if flight is None else (flight.kernel_ns or 0, flight.on_death)
        try:
            begun = await self._agents[name].start_kernel(
                clock,
                self._classes,
                self._buffer,
                numbers=self._numbers,
                flight=kept,
                histograms=self._histograms,
                filters=self._filters,
            )
        except AgentError as error:
            self._found[name] = {"error": str(error), "asked": self._asked}
            if self._asked:
                self._progress.note(f"no kernel events: {error}")
            # A kernel of several hosts is theirs, that of one its own.
            hosts = [name] if name in self._hosts else list(self._hosts)
            await asyncio.gather(*(self._start_counts(host, len(hosts)) for host in hosts))
            return
        self._recorded[name] = self._agents[name]
        self._found[name] = {
            "error": None,
            "asked": self._asked,
            "absent": sorted(begun.absent),
            "threads_known": begun.threads_known,
            "costs": {
                each.name: {
                    "event_ns": each.event_ns if each.HasField("event_ns") else None,
                    "unknown": each.cost_unknown or None,
                }
                for each in begun.classes
                if not each.unrecorded
            },
            "without": {each.name: each.unrecorded for each in begun.classes if each.unrecorded},
        }
        if self._asked:
            for text in kernel_events.without(self._found[name]["without"]):
                self._progress.note(f"{name}: {text}")
        if begun.absent and self._asked:
            self._progress.note(f"{name}: this kernel has no {', '.join(sorted(begun.absent))}")

    async def _start_counts(self, host: str, sharing: int) -> None:
        """Has a host record what everybody may know of its components' threads instead.

        ``sharing`` is how many hosts a machine has: of many each looks less often. Where it cannot,
        that belongs to why there are no events.
        """
        every = LOOKS_NS * max(1, sharing // 4)
        try:
            async with self._at_once:
                agent = self._hosts[host]
                await agent.start_kernel(host, {kernel_events.COUNTS: ()}, self._buffer, every)
        except AgentError as error:
            refused = self._found.setdefault(host, {"asked": self._asked})
            refused["error"] = f"{refused.get('error') or ''} {error}".strip()
            return
        self._recorded[host] = self._hosts[host]
        why = self._found.get(host, {}).get("error")
        self._found[host] = {
            "error": None,
            "asked": self._asked,
            "absent": [],
            "threads_known": True,
            "costs": {},
            "without": {},
            "counts_only": why,
        }

    def counts_alone(self, host: str) -> bool:
        """Whether a host has counts of threads and connections, because there are no events."""
        return "counts_only" in self._found.get(host, {})

    async def enter(self, phase: Phase) -> None:
        """Has the classes recorded that are to be in a phase."""
        chosen = list(self._classes if phase.kernel is None else phase.kernel)
        if chosen == self._chosen:
            return
        self._chosen = chosen
        await self._choose(chosen)

    @asynccontextmanager
    async def alternating(self, phase: Phase) -> AsyncIterator[None]:
        """Has the events of a measured phase recorded in every other time, if that is asked for."""
        if self._alternate_ns is None or not phase.measured or not self._recorded:
            yield
            return
        task = asyncio.create_task(self._alternate(self._alternate_ns / 1e9))
        try:
            yield
        finally:
            task.cancel()
            (failure,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(failure, AgentError):
                self._progress.note(f"kernel events: {failure}")
        await self._choose(self._chosen)

    async def _alternate(self, each_s: float) -> None:
        # Their lengths are drawn, so that none is a loop's period.
        drawn = random.Random(0)
        for chosen in itertools.cycle(([], self._chosen)):
            await asyncio.sleep(each_s * drawn.uniform(0.75, 1.25))
            await asyncio.shield(self._choose(chosen))

    async def _choose(self, classes: list[str]) -> None:
        events = [agent for name, agent in self._recorded.items() if name in self._agents]
        await asyncio.gather(*(agent.choose_kernel(classes) for agent in events))

    async def keep(self, stream: str) -> None:
        """Has events written that are kept with a flight recorder which was triggered."""
        flight = self._flight
        if flight is None or stream not in ("", flight.name):
            return
        events = [agent for name, agent in self._recorded.items() if name in self._agents]
        await asyncio.gather(*(agent.keep_kernel(flight.post_ns) for agent in events))

    async def finish(self) -> None:
        """Ends that."""
        await asyncio.gather(*(self._finish(name) for name in sorted(self._recorded)))

    async def _finish(self, name: str) -> None:
        try:
            ended = await self._recorded.pop(name).finish_kernel()
        except AgentError as error:
            self._found[name]["error"] = str(error)
            self._progress.note(f"kernel events of {name}: {error.what}")
            return
        self._found[name] |= {"recorded": ended.recorded, "dropped": ended.dropped}
        problems = list(ended.problems)
        if ended.dropped:
            room = quantity.format(self._buffer, quantity.SIZE)
            problems.append(f"{ended.dropped} kernel events found no room in buffers of {room}")
        for problem in problems:
            self._progress.note(f"{name}: {problem}")

    def write(self, directory: Path) -> None:
        """Writes what became of it into the directory of a repeat, if anything was asked for."""
        if self._found:
            content = {"version": 1, "kernels": self._found}
            write_whole(directory / KERNELS, to_json(content, indent=2) + "\n")


def _number(messages: ProgramMessages) -> dict[str, Any]:
    """Where messages have their number and length, for the agent."""
    found: dict[str, Any] = {
        "protocol": _PROTOCOLS[messages.protocol],
        "port": messages.port,
        "sender": messages.from_port,
        "offset": messages.number["offset"] if messages.number else 0,
    }
    if messages.length is not None:
        length = dict(messages.length)
        found["length"] = {"big_endian": length.pop("order") == "big", **length}
    return found
