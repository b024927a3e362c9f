"""What ``doctor`` finds on machines that are not like this one."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loopscope.cli import app
from loopscope.experiment import Machine, kernel_events
from loopscope.testbed.examination import (
    Finding,
    clocks,
    examine_here,
    examine_machines,
    here,
    kernel,
    over_ssh,
)
from loopscope.testbed.examination.facts import Facts, script
from loopscope.testbed.reach import Reached


def facts(*lines: str, **answers: Any) -> Facts:
    """Facts with what programs answered, as JSON."""
    printed = [(name, json.dumps(answer)) for name, answer in answers.items()]
    said = [f"said {name} {text}" for name, line in printed for text in (line, "exit 0")]
    return Facts([*lines, *said])


def test_a_virtual_machine_without_vmclock_costs_the_notice_of_its_moves() -> None:
    finding = clocks.moves(facts("kind x86_64", "there hypervisor"))
    assert not finding.ok and "no /dev/vmclock0" in finding.found
    assert "snapshot" in finding.cost and "bounds may be wrong" in finding.cost
    unreadable = ("there hypervisor", "there /dev/vmclock0")
    finding = clocks.moves(facts(*unreadable))
    assert not finding.ok and finding.found == "/dev/vmclock0 is not readable"
    finding = clocks.moves(facts(*unreadable, "readable /dev/vmclock0"))
    assert finding.ok and finding.found == "VMClock, /dev/vmclock0"
    assert clocks.moves(facts("kind x86_64")).found == "the machine is not virtual"
    assert not clocks.moves(facts("kind aarch64")).ok


def test_an_event_that_the_kernel_does_not_have_costs_no_other_one() -> None:
    def found(**told: Any) -> list[Finding]:
        answer = dict.fromkeys(kernel.PROGRAMMED, {"why": "", "absent": {}}) | told
        return list(kernel.programs(facts(programs=answer)))

    (all_there,) = found()
    assert all_there.ok and all_there.what.endswith("classes sleep, tcp, udp, drop and call")
    # One that few kernels have.
    (works,) = found(sleep={"why": "", "absent": {"throttled": "no field"}})
    assert works.ok and "does not tell when a cgroup" in works.found
    # One of several events, the only one of a class, and a class that is refused.
    works, refused, gone, lacking = found(
        tcp={"why": "", "absent": {"tcp_send": "no tracepoint tcp_sendmsg_locked"}},
        drop={"why": "", "absent": {"packet_drop": "no tracepoint kfree_skb"}},
        call={"why": "no memory of threads", "absent": {}},
    )
    assert works.ok and works.what.endswith("classes sleep, tcp and udp")
    assert not gone.ok and gone.what.endswith("class call")
    assert gone.found == "no memory of threads"
    assert not refused.ok and refused.what.endswith("class drop")
    assert "drop:packet_drop (no tracepoint kfree_skb)" in refused.found
    assert not lacking.ok and lacking.found == (
        "there are no tcp:tcp_send (no tracepoint tcp_sendmsg_locked)"
    )
    # None at all, for one reason.
    root = {"why": "takes root", "absent": {}}
    (none,) = found(**dict.fromkeys(kernel.PROGRAMMED, root))
    assert not none.ok and none.found == "takes root"
    (failed,) = kernel.programs(Facts(["said programs exit 3"]))
    assert not failed.ok and failed.found == "exit status 3"


def test_what_netem_refuses_is_named() -> None:
    refusal = "the kernel takes it, but not all of it: duplicate is refused beside other qdiscs"
    tried = [
        {"mover": "xdp", "works": False, "why": "no AF_XDP"},
        {"mover": "tap", "works": True, "why": "a frame crossed a veth pair"},
        {"mover": "netem", "works": True, "why": refusal},
    ]
    host = Finding("loopscope-host", True, "there")
    found = here.judge(facts("uid 0", "capabilities 0", movers=tried), host)
    xdp, tap, netem = (each for each in found if each.what.startswith("mover "))
    assert not xdp.ok and xdp.found == "no AF_XDP" and xdp.cost
    assert tap.ok and "used by mover: auto" in tap.found
    assert netem.ok and refusal in netem.found


@pytest.mark.parametrize("why", ["its rate may change", None])
def test_what_the_kernels_clock_costs_is_told(why: str | None) -> None:
    found = {
        "pairs": 1,
        "within_ns": 171.0,
        "limit_ns": 1000,
        "refused": None,
        "counter": {
            "kind": "monotonic-raw",
            "given": why is None,
            "mistrust_of_cycles": why,
            "read_ns": 251.5,
            "step_ns": 72.0,
        },
    }
    cycles, one = clocks.counter(facts(counter=found))
    assert not cycles.ok and "a reading costs 251.5 ns, and it steps by 72 ns" in cycles.cost
    assert cycles.found == (why or "LOOPSCOPE_COUNTER asks for CLOCK_MONOTONIC_RAW")
    assert one.ok and "within 171 ns" in one.found


def test_tracepoints_that_this_kernel_does_not_have_are_named() -> None:
    mounted = ("uid 0", "tracefs /sys/kernel/tracing", "trace_clock [local] x86-tsc")
    traced, found = kernel.events(
        facts(*mounted, "absent sched/sched_waking", "absent napi/napi_poll")
    )
    assert traced.ok and traced.found == "yes, through tracefs"
    assert not found.ok and "sched:sched_waking, net:napi_poll, idle:" in found.found
    assert "sched_switch" not in found.found and "not observable" in found.cost
    frequencies = [f"there {kernel.CPU}/{each}" for each in ("cpufreq", "cpuidle")]
    assert len(list(kernel.events(facts(*mounted, *frequencies)))) == 1
    (traced, _) = kernel.events(facts(*mounted[:2], "trace_clock [local] mono_raw"))
    assert traced.ok and "monotonic-raw alone" in traced.found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["uid 0", "there tracefs", "capabilities 200000"], ""),
        (["uid 0", "there tracefs", "capabilities 1000"], "root may not mount it"),
        (["uid 0", "capabilities 200000"], "this kernel has no tracefs"),
        (["uid 7", "there tracefs", "capabilities 0"], "takes root: as user: root"),
        # Somebody has mounted it for the user.
        (["uid 7", "tracefs /traces", "trace_clock x86-tsc", "capabilities 0"], ""),
    ],
)
def test_why_the_kernel_cannot_be_recorded_is_told(lines: list[str], found: str) -> None:
    traced, *_ = kernel.events(facts(*lines), ": as user: root")
    assert traced.ok == (not found) and found in traced.found, traced


def test_each_class_of_kernel_events_has_its_source() -> None:
    told = " ".join(each.what for each in examine_here() if "kernel events of" in each.what)
    for name in kernel_events.CLASSES:
        assert re.search(rf"\b{name}\b", told), (name, told)


def test_programs_are_asked_and_files_are_found_by_one_script(tmp_path: Path) -> None:
    """The first mounted tracefs counts that is no run's and that can be used."""
    tracefs = tmp_path / "traces"
    (tracefs / "instances").mkdir(parents=True)
    (tracefs / "events/sched/sched_switch").mkdir(parents=True)
    (tracefs / "trace_clock").write_text("[local] global x86-tsc\n")
    (tmp_path / "ls-1/instances").mkdir(parents=True)
    points = ("/nowhere", f"{tmp_path}/ls-1", f"{tmp_path}\\040x", str(tracefs))
    mounts = "".join(f"1 2 0:3 / {point} rw shared:4 - tracefs none rw\n" for point in points)
    (tmp_path / "mounts").write_text("1 2 0:3 / / rw - ext4 tracefs rw\n" + mounts)
    programs = {
        "works": ["sh", "-c", "echo '  a warning' >&2; printf '{\"a\":\\n1}'; cat"],
        "fails": ["sh", "-c", "echo one; echo it\\'s two >&2; exit 3"],
        "dies": ["sh", "-c", "exit 4"],
        "absent": ["/nowhere/loopscope-host"],
    }
    text = script(["sched/sched_switch", "sched/sched_waking"], programs)
    asked = text.replace("/proc/self/mountinfo", str(tmp_path / "mounts"))
    done = subprocess.run(["sh", "-c", f"( {asked} ) 2>&1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    found = Facts(done.stdout.splitlines())
    assert found.all("tracefs") == [str(tracefs)]
    assert found.text("trace_clock") == "[local] global x86-tsc"
    assert found.all("absent") == ["sched/sched_waking"]
    answers = {name: found.answer(name) for name in programs}
    works, fails, dies, absent = answers.values()
    assert works is not None and works.failure == "" and works.read() == {"a": 1}
    assert fails is not None and fails.failure == "one; it's two"
    assert dies is not None and dies.failure == "exit status 4"
    assert absent is not None and absent.status in clocks.NO_PROGRAM and "nowhere" in absent.failure
    assert found.answer("another") is None


LOCAL = """
name: local
testbed: local
hosts: [h1]
components: {a: {host: h1, run: "true", start: run, ready: {exit: 0}}}
phases: [{name: run, measured: true, timeout: 1s}]
"""


@pytest.mark.parametrize("verb", [["doctor"], ["host", "setup"], ["reset", "--hosts"]])
def test_hosts_of_this_machine_are_no_machines(tmp_path: Path, verb: list[str]) -> None:
    file = tmp_path / "local.yaml"
    file.write_text(LOCAL)
    done = CliRunner().invoke(app, [*verb, str(file)])
    assert done.exit_code == 2 and "its testbed is local" in done.stderr, done.output


class Answering:
    """A machine that answers every question alike."""

    host, address, become = "h1", "h1", None

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    async def ask(self, asked: str, timeout_s: float) -> list[str]:
        """Its answer; to what its rights are, which is the last line, none."""
        rights = {"network": True, "tun": True, "realtime": True, "no_cgroup": None}
        return [json.dumps(rights), "0"] if "echo $?" in asked else self._lines


def test_what_a_machine_answers_is_a_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = dict.fromkeys(kernel.PROGRAMMED, {"why": "\x1b[2J[red]", "absent": {}})
    lines = ["uid 0", "capabilities 0"]
    said = f"said programs {json.dumps(programs)}"
    answering: Any = Answering([*lines, said, "said programs exit 0"])

    @asynccontextmanager
    async def logged_in(host: str, machine: Machine) -> AsyncIterator[Reached]:
        yield Reached(answering, "/kit", "0" * 64, "/runs", "", "", is_root=True)

    monkeypatch.setattr(over_ssh, "logged_in", logged_in)
    waited: list[str] = []

    def examined() -> over_ssh.Examined:
        found = asyncio.run(examine_machines({"h1": Machine("h1")}, waited.append))
        return found["h1"]

    found = examined()
    assert found.complete and not waited
    (told,) = (each for each in found.findings if "classes sleep" in each.what)
    assert not told.ok and told.found == "[2J[red]", told
    # No object, no number, no end.
    spoilt_ones = ("[]", "exit x", "{", '{"sleep": {"why": "", "absent": 1}}')
    for spoilt in (f"said programs {each}" for each in spoilt_ones):
        answering._lines = [*lines, spoilt, "said programs exit 0"]
        found = examined()
        assert not found.complete
        (told,) = found.findings
        assert told.what == "connection" and "its answers cannot be used" in told.found
