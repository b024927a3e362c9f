"""The local testbed for an ordinary user: in a user namespace, from an installed wheel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stamped_loop
from linked_pipeline import linked_pipeline
from machine import ROOT, Machine
from ordinary_user import OrdinaryUser
from same_pipeline import kind
from test_tcp_held import SINK
from test_tcp_held import SOURCE as SENDER

pytestmark = pytest.mark.usefixtures("root")
Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

PIPELINE = ROOT / "experiments" / "pipeline.yaml"
COUNT = "count=300"
LACKING = {"cgroups", "AF_XDP", "real-time priorities", "affinity of interrupts", "other users"}
# A run that goes on until it is ended. What `hider` starts has no mark, no session and no network
# namespace of the run any more.
LONG = """\
name: long
hosts: [h1, h2]
components:
  sleeper: {host: h2, run: sleep 600, start: run, ready: {exit: 0}}
  hider: {host: h1, run: [sh, -c, "env -i setsid unshare -n tail -f HOME/long.yaml & sleep 600"]}
phases: [{name: run, timeout: 600s}]
"""
# `node` computes for 4 ms of each message on a processor that four processes of `hog` want too.
SOURCE = """
import socket, time
from loopscope_trace import flow_out

sent = flow_out("msg", "sent")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
time.sleep(0.5)
for number in range(50):
    time.sleep(0.1)
    sent(number)
    conn.sendto(number.to_bytes(8, "little"), ("h2", 7001))
"""
NODE = """
import socket, time
from loopscope_trace import flow_in, flow_out

received, done = flow_in("msg", "received"), flow_out("msg", "done")
conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
conn.bind(("", 7001))
for _ in range(50):
    number = int.from_bytes(conn.recv(8), "little")
    received(number)
    end = time.thread_time() + 0.004
    while time.thread_time() < end:
        pass
    done(number)
"""
HOG = """
import itertools, os
os.fork()
os.fork()
print("here", flush=True)
all(itertools.count(1))
"""
WAITS = """\
name: waits
hosts: [h1, h2]
components:
  node: {host: h2, run: taskset -c 1 python ./node.py, start: run, ready: {exit: 0}}
  source: {host: h1, run: python ./source.py, start: run, ready: {exit: 0}}
  hog: {host: h2, run: taskset -c 1 python ./hog.py, ready: {line: here}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["msg:*"]}
measure: {paths: {msg: {key: id, events: [source/msg:sent, node/msg:received, node/msg:done]}}}
expect: [msg.p90 < 8ms]
"""
HELD = """\
name: held
hosts: [h1, h2, h3]
components:
  window: {host: h1, run: python ./sender.py window h2 7001 12 0.2, start: run, ready: {exit: 0}}
  window-sink: {host: h2, run: python ./sink.py window 7001, ready: {port: 7001}}
  lost: {host: h1, run: python ./sender.py lost h3 7002 80 0.05, start: run, ready: {exit: 0}}
  lost-sink: {host: h3, run: python ./sink.py lost 7002, ready: {port: 7002}}
network:
  h1 -> h3: {delay: 10ms, loss: {every: 15}}
  h3 -> h1: {delay: 10ms}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["msg:*"]}
measure:
  paths:
    window: {key: id, events: [window/msg:sent, window-sink/msg:received]}
    lost: {key: id, events: [lost/msg:sent, lost-sink/msg:received]}
expect: [window.p90 < 80ms]
"""
KERNEL = """\
trace:
  user: ["pipe:*"]
  kernel: ["sched:*"]
  messages: {frame: {protocol: udp, to: 7}}
"""
HIDDEN = "tail -f HOME/long.yaml"


def until(what: Callable[[], bool], patience_s: float = 30) -> None:
    """Waits until it is so."""
    end = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.02)


def manifest(folder: Path) -> dict[str, Any]:
    """The newest run's."""
    (latest,) = folder.glob("runs/*/latest")
    read: dict[str, Any] = json.loads((latest / "manifest.json").read_text())
    return read


