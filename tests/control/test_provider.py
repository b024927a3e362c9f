"""A run on hosts that only the test knows: control needs nothing but the provider's interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest

from loopscope import __version__
from loopscope.control import BASE, Interruption, RunDirectory, RunFailed, Silent, measure
from loopscope.control.collection import Collection, collected_later
from loopscope.control.spare_time import SpareTime
from loopscope.control.stages import STARTS_IN_ALL
from loopscope.experiment import load
from loopscope.provider import AgentError, AgentLost, Host, Lack, Request, Testbed, TestbedError
from loopscope.provider._proto import agent_pb2 as pb
from loopscope.provider.left_out import LeftOut

FILE = """
name: simulated
hosts: [h1, h2, h3]
phases: [{name: connect, timeout: 5s}, {name: run, timeout: 5s, measured: true, common_start: 20ms}]
components:
  a: {host: h1, run: a}
  b: {host: h3, run: b}
"""


class SimulatedAgent:
    """An agent whose components speak the phase protocol, and do at once what they are asked."""

    starting = 0
    most_starting = 0
    """Starts that all agents were asked for at the same time, now and at most."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.events: asyncio.Queue[pb.Event] = asyncio.Queue()

    def __getattr__(self, name: str) -> Any:
        async def ask(*words: Any, **_: Any) -> Any:
            self.log.append(" ".join([name, *(w for w in words[:2] if isinstance(w, str))]))
            return REPLIES.get(name)

        return ask

    async def watch(self) -> AsyncIterator[pb.Event]:
        while True:
            yield await self.events.get()

    async def start(self, component: str, *_: Any, **__: Any) -> None:
        agents = SimulatedAgent
        agents.starting += 1
        agents.most_starting = max(agents.starting, agents.most_starting)
        await asyncio.sleep(0.002)
        agents.starting -= 1
        self.log.append(f"start {component}")
        hello = pb.PhaseHello(phases=["connect", "run"])
        self.events.put_nowait(pb.Event(component=component, phase_hello=hello))
        self.events.put_nowait(pb.Event(component=component, ready=pb.Ready()))

    async def enter_phase(
        self, component: str, phase: str, measured: bool, peers: str, start_ns: int | None
    ) -> None:
        b = json.loads(peers)["b"]
        several = f" of {' '.join(b['addresses'])}" if "addresses" in b else ""
        self.log.append(f"{component} {phase} {b['address']}{several} {start_ns}")
        done = pb.PhaseDone(phase=phase)
        self.events.put_nowait(pb.Event(component=component, phase_done=done))


REPLIES: dict[str, Any] = {
    "hello": (__version__, ""),
    "read_clock": pb.ReadClockReply(half_width_ns=1000, now=pb.GlobalInstant(global_ns=5)),
    "stop_clock": pb.StopClockReply(),
    "stop_peers": [],
    "finish_trace": pb.FinishTraceReply(),
}


class Simulated(Testbed):
    """Hosts without machines; ``lost`` is why hosts could not be collected.

    The others are what hosts have that is their own, by name.
    """

    lost: ClassVar[dict[str, str]] = {}
    addresses: ClassVar[dict[str, tuple[str, ...]]] = {}
    clock_addresses: ClassVar[dict[str, tuple[str, ...]]] = {}
    more_lacking: ClassVar[dict[str, list[Lack]]] = {}

    def __init__(self, request: Request, log: list[str], fails: bool = False) -> None:
        super().__init__()
        self.request, self.log, self.fails = request, log, fails
        self.uncollected = dict(self.lost)

    async def make(self) -> None:
        for number, name in enumerate(self.request.hosts, start=1):
            (self.request.directory / "hosts" / name).mkdir(parents=True)
            agent: Any = SimulatedAgent(self.log)
            addresses = self.addresses.get(name) or (f"192.0.2.{number}",)
            clock = self.clock_addresses.get(name) or (f"198.51.100.{number}",)
            lacking = [Lack("wings", "too heavy", "no flight"), *self.more_lacking.get(name, ())]
            self.hosts[name] = Host(name, agent, {"data": addresses, "clock": clock}, lacking)
        if self.fails:
            raise TestbedError("no power in the rack")

    async def fetch(self) -> None:
        self.log.append("fetched")
        self.left_out["h1"] = LeftOut(1, {"components/a/files/l": "a symbolic link"})
        files = self.request.directory / "hosts/h3/components/b/files"
        files.mkdir(parents=True)
        (files / "here").symlink_to("/")

    async def remove(self) -> None:
        self.log.append(f"removed {', '.join(self.hosts)}")
        self.problems.append("h2 does not answer")


