"""Emulated links between real machines: each host impairs what it sends."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from ssh_machines import SshMachines, run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]
HOSTS = ("h1", "h2")
AS_ROOT = "machines: {h1: {user: root}, h2: {user: root}}"
MS = 1_000_000

PIPELINE = f"""
name: linked
testbed: ssh
hosts: [h1, h2]
clocks: synthetic
{AS_ROOT}
network:
  h1 -> h2: {{delay: 30ms, at 300ms: {{delay: 60ms}}}}
  h2 -> h1: {{delay: 20ms}}
components:
  source: {{host: h1, run: loopscope-host pipe source,
           with: {{to: node, count: 300, period: 2ms, size: 32B}}}}
  node: {{host: h2, run: loopscope-host pipe node, with: {{to: sink}}}}
  sink: {{host: h1, run: loopscope-host pipe sink}}
  pinger: {{host: h1, run: ping -n -c 20 -i 0.02 192.0.2.12, start: run, ready: {{exit: 0}}}}
phases:
  - {{name: listen, timeout: 5s}}
  - {{name: connect, timeout: 5s}}
  - {{name: run, measured: true, timeout: 60s}}
trace: {{user: ["pipe:*"]}}
measure:
  paths:
    loop: {{key: id, events: [source/pipe:sent, node/pipe:received, sink/pipe:received]}}
expect: [loop.count == 300, loop.lost == 0]
"""

# No program of loopscope's: what is measured is what ping sees.
PING = """
name: pinged
testbed: ssh
hosts: [h1, h2]
machines: {machines}
network: {{h1 -> h2: {{delay: 5ms, loss: {{every: 10}}}}}}
components:
  pinger: {{host: h1, run: {command}, start: run, ready: {{exit: 0}}}}
phases: [{{name: run, measured: true, timeout: 60s}}]
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[SshMachines]:
    """Two machines; afterwards nothing may be left on them or on the desk."""
    made = SshMachines(tmp_path, HOSTS)
    try:
        made.make()
        yield made
        left = made.leftovers()
        assert not left, f"left behind: {left}"
    finally:
        made.remove()


def links_of(repeat: Path) -> dict[str, list[dict[str, Any]]]:
    """The segments of every link, by `FROM TO`, from the accounts of the hosts that send."""
    found = {}
    for host in HOSTS:
        file = repeat / f"hosts/{host}/components/_links-{host}/files/links.json"
        for link in json.loads(file.read_text())["links"]:
            assert link["from"] == host
            found[f"{host} {link['to']}"] = link["segments"]
    return found


def total(segments: list[dict[str, Any]]) -> tuple[int, int]:
    """Packets that came to a link, and all that became of them."""
    came = sum(each["in"]["packets"] for each in segments)
    went = sum(
        each["out"]["packets"] - each["duplicated"] + sum(each["dropped"].values()) + each["queued"]
        for each in segments
    )
    return came, went


def pinged(repeat: Path) -> tuple[int, int, float]:
    """Requests that ping sent, replies that it got, and its shortest round trip in ms."""
    text = (repeat / "hosts/h1/components/pinger/stdout.log").read_text()
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    shortest = re.search(r"min/avg/max/mdev = ([\d.]+)/", text)
    assert counts is not None and shortest is not None, text
    return int(counts[1]), int(counts[2]), float(shortest[1])


def test_each_direction_is_impaired_where_it_begins(machines: SshMachines, results: Read) -> None:
    done = machines.command("run", machines.write("linked.yaml", PIPELINE), "--json")
    assert done.returncode == 0, done.stderr
    read = results(done)
    assert read["verdict"] == "PASS"
    there, back = read["paths"]["loop"]["hops"]
    assert there["min_ns"] >= 30 * MS - there["err_ns"]
    assert there["max_ns"] >= 60 * MS - there["err_ns"]
    assert back["min_ns"] >= 20 * MS - back["err_ns"]
    repeat = machines.directory / "runs/linked/latest/base/1"
    segments = links_of(repeat)
    assert [each["asked"]["delay_ns"] for each in segments["h1 h2"]] == [30 * MS, 60 * MS]
    for each in segments["h1 h2"]:
        assert each["delay_ns"]["min"] >= each["asked"]["delay_ns"]
    assert segments["h2 h1"][0]["delay_ns"]["min"] >= 20 * MS
    # Nothing is asked of them between any two others, and nobody else's packets are in them.
    for link in segments.values():
        came, went = total(link)
        assert came == went >= 300
    sent, received, shortest_ms = pinged(repeat)
    assert sent == received == 20
    assert shortest_ms >= 50
    # The events of packets are those of the host that sends, and split the hops.
    departed = pq.read_table(repeat / "timeline/link/departed/part-0.parquet").to_pylist()
    hosts = {(row["from"], row["to"], row["host"], row["process"]) for row in departed}
    assert hosts == {(0, 1, "h1", "_links-h1"), (1, 0, "h2", "_links-h2")}
    (split,) = there["splits"]
    # TCP puts several messages into one packet until its window has grown.
    assert split["matched"] > 100 and split["matched"] + split["unseen"] == 300
    assert split["emulated"]["p50_ns"] >= 30 * MS
    assert read["loss"]["emitted"] == read["loss"]["recorded"] + read["loss"]["dropped"]
    assert not read["problems"], read["problems"]


