"""Phases over simulated agents, in virtual time.

The tests cover limits, causes, and what runs at the same time.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loopscope.control.components import Limit
from loopscope.control.failure import ComponentsFailed, PhaseTimedOut, RunFailed
from loopscope.control.progress import Silent
from loopscope.control.repeat import Repeat
from loopscope.experiment import load
from loopscope.provider import AgentError, AgentLost
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.printable import printable


class VirtualTime(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next thing to do."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0]._when)
        super()._run_once()


class Agent:
    """An agent that does what the test says."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[pb.Event | None] = asyncio.Queue()
        self.on_start: Callable[[str], Coroutine[Any, Any, None]] | None = None
        self.on_enter: Callable[[str], Coroutine[Any, Any, None]] | None = None

        self.alive_ns = 0
        self.answers = True
        self.unknown = 0
        """So often its time is not known; then it is 5."""

    def lost(self) -> AgentLost:
        return AgentLost("h2", lambda: "its agent is gone")

    async def read_clock(self) -> pb.ReadClockReply:
        asked_ns = time.monotonic_ns()
        if not self.answers:
            await asyncio.Event().wait()
        self.alive_ns = asked_ns
        if self.unknown:
            self.unknown -= 1
            return pb.ReadClockReply()
        return pb.ReadClockReply(now=pb.GlobalInstant(global_ns=5))

    async def watch(self) -> AsyncIterator[pb.Event]:
        while (event := await self.events.get()) is not None:
            yield event

    async def start(self, component: str, *_: Any, **__: Any) -> int:
        if self.on_start is not None:
            await self.on_start(component)
        return 1

    async def enter_phase(self, component: str, *_: Any) -> None:
        if self.on_enter is not None:
            await self.on_enter(component)

    def say(self, component: str, **what: Any) -> None:
        self.events.put_nowait(pb.Event(component=component, at_monotonic_ns=1, **what))

    def hello(self, component: str) -> None:
        self.say(component, phase_hello=pb.PhaseHello(phases=["run"]))
        self.say(component, ready=pb.Ready())


HEAD = """
name: made-up
hosts: [h1, h2]
phases: [{name: run, timeout: 10s}]
components:
  a: {host: h1, run: a, start: run, ready: %s}
  b: {host: h2, run: b, start: run, ready: %s}
"""


def drive(
    folder: Path,
    work: Callable[[Repeat, Agent, Agent], Coroutine[Any, Any, None]],
    ready: tuple[str, str] = ("phases", "phases"),
    text: str = HEAD,
) -> float:
    """Does ``work`` with a repeat whose agents are watched; the virtual time that it took."""
    file = folder / "made-up.yaml"
    file.write_text(text % ready)
    experiment = load(file)
    loop = VirtualTime()

    async def main() -> None:
        agents = Agent(), Agent()
        hosts = {
            name: SimpleNamespace(
                name=name, agent=agent, addresses=dict.fromkeys(["data", "clock"], (f"10.0.0.{i}",))
            )
            for i, (name, agent) in enumerate(zip(experiment.hosts, agents, strict=True), 1)
        }
        bed: Any = SimpleNamespace(
            hosts=hosts, router=None, links_at_hosts=False, is_shared=False, kernels={}
        )
        repeat = Repeat(experiment, bed, "test", Silent())
        watchers = [asyncio.create_task(repeat._watch(bed.hosts[name])) for name in bed.hosts]
        try:
            await work(repeat, *agents)
        finally:
            for task in (*watchers, *repeat._looks):
                task.cancel()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return loop.time()


def phase(repeat: Repeat) -> Coroutine[Any, Any, None]:
    return repeat._stages.phase(repeat._experiment.phases[0])


def test_a_phase_lasts_no_longer_than_its_timeout(tmp_path: Path) -> None:
    """However its time is spent: on starting, on hello, on what is to be done."""

    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def slowly(component: str) -> None:
            await asyncio.sleep(4)

        async def hello_later(component: str) -> None:
            asyncio.get_running_loop().call_later(5, second.hello, component)

        first.on_start, second.on_start = slowly, hello_later
        first.hello("a")
        with pytest.raises(PhaseTimedOut, match='it waits for its "done" of phase run'):
            await phase(repeat)

    assert drive(tmp_path, work) == 10


def test_a_start_that_hangs_is_ended_with_the_phase(tmp_path: Path) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def never(component: str) -> None:
            await asyncio.sleep(3600)

        first.on_start = never
        second.hello("b")
        with pytest.raises(PhaseTimedOut, match="a on h1\n  it waits for to be started"):
            await phase(repeat)

    assert drive(tmp_path, work) == 10