class Noting(Silent):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class NotedSpareTime(SpareTime):
    """Writes down when it goes on and when it pauses."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def begin(self) -> None:
        self.log.append("spare time begins")

    async def pause(self) -> None:
        self.log.append("spare time is over")


def run(
    folder: Path,
    fails: bool = False,
    more: str = "",
    text: str = FILE,
    whole: bool = False,
    spares: bool = False,
) -> tuple[list[str], list[str], RunDirectory]:
    """Runs a file on simulated hosts; what their agents were asked, notes, and the directory.

    ``whole``: the run writes down how it ended, and raises what it raises. ``spares``: what they
    were asked has the spare time in it.
    """
    file = folder / "simulated.yaml"
    file.write_text(text + more)
    experiment = load(file)
    log: list[str] = []
    progress = Noting()
    directory = RunDirectory(folder, experiment, file.read_bytes(), __version__)
    interruption = Interruption(progress)

    def provider(request: Request) -> Testbed:
        return Simulated(request, log, fails)

    try:
        with directory.being_made(progress) if whole else nullcontext():
            spare = NotedSpareTime(log) if spares else None
            measure(experiment, provider, directory, BASE, 0, progress, interruption, spare)
    except RunFailed as error:
        if whole:
            raise
        log.append(f"failed: {error}")
    return log, progress.notes, directory


def test_a_run_needs_nothing_of_its_hosts_but_the_interface(tmp_path: Path) -> None:
    log, notes, directory = run(tmp_path)
    entered = [line for line in log if line.startswith(("a ", "b "))]
    assert sorted(entered[:2]) == ["a connect 192.0.2.3 None", "b connect 192.0.2.3 None"]
    assert sorted(entered[2:]) == ["a run 192.0.2.3 20000005", "b run 192.0.2.3 20000005"]
    assert "start_clock_reference 198.51.100.1" in log
    followers = [line for line in log if line.startswith("start_clock_follower")]
    assert followers == [
        f"start_clock_follower 198.51.100.{host} 198.51.100.1:None" for host in (2, 3)
    ]
    assert log.count("finish_trace") == 3
    assert log[-2:] == ["fetched", "removed h1, h2, h3"]
    assert notes == [
        "hosts lack wings (too heavy): no flight",
        "h2 does not answer",
        "host h1: 1 entry is left out: components/a/files/l (a symbolic link)",
        "host h3: 1 entry is left out: components/b/files/here (a symbolic link)",
    ]
    assert directory.measured == 1


def test_nothing_else_is_done_while_components_run(tmp_path: Path) -> None:
    """From before the first one starts until all have ended."""
    log, _, _ = run(tmp_path, more="repeat: 2\n", spares=True)
    spare = [line for line in log if line.startswith("spare time")]
    assert spare == ["spare time begins", "spare time is over", "spare time begins"] * 2
    going_on = False
    for line in log:
        if line.startswith("spare time"):
            going_on = line == "spare time begins"
        elif line.startswith(("a ", "b ", "start ")) or line == "stop":
            assert not going_on, log
    assert log[0] == "spare time begins"


def test_a_recorder_that_begins_while_the_clocks_fail_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has begun by then, however long that takes."""

    class Kernel(SimulatedAgent):
        async def start_kernel(self, *_: Any, **__: Any) -> pb.StartKernelReply:
            for _ in range(20):
                await asyncio.sleep(0)
            self.log.append("kernel begun")
            return pb.StartKernelReply()

        async def finish_kernel(self) -> pb.FinishKernelReply:
            self.log.append("kernel ended")
            return pb.FinishKernelReply()

    async def make(self: Simulated) -> None:
        await made(self)
        self.kernels = {"_kernel": Kernel(self.log)}

    async def refuse(self: SimulatedAgent, *_: Any, **__: Any) -> None:
        raise AgentError("h1", "there is no clock")

    made = Simulated.make
    monkeypatch.setattr(Simulated, "make", make)
    monkeypatch.setattr(SimulatedAgent, "start_clock_reference", refuse, raising=False)
    log, _, _ = run(tmp_path, more="trace: {kernel: [sched:*]}\n")
    assert log.index("kernel begun") < log.index("kernel ended")
    assert log[-1] == "failed: host h1: there is no clock"