def test_kernel_events_that_a_user_may_not_record_are_missed_and_told(
    user: OrdinaryUser, results: Read
) -> None:
    text = PIPELINE.read_text().replace('trace: {user: ["pipe:*"]}', KERNEL)
    frames = "paths:\n    frames: {events: [source/frame:sent, node1/frame:received]}\n"
    text = text.replace("paths:\n", frames) + "  - frames.lost == 0\n"
    assert KERNEL in text and frames in text
    file = user.home / "kernel.yaml"
    file.write_text(text)
    done = user.command("run", file, "--json", "-p", COUNT)
    read = results(done)
    assert read["paths"]["loop"]["count"] == 300, done.stderr
    assert "tracefs cannot be mounted, which takes root" in " ".join(done.stderr.split())
    told = [each for each in read["problems"] if "tracefs cannot be mounted" in each]
    assert len(told) == 1 and set(read["kernel"]["classes"]) == {"schedstat", "tcpinfo"}
    assert "which takes root" in read["kernel"]["unrecorded"]["_kernel"]
    # Nothing is told of messages then, and nothing is claimed of them.
    last = read["expectations"][-1]
    assert (last["text"], last["verdict"]) == ("frames.lost == 0", "UNKNOWN"), last
    assert read["watched"] == {"frame": {"events": {"sent": 0, "received": 0}, "missing": None}}


def test_the_demo_gives_the_same_kind_of_result_as_for_root(
    user: OrdinaryUser, machine: Machine, results: Read
) -> None:
    done = user.command("run", PIPELINE, "--json", "-p", COUNT)
    assert done.stdout, done.stderr
    read = results(done)
    loop = read["paths"]["loop"]
    # What each hop sends and receives is stamped too.
    assert (loop["count"], loop["lost"], read["loss"]["recorded"]) == (300, 0, 16 * 300)
    for hop in loop["hops"]:
        assert hop["min_ns"] >= -hop["err_ns"], hop
    # It is shown once at the start, and is in the manifest.
    lacking = {each["what"]: each for each in manifest(user.home)["lacking"]}
    assert set(lacking) == LACKING
    shown = " ".join(done.stderr.split())
    for what, each in lacking.items():
        assert shown.count(f"lack {what} ({each['why']})") == 1, shown
    # Without cgroups the variables of the environment tell whose a process is.
    for file in (user.home / "runs").glob("*/latest/base/1/hosts/*/env.json"):
        cgroup = json.loads(file.read_text())["cgroup"]
        assert cgroup["path"] is None and "lacking in manifest.json" in cgroup["why_none"]
    # The files are the user's, not some other number's.
    files = [path for path in (user.home / "runs").rglob("*") if not path.is_symlink()]
    assert len(files) > 50 and {path.stat().st_uid for path in files} == {user.uid}

    of_root = machine.command("run", PIPELINE, "--json", "-p", COUNT)
    found = results(of_root)
    # Nobody asked for the kernel's events: where they cannot be had, their line says it.
    kernel, of_user = found.pop("kernel"), read.pop("kernel")
    assert set(kernel["classes"]) - {"sleep", "drop"} == {"sched", "irq"}
    assert kernel["unrecorded"] == {}
    assert set(of_user["classes"]) == {"schedstat", "tcpinfo"}
    counts = of_user["classes"]["schedstat"]
    assert counts["emitted"] == counts["recorded"] > 0 and counts["dropped"] == 0
    assert "which takes root" in of_user["unrecorded"]["_kernel"]
    assert not any("kernel events: " in problem for problem in read.get("problems", []))
    assert kind(found) == kind(read)
    assert "other users" not in {each["what"] for each in manifest(machine.directory)["lacking"]}


@pytest.mark.full
def test_counts_of_threads_say_what_held_messages(user: OrdinaryUser, results: Read) -> None:
    """Without the kernel's events, what its counts tell: that a thread waited, and who ran."""
    texts = {"waits.yaml": WAITS, "source.py": SOURCE, "node.py": NODE, "hog.py": HOG}
    for name, text in texts.items():
        user.write(name, text)
    done = user.command("run", "waits.yaml", "--json")
    assert done.returncode == 1, done.stderr
    (expected,) = results(done)["expectations"]
    waited = "node of h2 waited for a processor"
    assert expected["verdict"] == "FAIL" and f"runnable: {waited}" in expected["reason"], expected
    drawn = user.command("figure", "runs/waits/latest", "causes", "msg")
    assert drawn.returncode == 2 and "has counts of threads alone" in drawn.stderr, drawn.stderr
    told = user.command("why", "runs/waits/latest", "--over", "8ms", "--json")
    messages = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(messages) > 10, told.stderr
    for message in messages:
        for hop in message["hops"]:
            assert sum(part["ns"] for part in hop["parts"]) == hop["ns"]
            assert all(part["ns"] > 0 for part in hop["parts"])
    # Other tests' programs may have the processor too.
    causes = [{part["cause"] for hop in each["hops"] for part in hop["parts"]} for each in messages]
    named = [any(f"{waited}, while hog of h2" in cause for cause in each) for each in causes]
    assert sum(named) >= len(messages) / 4, causes