COMMON = HEAD.replace("timeout: 10s}", "timeout: 10s, common_start: 20ms}")


@pytest.mark.parametrize("host", [0, 1])
def test_a_common_start_waits_for_a_time_that_is_unknown_for_a_moment(
    tmp_path: Path, host: int
) -> None:
    async def work(repeat: Repeat, *agents: Agent) -> None:
        agents[host].unknown = 10
        for agent, name in zip(agents, "ab", strict=True):
            agent.hello(name)
            agent.say(name, phase_done=pb.PhaseDone(phase="run"))
        await phase(repeat)
        assert repeat._stages._at_ns == {"run": 5 + 20_000_000}

    assert drive(tmp_path, work, text=COMMON) == pytest.approx(1.0)


@pytest.mark.parametrize("host", [0, 1])
def test_a_time_that_stays_unknown_ends_a_common_start(tmp_path: Path, host: int) -> None:
    async def work(repeat: Repeat, *agents: Agent) -> None:
        agents[host].unknown = 1000
        for agent, name in zip(agents, "ab", strict=True):
            agent.hello(name)
        with pytest.raises(RunFailed, match=f"the time of host h{host + 1} is not known for 5 s"):
            await phase(repeat)

    assert drive(tmp_path, work, text=COMMON) == pytest.approx(5.0, abs=0.11)


@pytest.mark.parametrize("stage", ["on_start", "on_enter"])
def test_hosts_are_asked_at_the_same_time(tmp_path: Path, stage: str) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        met: list[str] = []
        event = asyncio.Event()

        async def meet(component: str) -> None:
            met.append(component)
            if len(met) == 2:
                event.set()
            await event.wait()

        for agent, name in ((first, "a"), (second, "b")):
            setattr(agent, stage, meet)
            agent.hello(name)
            agent.say(name, phase_done=pb.PhaseDone(phase="run"))
        await phase(repeat)

    assert drive(tmp_path, work) < 10


def test_starts_on_one_host_are_asked_for_at_the_same_time(tmp_path: Path) -> None:
    order: list[str] = []

    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def note(component: str) -> None:
            order.append(f"{component} begins")
            await asyncio.sleep(1)
            order.append(f"{component} runs")

        first.on_start = note
        for name in "ab":
            first.say(name, ready=pb.Ready())
        await phase(repeat)

    drive(tmp_path, work, ("started", "started"), HEAD.replace("host: h2", "host: h1"))
    assert order == ["a begins", "b begins", "a runs", "b runs"]


def test_one_that_comes_after_another_waits_for_its_part(tmp_path: Path) -> None:
    """It starts when the other one is ready, and it enters the phase when that one is done."""
    order: list[str] = []

    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        loop = asyncio.get_running_loop()

        def done(agent: Agent, name: str) -> None:
            order.append(f"{name} done")
            agent.say(name, phase_done=pb.PhaseDone(phase="run", values_json='{"port": 7}'))

        def acts(agent: Agent) -> None:
            async def start(name: str) -> None:
                order.append(f"{name} starts")
                loop.call_later(1, agent.hello, name)

            async def enter(name: str) -> None:
                order.append(f"{name} enters")
                loop.call_later(1, done, agent, name)

            agent.on_start, agent.on_enter = start, enter

        acts(first)
        acts(second)
        await phase(repeat)

    head = HEAD.replace("a: {", "a: {after: [others], ") + "groups: {others: [a, b]}\n"
    assert drive(tmp_path, work, text=head) == 4
    assert order == [f"{name} {what}" for name in "ba" for what in ("starts", "enters", "done")]


def test_one_that_waits_for_a_failed_one_is_not_started(tmp_path: Path) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def exits(name: str) -> None:
            second.say(name, exited=pb.Exited(code=3))

        async def never(name: str) -> None:
            raise AssertionError(name)

        first.on_start, second.on_start = never, exits
        with pytest.raises(ComponentsFailed, match="b on h2 failed in phase run: exit status 3"):
            await phase(repeat)

    assert drive(tmp_path, work, text=HEAD.replace("a: {", "a: {after: {run: [b]}, ")) < 1