def test_hosts_start_at_the_same_time_but_not_all_of_many(tmp_path: Path) -> None:
    """A machine that has many hosts would else answer none of them in time."""
    hosts = [f"h{number}" for number in range(1, 151)]
    lines = ["name: many", f"hosts: [{', '.join(hosts)}]", "phases: [{name: run, timeout: 5s}]"]
    lines += ["components:", "  b: {host: h1, run: b}"]
    lines += [f"  c{host}: {{host: {host}, run: c}}" for host in hosts]
    SimulatedAgent.most_starting = 0
    _, _, directory = run(tmp_path, text="\n".join(lines) + "\n")
    assert directory.measured == 1
    assert SimulatedAgent.most_starting == STARTS_IN_ALL


def test_hosts_that_could_not_all_be_made_are_removed(tmp_path: Path) -> None:
    log, notes, _ = run(tmp_path, fails=True)
    assert log == ["removed h1, h2, h3", "failed: no power in the rack"]
    assert notes == ["h2 does not answer"]


def test_what_hosts_lack_is_said_once_in_a_run(tmp_path: Path) -> None:
    _, notes, directory = run(tmp_path, more="repeat: 2\n")
    assert directory.measured == 2
    assert notes.count("hosts lack wings (too heavy): no flight") == 1
    read = json.loads((directory.path / "manifest.json").read_text())
    wings = {"what": "wings", "why": "too heavy", "cost": "no flight"}
    assert read["lacking"] == [{**wings, "hosts": ["h1", "h2", "h3"]}]


def test_what_some_hosts_lack_is_said_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fins, legs = Lack("fins", "too wet", "no dive"), Lack("legs", "too long", "no walk")
    more = {"h1": [fins], "h2": [legs], "h3": [legs, Lack("legs", "too short", "no walk")]}
    monkeypatch.setattr(Simulated, "more_lacking", more)
    _, notes, directory = run(tmp_path)
    assert notes[:4] == [
        "hosts lack wings (too heavy): no flight",
        "h1 lacks fins (too wet): no dive",
        "h2, h3 lack legs (too long): no walk",
        "h3 lacks legs (too short): no walk",
    ]
    read = json.loads((directory.path / "manifest.json").read_text())
    assert [each["hosts"] for each in read["lacking"]] == [
        ["h1", "h2", "h3"],
        ["h1"],
        ["h2", "h3"],
        ["h3"],
    ]


BOTH = ("192.0.2.3", "fd00::3")


def test_hosts_use_the_family_that_all_of_them_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulated, "addresses", {"h1": ("fd00::1",), "h2": BOTH, "h3": BOTH})
    clocks = {"h1": ("198.51.100.1", "fd01::1"), "h2": ("fd01::2",), "h3": ("fd01::3", "fd01::4")}
    monkeypatch.setattr(Simulated, "clock_addresses", clocks)
    log, notes, directory = run(tmp_path)
    assert directory.measured == 1
    entered = sorted(line for line in log if line.startswith(("a c", "b c")))
    # The others are there for programs that want them.
    assert entered == [f"{name} connect fd00::3 of fd00::3 192.0.2.3 None" for name in "ab"]
    assert "start_clock_reference fd01::1" in log
    followers = [line for line in log if line.startswith("start_clock_follower")]
    assert followers == [f"start_clock_follower fd01::{n} [fd01::1]:None" for n in (2, 3)]
    assert not [note for note in notes if "data addresses" in note]