@pytest.mark.full
def test_counts_of_connections_say_what_tcp_held(user: OrdinaryUser, results: Read) -> None:
    """A reader that is slow, and segments that are sent again, by TCP's own counts."""
    # The counts are looked at every 10 ms.
    sink = SINK.replace("time.sleep(0.002)", "time.sleep(0.006)")
    for name, text in {"held.yaml": HELD, "sender.py": SENDER, "sink.py": sink}.items():
        user.write(name, text)
    done = user.command("run", "held.yaml", "--json")
    assert done.returncode == 1, done.stderr
    (expected,) = results(done)["expectations"]
    full = "held: by TCP of h1: the receiver's window was full"
    assert expected["verdict"] == "FAIL" and full in expected["reason"], expected
    late = {}
    for path, over in (("window", "80ms"), ("lost", "150ms")):
        told = user.command("why", "runs/held/latest", "--path", path, "--over", over, "--json")
        late[path] = [json.loads(line)["hops"][0] for line in told.stdout.splitlines()]
        for hop in late[path]:
            assert sum(part["ns"] for part in hop["parts"]) == hop["ns"]
    held = [{part["cause"]: part["ns"] for part in hop["parts"]} for hop in late["window"]]
    assert len(held) > 9 and all(full.removeprefix("held: ") in each for each in held), held
    again = [
        part["ns"] > hop["ns"] / 2
        for hop in late["lost"]
        for part in hop["parts"]
        if part["cause"] == "by TCP of h1: sent again"
    ]
    assert late["lost"] and sum(again) >= 0.9 * len(late["lost"]), late["lost"]


@pytest.mark.full
def test_links_are_emulated_through_af_packet(user: OrdinaryUser, results: Read) -> None:
    user.write("links.yaml", linked_pipeline("h1 -> h2: {delay: 7ms, rate: 10Mbit}", count=50))
    read = results(user.command("run", "links.yaml", "--json"))
    assert read["verdict"] == "PASS"
    assert read["paths"]["loop"]["min_ns"] > 7_000_000
    (repeat,) = user.home.glob("runs/*/latest/base/1")
    links = json.loads((repeat / "hosts/_router/components/_links/files/links.json").read_text())
    assert links["mover"] == "tap"
    asked = user.command("net", "show")
    assert asked.returncode != 0, "no link is emulated any more"


def test_a_mover_that_needs_root_is_refused_before_anything_starts(user: OrdinaryUser) -> None:
    user.write("xdp.yaml", linked_pipeline("mover: xdp", "h1 -> h2: {delay: 7ms}"))
    done = user.command("run", "xdp.yaml")
    assert done.returncode == 4, done.stderr
    said = " ".join(done.stderr.split())
    assert "`mover: xdp`, and the hosts lack AF_XDP (" in said and "leave `mover` out" in said, said
    assert "starting" not in said


LIVE = """\
name: live
hosts: [h1, h2]
network: {h1 -> h2: {delay: 3ms}}
components: {a: {host: h1, run: sleep 600, start: run, ready: {exit: 0}}}
phases: [{name: run, timeout: 600s}]
"""


def running(user: OrdinaryUser, name: str, text: str, mark: str) -> subprocess.Popen[str]:
    """Starts a run and waits until a program of it runs, whose command is ``mark``."""
    user.write(name, text.replace("HOME", str(user.home)))
    mark = mark.replace("HOME", str(user.home))
    started = user.start("run", name)
    until(lambda: mark in user.processes().values() or started.poll() is not None)
    assert started.poll() is None, started.communicate()
    return started


@pytest.mark.full
def test_links_are_changed_from_a_second_terminal(user: OrdinaryUser) -> None:
    started = running(user, "live.yaml", LIVE, "sleep 600")
    changed = user.command("net", "set", "h1 -> h2", "delay=9ms")
    assert changed.returncode == 0, changed.stderr
    assert started.poll() is None
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)


@pytest.mark.full
def test_an_interrupted_run_leaves_nothing(user: OrdinaryUser) -> None:
    started = running(user, "long.yaml", LONG, HIDDEN)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130, said
    assert manifest(user.home)["status"] == "interrupted"