@pytest.mark.parametrize(
    ("happens", "what"),
    [
        ({"exited": pb.Exited(code=3)}, "exit status 3"),
        ({"exited": pb.Exited(code=0)}, "it ended .* before the phase was done"),
        ({"phase_failed": pb.PhaseFailed(phase="run", error="no sun")}, "no sun"),
        ({"phase_refused": pb.PhaseRefused(phase="run", error="no way")}, "no way"),
        ({}, "run did not end within 10 s"),
    ],
)
def test_the_run_goes_on_without_one_that_may_fail(
    tmp_path: Path, happens: dict[str, Any], what: str
) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def fail(name: str) -> None:
            if happens:
                second.say(name, **happens)

        async def done(name: str) -> None:
            first.say(name, phase_done=pb.PhaseDone(phase="run"))

        first.on_enter, second.on_enter = done, fail
        first.hello("a")
        second.hello("b")
        await phase(repeat)
        assert set(repeat.failed) == {"b"}
        assert repeat.failed["b"]["phase"] == "run"
        assert re.search(what, repeat.failed["b"]["what"])

    drive(tmp_path, work, text=HEAD.replace("b: {", "b: {allow_failure: true, "))


def test_one_that_cannot_start_and_may_fail_is_left_out(tmp_path: Path) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def refuse(name: str) -> None:
            raise AgentError("h2", f"component {name}: there is no such program")

        second.on_start = refuse
        first.hello("a")
        first.say("a", phase_done=pb.PhaseDone(phase="run"))
        await phase(repeat)
        assert "no such program" in repeat.failed["b"]["what"]

    assert drive(tmp_path, work, text=HEAD.replace("b: {", "b: {allow_failure: true, ")) < 1


def test_nobody_waits_for_the_hello_of_one_that_may_fail(tmp_path: Path) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def done(name: str) -> None:
            assert asyncio.get_running_loop().time() < 1
            first.say(name, phase_done=pb.PhaseDone(phase="run"))

        first.on_enter = done
        first.hello("a")
        await phase(repeat)
        assert "its hello" in repeat.failed["b"]["what"]

    assert drive(tmp_path, work, text=HEAD.replace("b: {", "b: {allow_failure: true, ")) == 10


def test_a_background_component_has_to_stay(tmp_path: Path) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        first.say("a", ready=pb.Ready())
        second.say("b", ready=pb.Ready())
        await phase(repeat)
        second.say("b", exited=pb.Exited(code=0))
        with pytest.raises(ComponentsFailed, match="it is to be alive at the run's end"):
            await repeat._drain()

    text = HEAD.replace("b: {", "b: {background: true, ") + "drain: 1s\n"
    drive(tmp_path, work, ("started", "started"), text)


@pytest.mark.parametrize("component", ["nobody", "a"])
def test_what_a_host_cannot_know_ends_the_run_at_once(tmp_path: Path, component: str) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        first.hello("a")
        second.say(component, ready=pb.Ready())
        said = f"host h2: its agent reports an event of '{component}', which is not on it"
        with pytest.raises(RunFailed, match=said):
            await phase(repeat)

    assert drive(tmp_path, work) < 1


def test_an_agent_that_ends_ends_the_run_at_once(tmp_path: Path) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        first.hello("a")
        second.events.put_nowait(None)
        with pytest.raises(RunFailed, match="host h2: its agent is gone"):
            await phase(repeat)

    assert drive(tmp_path, work) < 1


@pytest.mark.parametrize("answers", [True, False])
def test_a_host_that_is_lost_after_its_peer_failed(tmp_path: Path, answers: bool) -> None:
    """The host may be why, unless its agent answered after the failure was known."""

    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        second.answers = answers
        first.hello("a")
        second.hello("b")
        first.say("a", exited=pb.Exited(code=7))
        with pytest.raises(ComponentsFailed) as failed:
            await phase(repeat)
        assert str(failed.value).startswith("a on h1 failed in phase run: exit status 7")
        assert "stopped because of that: b (h2)" in str(failed.value)
        assert repeat.completed(failed.value).first_line == failed.value.first_line
        # It is noticed while all is collected.
        repeat._collecting = True
        second.events.put_nowait(None)
        await asyncio.sleep(1)
        said = str(repeat.completed(failed.value))
        assert "stopped because of that" not in said
        if answers:
            assert said.startswith("a on h1 failed in phase run: exit status 7")
            assert "\nafter that, host h2: its agent is gone" in said
        else:
            assert said.startswith("host h2: its agent is gone\n  in phase run, ")
            assert "\n  lost with it: b\ncorrected: " in said
            assert "lost), a on h1 failed in phase run: exit status 7\n" in said

    drive(tmp_path, work)