def test_hosts_without_a_family_in_common_use_what_each_pair_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {"h1": ("fd00::1",), "h2": ("192.0.2.2",), "h3": BOTH}
    monkeypatch.setattr(Simulated, "addresses", addresses)
    log, notes, directory = run(
        tmp_path, text=FILE.replace("components:", f"components:\n{C}".rstrip())
    )
    assert directory.measured == 1
    assert [line for line in sorted(log) if line.startswith(("a c", "b c", "c c"))] == [
        "a connect fd00::3 of fd00::3 192.0.2.3 None",
        "b connect 192.0.2.3 of 192.0.2.3 fd00::3 None",
        "c connect 192.0.2.3 of 192.0.2.3 fd00::3 None",
    ]
    (note,) = (note for note in notes if "data addresses" in note)
    assert "IPv4 on h2, IPv6 on h1, IPv4 and IPv6 on h3; " in note and "`data` in `mach" in note


UNEQUAL = {"h1": BOTH, "h2": ("192.0.2.2",), "h3": ("fd00::3",)}
C = "  c: {host: h2, run: c}\n"


def refusal(what: str, network: str) -> str:
    return (
        f"failed: {what}: the hosts have no {network} addresses of the same family: IPv4 and IPv6 "
        f"on h1, IPv4 on h2, IPv6 on h3; `{network}` in `machines` takes a list: "
        "give each of these hosts an address of the same family"
    )


def test_clock_probes_without_a_family_fail_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulated, "clock_addresses", UNEQUAL)
    log, _, _ = run(tmp_path)
    assert log == ["fetched", "removed h1, h2, h3", refusal("clock probes", "clock")]