def agent_of(user: OrdinaryUser) -> int:
    """The launcher of the machine's agent: the first of its processes."""
    agents = (pid for pid, of in user.processes().items() if "agent --run" in of)
    return min(agents)


@pytest.mark.full
@pytest.mark.parametrize("whom", ["controller", "agent"])
def test_a_killed_process_takes_everything_with_it(user: OrdinaryUser, whom: str) -> None:
    started = running(user, "long.yaml", LONG, HIDDEN)
    if whom == "controller":
        started.kill()
    else:
        # The launcher is outside, the agent is its child and the first of its namespace.
        children = Path(f"/proc/{agent_of(user)}/task/{agent_of(user)}/children").read_text()
        os.kill(int(children), signal.SIGKILL)
    _, said = started.communicate(timeout=60)
    if whom == "agent":
        # The first cause, however its lines are cut.
        assert "loopscope: host " in said and "killed by SIGKILL" in " ".join(said.split()), said
    until(lambda: not user.processes())


@pytest.mark.full
def test_what_a_killed_launcher_left_is_removed_by_reset(user: OrdinaryUser) -> None:
    started = running(user, "long.yaml", LONG, HIDDEN)
    os.kill(agent_of(user), signal.SIGKILL)
    _, said = started.communicate(timeout=60)
    assert "its agent is gone" in said, said
    until(lambda: not user.processes())
    assert [path.suffix for path in (user.state / "ledger").iterdir()] == [".jsonl"]
    done = user.command("reset", "--json")
    removed = json.loads(done.stdout)
    assert removed["problems"] == [] and removed["removed"], removed


@pytest.mark.full
def test_two_runs_at_once_do_not_meet(user: OrdinaryUser) -> None:
    first = running(user, "long.yaml", LONG, HIDDEN)
    second = user.command("run", PIPELINE, "--json", "-p", "count=50")
    assert json.loads(second.stdout)["paths"]["loop"]["count"] == 50, second.stderr
    reset = json.loads(user.command("reset", "--json").stdout)
    assert len(reset["in_use"]) == 1 and not reset["removed"], reset
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)


ORPHANS = """\
for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.1 & sleep 0.01) & done
wait
while cat /proc/[0-9]*/stat 2> /dev/null | grep -q '(sleep)'
do :; done
"""
SMALL = """\
name: small
hosts: [h1]
components:
  a: {host: h1, run: COMMAND, ready: {exit: 0}, start: run}
phases: [{name: run, timeout: 20s}]
"""