def test_a_peer_that_fails_after_the_loss_was_shown_is_in_the_last_statement(
    tmp_path: Path,
) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def end(_: str) -> None:
            second.events.put_nowait(None)

        first.hello("a")
        second.hello("b")
        second.on_enter = end
        with pytest.raises(ComponentsFailed) as failed:
            await phase(repeat)
        assert str(failed.value).startswith("host h2: its agent is gone\n")
        end_of_it = "\n  lost with it: b\nstopped because of that: a (h1)"
        assert str(failed.value).endswith(end_of_it)
        failed.value.show(Silent())
        first.say("a", exited=pb.Exited(code=7))
        await asyncio.sleep(1)
        said = repeat.completed(failed.value).to_show
        assert said.startswith("host h2: its agent is gone\nbefore or after that")
        assert "a on h1 failed in phase run: exit status 7\n" in said
        assert "corrected" not in said and "stopped" not in said

    drive(tmp_path, work)


def test_a_request_that_finds_an_agent_gone_names_the_loss(tmp_path: Path) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        second.events.put_nowait(None)
        failure = await repeat.failure_of_loss(second.lost())
        assert str(failure).startswith("host h2: its agent is gone\n  in phase start-up, ")

    drive(tmp_path, work)


def test_one_that_ends_before_it_is_asked_says_how(tmp_path: Path) -> None:
    """The agent refuses; the cause is the program's end."""

    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def refuse(component: str) -> None:
            second.say(component, exited=pb.Exited(code=3))
            refused = pb.PhaseRefused(phase="run", error="it has ended")
            second.say(component, phase_refused=refused)

        second.on_enter = refuse
        first.hello("a")
        second.hello("b")
        with pytest.raises(ComponentsFailed, match="b on h2 failed in phase run: exit status 3"):
            await phase(repeat)

    assert drive(tmp_path, work) < 1


@pytest.mark.parametrize("ended", [True, False])
def test_one_that_cannot_begin_a_phase_ends_the_run_with_the_reason(
    tmp_path: Path, ended: bool
) -> None:
    """Its regular end alone would be no failure of a component that nobody waits for."""

    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        async def refuse(component: str) -> None:
            if ended:
                second.say(component, exited=pb.Exited(code=0))
            refused = pb.PhaseRefused(phase="run", error="no\r time")
            second.say(component, phase_refused=refused)

        second.on_enter = refuse
        first.hello("a")
        second.hello("b")
        ending = r" \(exit status 0\)" if ended else ""
        said = rf"b on h2 failed in phase run: it cannot begin phase run: no\\r time{ending}\n"
        with pytest.raises(ComponentsFailed, match=said):
            await phase(repeat)

    assert drive(tmp_path, work) < 1


@pytest.mark.parametrize(
    ("ready", "waits"),
    [
        ("{port: 5000}", "it waits for port 5000, on which nothing listens"),
        ("{line: up}", "it waits for a line on its stdout with 'up' in it"),
        ("{exit: 4}", "it waits for its end with exit status 4"),
        ("phases", "it waits for its hello"),
    ],
)
def test_a_timeout_says_what_it_waited_for(tmp_path: Path, ready: str, waits: str) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        second.say("b", ready=pb.Ready())
        with pytest.raises(PhaseTimedOut, match=waits):
            await phase(repeat)

    drive(tmp_path, work, (ready, "started"))


def test_what_a_component_prints_reaches_no_terminal_as_it_is(tmp_path: Path) -> None:
    async def work(repeat: Repeat, first: Agent, second: Agent) -> None:
        first.say("a", output=pb.Output(line="\x1b]0;owned\x07\rfine \x9b2J\tµ → \u202e"))
        first.say("a", phase_failed=pb.PhaseFailed(phase="run", error="\x1b[2J gone\nand more"))
        with pytest.raises(ComponentsFailed) as failed:
            await phase(repeat)
        text = str(failed.value)
        assert r"\x1b]0;owned\x07\rfine \x9b2J" + "\tµ → " + r"\u202e" in text
        assert "\\x1b[2J gone\nand more" in text
        assert printable(text) == text

    drive(tmp_path, work)


def test_a_limit_runs_out_once() -> None:
    loop = VirtualTime()

    async def main() -> list[float]:
        limit = Limit(3)
        left = [limit.left_s]
        for _ in range(2):
            await asyncio.sleep(2)
            left.append(limit.left_s)
        return left

    assert loop.run_until_complete(main()) == [3, 1, 0]
    loop.close()