def test_channels_without_a_family_fail_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only hosts with programs serve them."""
    monkeypatch.setattr(Simulated, "addresses", UNEQUAL)
    text = FILE.replace("components:", "channels: {frames: {home: a, item: 64B}}\ncomponents:")
    _, _, directory = run(tmp_path, text=text)
    assert directory.measured == 1
    log, _, _ = run(tmp_path, text=text.replace("components:", f"components:\n{C}".rstrip()))
    assert log == ["fetched", "removed h1, h2, h3", refusal("channels of several hosts", "data")]


def manifest(directory: RunDirectory) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((directory.path / "manifest.json").read_text())
    return read


def test_what_is_left_out_is_in_the_manifest_by_repeat_and_host(tmp_path: Path) -> None:
    _, _, directory = run(tmp_path, more="repeat: 2\n")
    entry = {"path": "components/a/files/l", "why": "a symbolic link"}
    for found in manifest(directory)["left_out"]:
        assert set(found) == {"h1", "h3"}
        assert found["h1"] == {"count": 1, "entries": [entry]}


def test_a_run_of_which_a_host_cannot_be_collected_fails_and_is_complete_when_it_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulated, "lost", {"h2": "host h2: cannot pack it"})
    with pytest.raises(RunFailed, match="^host h2: cannot pack it\nwhat was measured is in "):
        run(tmp_path, whole=True)
    (path,) = tmp_path.glob("simulated/2*")
    assert "host h2: cannot pack it" in (path / "base/1/journal.jsonl").read_text()
    read = json.loads((path / "manifest.json").read_text())
    assert (read["status"], read["uncollected"]) == ("failed", [{"h2": "host h2: cannot pack it"}])
    assert len(read["phases"]) == 1
    # What was not fetched is still missing.
    collected_later(path, path / "base/1", Collection(), [])
    assert json.loads((path / "manifest.json").read_text()) == read
    later = Collection({"h2": LeftOut(1, {"f": "a device"})})
    collected_later(path, path / "base/1", later, ["h2"])
    read = json.loads((path / "manifest.json").read_text())
    assert (read["status"], read["uncollected"]) == ("complete", [{}])
    assert set(read["left_out"][0]) == {"h1", "h2", "h3"}


def test_a_host_that_cannot_end_the_run_makes_it_fail_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(agent: SimulatedAgent) -> None:
        raise AgentError("h3", "cannot write the clock log: No space left on device")

    monkeypatch.setattr(SimulatedAgent, "stop_clock", full, raising=False)
    text = "host h3: it did not end the run in order: cannot write the clock log"
    with pytest.raises(RunFailed, match=f"^{text}"):
        run(tmp_path, whole=True)
    (path,) = tmp_path.glob("simulated/2*")
    collected_later(path, path / "base/1", Collection(), ["h1", "h2", "h3"])
    read = json.loads((path / "manifest.json").read_text())
    assert read["status"] == "failed" and text in read["unfinished"][0]["h3"]


class Peer(SimulatedAgent):
    """An agent whose component prints something half a second after a host was lost.

    It does so unless it has been asked to end.
    """

    def __init__(self, log: list[str], lost: asyncio.Event) -> None:
        super().__init__(log)
        self.lost = lost
        self.printing: asyncio.TimerHandle | None = None

    async def enter_phase(
        self, component: str, phase: str, measured: bool, peers: str, start_ns: int | None
    ) -> None:
        if not measured:
            await super().enter_phase(component, phase, measured, peers, start_ns)
            return
        line = pb.Event(component=component, output=pb.Output(line="nobody answers"))
        self.printing = asyncio.get_running_loop().call_later(0.5, self.events.put_nowait, line)
        self.lost.set()

    async def stop(self, *_: Any, **__: Any) -> None:
        if self.printing is not None:
            self.printing.cancel()
        self.log.append("stopped")


class Lost(SimulatedAgent):
    """An agent that is gone once ``lost`` is set."""

    alive_ns = 0

    def __init__(self, log: list[str], lost: asyncio.Event) -> None:
        super().__init__(log)
        self._lost = lost

    async def watch(self) -> AsyncIterator[pb.Event]:
        await self._lost.wait()
        return
        yield

    def lost(self) -> AgentLost:
        return AgentLost("h2", lambda: "its agent is gone")


def test_peers_of_a_lost_host_have_a_second_to_print_what_they_do_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make(bed: Simulated) -> None:
        await Simulated_make(bed)
        gone = asyncio.Event()
        agents: dict[str, Any] = {"h1": Peer(bed.log, gone), "h2": Lost(bed.log, gone)}
        for name, agent in agents.items():
            bed.hosts[name] = Host(name, agent, bed.hosts[name].addresses)

    Simulated_make = Simulated.make
    monkeypatch.setattr(Simulated, "make", make)
    log, _, directory = run(tmp_path)
    (failed,) = (line for line in log if line.startswith("failed: "))
    assert failed.startswith("failed: host h2: its agent is gone\n")
    assert failed.endswith("  a on h1 (or before it): nobody answers"), failed
    # The loss itself is shown before anything of that is waited for.
    journal = (directory.path / "base/1/journal.jsonl").read_text()
    entries = [json.loads(line) for line in journal.splitlines()]
    shown = next(
        n for n, each in enumerate(entries) if "its agent is gone" in each.get("failure", "")
    )
    assert entries[shown + 1]["stage"] == "ending components"


def test_a_point_that_is_fetched_later_makes_its_sweep_complete(tmp_path: Path) -> None:
    (tmp_path / "p=1").mkdir()
    points = [{"name": "p=1", "experiment": {"repeat": 2}}]
    failed = {"version": 1, "status": "failed", "uncollected": [{}, {"h1": "host h1: gone"}]}
    failed |= {"phases": [{}, {}], "error": "host h1: gone"}
    whole = {"status": "failed", "experiment": {"points": points, "repeat": 2}}
    (tmp_path / "manifest.json").write_text(json.dumps(whole))
    (tmp_path / "p=1/point.json").write_text(json.dumps(failed))
    collected_later(tmp_path, tmp_path / "p=1/2", Collection(), ["h1"])
    read = json.loads((tmp_path / "p=1/point.json").read_text())
    assert read["status"] == "complete" and "error" not in read
    assert json.loads((tmp_path / "manifest.json").read_text()) == {**whole, "status": "complete"}