@pytest.mark.full
def test_orphans_are_waited_for(user: OrdinaryUser) -> None:
    """The machine's agent is the first process of the namespace, so they become its children."""
    user.write("orphans.sh", ORPHANS)
    user.write("small.yaml", SMALL.replace("COMMAND", "sh ./orphans.sh"))
    done = user.command("run", "small.yaml")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def delegated(user: OrdinaryUser) -> Iterator[Path]:
    """A cgroup that is the user's, as systemd delegates one; nothing may be left in it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    places = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    if not places:
        pytest.skip("SKIPPED LOUDLY: no cgroups of version 2 are mounted")
    group = places[0] / f"loopscope-tests-{os.getpid()}"
    group.mkdir()
    for path in (group, group / "cgroup.procs"):
        os.chown(path, user.uid, -1)
    yield group
    left = [path for path in group.iterdir() if path.is_dir()]
    for path in (*left, group):
        path.rmdir()
    assert not left


@pytest.mark.full
def test_a_delegated_cgroup_is_used(user: OrdinaryUser, delegated: Path) -> None:
    user.write("small.yaml", SMALL.replace("COMMAND", "cat /proc/self/cgroup"))
    enter = ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', delegated]
    done = user.run([*enter, *user.words("run", "small.yaml")])
    assert done.returncode == 0, done.stderr
    assert "cgroups" not in {each["what"] for each in manifest(user.home)["lacking"]}
    (own,) = user.home.glob("runs/*/latest/base/1/hosts/h1/components/a/")
    run = (user.home / "runs" / "small" / "latest").resolve().name.rpartition("-")[2]
    assert f"0::/{delegated.name}/ls-{run}/h1/a\n" in (own / "stdout.log").read_text()
    assert json.loads((own / "exit.json").read_text())["cpu"]["user_us"] >= 0


@pytest.mark.full
@pytest.mark.parametrize(("name", "works"), [("nobody", True), ("root", False)])
def test_a_component_can_be_its_own_user_only(user: OrdinaryUser, name: str, works: bool) -> None:
    user.write("check.sh", 'test "$USER" = "$1" && test "$(id -u)" = 0')
    command = f"sh ./check.sh {name}, user: {name}"
    user.write("small.yaml", SMALL.replace("COMMAND", command))
    done = user.command("run", "small.yaml")
    assert (done.returncode == 0) == works, done.stderr
    assert ("it is to run as user root, which only root can have it do" in done.stderr) != works


def test_doctor_lists_what_is_lacking(user: OrdinaryUser) -> None:
    found = json.loads(user.command("doctor", "--json").stdout)["findings"]
    by_name = {each["what"]: each for each in found}
    assert by_name["local testbed"]["ok"]
    for what in LACKING:
        finding = by_name[f"{what} on its hosts"]
        assert not finding["ok"] and finding["cost"], finding


def test_without_user_namespaces_it_says_what_to_do(user: OrdinaryUser, tmp_path: Path) -> None:
    """In a chroot the kernel refuses them."""
    user.write("small.yaml", SMALL.replace("COMMAND", "'true'"))
    words = user.words("run", "small.yaml")
    become = words.index("setpriv")
    inner = ["sh", "-c", 'mount --rbind / "$0" && exec chroot "$0" "$@"', tmp_path]
    there = ["sh", "-c", 'cd "$HOME" && exec "$@"', "sh"]
    done = user.run([*words[:become], *inner, *there, *words[become:]])
    assert done.returncode != 0
    assert "cannot make hosts without root: user and PID namespaces" in done.stderr, done.stderr
    assert "run loopscope with sudo" in done.stderr
    assert not json.loads(user.command("reset", "--json").stdout)["removed"]


@pytest.mark.full
def test_stamps_of_sockets_tell_the_way_from_the_wait(user: OrdinaryUser, results: Read) -> None:
    """Messages wait 12 ms on a link, and then until their reader has slept, which it times."""
    programs = stamped_loop.programs(ROOT / "docs/guide/why.md")
    for name, text in {**programs, "s.yaml": stamped_loop.TEXT}.items():
        user.write(name, text)
    read = results(user.command("run", "s.yaml", "--json"))
    why = user.command("why", "runs/stamped/latest", "--worst", "120", "--json")
    hops = [json.loads(line)["hops"][0] for line in why.stdout.splitlines()]
    assert len(hops) == read["paths"]["msg"]["count"] == 120, why.stderr
    ways, waits, left = [], [], 0
    for hop in hops:
        parts = [(part["cause"], part["ns"]) for part in hop["parts"]]
        assert sum(ns for _, ns in parts) == hop["ns"]
        told = [cause for cause, _ in parts]
        # A stamp that is recorded late is not taken for its message's. Mostly the message came
        # while the program that emulates the link was still in the call that sent it on.
        come = {"what emulates h1 → h2 sent it on", "until it came to h2"} & {*told}
        if come:
            way = max(told.index(cause) for cause in come) + 1
            causes = Counter(dict(parts))
            late = causes["in the ring of what emulates h1 → h2"] + causes["h1 → h2 was late"]
            link = causes["the emulated link h1 → h2, as it is set"]
            assert link + late > 11_900_000, parts
            ways.append(sum(ns for _, ns in parts[:way]))
            waits.append(hop["ns"] - ways[-1])
        left += "until it left h1" in told
    assert len(ways) > 60
    # The link is never early, and mostly in time.
    assert min(ways) >= 12_000_000 and sorted(ways)[30] < 16_000_000, sorted(ways)
    assert sum(wait > 5_000_000 for wait in waits) > 20, sorted(waits)
    assert left > 100


@pytest.mark.full
def test_settings_of_the_machine_take_root(user: OrdinaryUser) -> None:
    value = Path("/proc/sys/vm/stat_interval").read_text()
    user.write(
        "tuned.yaml",
        "name: tuned\nhosts: [h1]\nsettings: {sysctls: {vm.stat_interval: 7}}\n"
        "components: {program: {host: h1, run: touch began, ready: {exit: 0}}}\n"
        "phases: [{name: run, timeout: 30s}]\n",
    )
    done = user.command("run", "tuned.yaml")
    assert done.returncode == 4, done.stderr
    assert "only root can change those of a machine" in " ".join(done.stderr.split())
    assert not (user.home / "began").exists()
    assert Path("/proc/sys/vm/stat_interval").read_text() == value