@pytest.mark.parametrize("version", [4, 6])
def test_ping_loses_what_the_link_is_asked_to_lose(machines: SshMachines, version: int) -> None:
    if version == 6:
        for number, host in enumerate(HOSTS, start=11):
            machines.on(host, f"ip address add fd00::{number}/64 dev eth0 nodad")
        given = "{h1: {user: root, data: 'fd00::11'}, h2: {user: root, data: 'fd00::12'}}"
        command = "ping -6 -n -c 50 -i 0.01 fd00::12"
    else:
        given, command = AS_ROOT.removeprefix("machines: "), "ping -n -c 50 -i 0.01 192.0.2.12"
    text = PING.format(machines=given, command=command)
    done = machines.command("run", machines.write("pinged.yaml", text))
    assert done.returncode == 0, done.stderr
    repeat = machines.directory / "runs/pinged/latest/base/1"
    sent, received, shortest_ms = pinged(repeat)
    assert sent == 50 and 45 <= received <= 46
    assert shortest_ms >= 5  # The loss begins anew with the measured phase.
    # Only pings: the clock's probes, which have the same addresses, do not pass the links.
    (there,), (back,) = links_of(repeat).values()
    assert (there["in"]["packets"], there["dropped"]["loss"]) == (50, 50 - received)
    assert back["in"]["packets"] == back["out"]["packets"] == received


def failing(machines: SshMachines, given: str = AS_ROOT) -> str:
    """Message of a run whose links cannot be emulated."""
    text = PING.format(machines=given.removeprefix("machines: "), command="sleep 0")
    done = machines.command("run", machines.write("pinged.yaml", text))
    assert done.returncode == 4, done.stderr
    return done.stderr


def test_what_a_machine_lacks_for_links_is_said_at_the_start(machines: SshMachines) -> None:
    said = failing(machines, "{}")
    for host in HOSTS:
        assert f"host {host}: an emulated link needs rights over the network there" in said
    machines.on("h1", "ip address add fd00::11/64 dev eth0 nodad")
    sixth = "{user: root, data: 'fd00::11', clock: 192.0.2.11}"
    said = failing(machines, f"{{h1: {sixth}, h2: {{user: root}}}}")
    assert "no data addresses of the same family: IPv6 on h1, IPv4 on h2" in said
    said = failing(
        machines, "{h1: {user: root}, h2: {user: root, data: 192.0.2.99, clock: 192.0.2.12}}"
    )
    assert "no interface of h2 has its data address 192.0.2.99" in said
    machines.on("h2", "sysctl -q -w net.ipv4.conf.eth0.rp_filter=1")
    assert "sysctl net.ipv4.conf.eth0.rp_filter=2" in failing(machines)


def test_a_link_is_changed_where_it_begins_and_leaves_nothing_when_killed(
    machines: SshMachines,
) -> None:
    text = PING.format(machines=AS_ROOT.removeprefix("machines: "), command="sleep 60")
    going = machines.start("run", machines.write("pinged.yaml", text))
    assert going.stderr is not None
    while "phase run" not in going.stderr.readline():
        assert going.poll() is None
    changed = machines.command("net", "set", "h1 <-> h2", "delay=70ms", "loss=none")
    assert changed.stdout == "h1 -> h2: delay=70ms loss=none\nh2 -> h1: delay=70ms loss=none\n"
    changed = machines.command("net", "set", "h2 -> h1", "delay=1ms", "--json")
    assert json.loads(changed.stdout)["h2 -> h1"]["delay_ns"] == MS
    wrong = machines.command("net", "set", "h3 -> h1", "delay=1ms")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "loopscope: h3 is no host of this run; it has h1, h2\n",
    )
    wrong = machines.command("net", "set", "h2 -> h3", "delay=1ms")
    assert wrong.returncode == 2 and "loopscope: host h2: " in wrong.stderr and "h3" in wrong.stderr
    shown = json.loads(machines.command("net", "show", "--json").stdout)
    asked = {(link["from"], link["to"]): link["segments"][-1]["asked"] for link in shown}
    assert {link: each["delay_ns"] for link, each in asked.items()} == {
        ("h1", "h2"): 70 * MS,
        ("h2", "h1"): MS,
    }
    (run_folder,) = (machines.directory / "runs/pinged").glob("*-*")
    table = machines.command("net", "show", "--to", run_folder.name[-6:]).stdout
    assert "h1 -> h2" in table and "delay=70ms" in table, table
    wrong = machines.command("net", "show", "--to", "elsewhere")
    assert wrong.returncode == 2 and "elsewhere is no run" in wrong.stderr
    trip = machines.on("h1", "ping -n -c 3 -i 0.1 192.0.2.12")
    shortest = re.search(r"min/avg/max/mdev = ([\d.]+)/", trip)
    assert shortest is not None and float(shortest[1]) >= 70
    assert "lslink0" in machines.on("h1", "ip route get 192.0.2.12")
    movers = [
        pid
        for pid in machines.pids_of("h1", "loopscope-host")
        if b"emulate" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    run("kill", "-KILL", *map(str, movers))
    _, said = going.communicate(timeout=60)
    assert going.returncode != 0
    assert "_links-h1 on h1" in said and "SIGKILL" in said
    end = time.monotonic() + 10
    while "lslink" in machines.on("h1", "ip route get 192.0.2.12"):
        assert time.monotonic() < end
