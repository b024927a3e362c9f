"""Emulated links between real machines, one of which is the router between the others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from machine import Machine
from ssh_machines import SshMachines, run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

Read = Callable[..., dict[str, Any]]
MS = 1_000_000

# Only the router has rights. It is the clocks' reference, so that no probe needs a link.
FILE = """
name: routed
testbed: ssh
hosts: [h3, h1, h2]
machines: {h3: {user: root}}
network:
  router: h3
  h1 -> h2: {delay: 5ms, loss: {every: 10}, at 300ms: {delay: 20ms}}
  h2 -> h1: {delay: 10ms}
components:
  source: {host: h1, run: loopscope-host pipe source,
           with: {to: node, count: 200, period: 5ms, size: 32B}}
  node: {host: h2, run: loopscope-host pipe node, with: {to: sink}}
  sink: {host: h1, run: loopscope-host pipe sink}
phases:
  - {name: listen, timeout: 5s}
  - {name: connect, timeout: 5s}
  - {name: run, measured: true, timeout: 60s}
trace: {user: ["pipe:*"]}
measure:
  paths:
    loop: {key: id, events: [source/pipe:sent, node/pipe:received, sink/pipe:received]}
expect: [loop.count == 200]
"""
WAITING = re.sub(r"(?s)components:.*", "", FILE) + (
    "components: {pinger: {host: h1, run: sleep 60, start: run, ready: {exit: 0}}}\n"
    "phases: [{name: run, measured: true, timeout: 90s}]\n"
)


ROUTER = "machines: {h3: {user: root}}"


def routed(machines: SshMachines) -> str:
    """Has h1 and h2 send to each other through h3, by IPv4. Returns `machines` for the file."""
    machines.on("h3", "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0")
    machines.on("h1", "ip route add 192.0.2.12 via 192.0.2.13")
    machines.on("h2", "ip route add 192.0.2.11 via 192.0.2.13")
    return ROUTER


def routed_by_ipv6(machines: SshMachines) -> str:
    """Does what `routed` does, by IPv6; the clock probes stay IPv4."""
    given = []
    for host, number in (("h1", 11), ("h2", 12), ("h3", 13)):
        machines.on(host, f"ip address add fd00::{number}/64 dev eth0 nodad")
        # Linux redirects senders to a receiver on their own network, and cannot be kept from it.
        machines.on(host, "sysctl -qw net.ipv6.conf.eth0.accept_redirects=0")
        user = ", user: root" if host == "h3" else ""
        given.append(f"{host}: {{data: 'fd00::{number}', clock: 192.0.2.{number}{user}}}")
    machines.on("h3", "sysctl -qw net.ipv6.conf.all.forwarding=1")
    machines.on("h1", "ip route add fd00::12 via fd00::13")
    machines.on("h2", "ip route add fd00::11 via fd00::13")
    return f"machines: {{{', '.join(given)}}}"


def routed_between_networks(machines: SshMachines) -> str:
    """Does what `routed` does, with h2 on a network of its own that h3 is on as well."""
    peer = f"peer name second netns {machines.namespace('h2')}"
    add = f"ip -n {machines.namespace('h3')} link add second type veth {peer}"
    run(*add.split())
    for host, number in (("h2", 12), ("h3", 13)):
        machines.on(host, f"ip address add 198.51.100.{number}/24 dev second")
        machines.on(host, "ip link set second up")
    machines.on("h3", "sysctl -qw net.ipv4.ip_forward=1")
    machines.on("h1", "ip route add 198.51.100.0/24 via 192.0.2.13")
    machines.on("h2", "ip route add 192.0.2.11 via 198.51.100.13")
    return "machines: {h3: {user: root}, h2: {data: 198.51.100.12, clock: 192.0.2.12}}"


@pytest.mark.parametrize("lead", [routed, routed_by_ipv6, routed_between_networks])
def test_the_router_impairs_what_others_send(
    machines: SshMachines, results: Read, lead: Callable[[SshMachines], str]
) -> None:
    file = FILE.replace(ROUTER, lead(machines))
    done = machines.command("run", machines.write("routed.yaml", file), "--json")
    found = results(done)
    assert done.returncode == 0, done.stderr
    repeat = machines.directory / "runs/routed/latest/base/1"
    assert not (repeat / "hosts/h1/components/_links-h1").exists()
    account = json.loads((repeat / "hosts/h3/components/_links-h3/files/links.json").read_text())
    assert (account["mover"], account["why"]) == ("tap", "h3 impairs what it forwards")
    links = {(each["from"], each["to"]): each["segments"] for each in account["links"]}
    assert set(links) == {("h1", "h2"), ("h2", "h1")}
    before, after = links["h1", "h2"][-2:]
    for segments in links.values():
        for each in segments:
            out = each["out"]["packets"] - each["duplicated"] + each["queued"]
            assert each["in"]["packets"] == out + sum(each["dropped"].values())
    # TCP sends again what is lost, and its acknowledgements come back over the other link.
    assert sum(each["in"]["packets"] for each in links["h1", "h2"]) >= 200
    assert before["delay_ns"]["p50"] >= 5 * MS and after["delay_ns"]["p50"] >= 20 * MS
    # What the links took is known by the router's own clock, for each hop.
    there, back = found["paths"]["loop"]["hops"]
    for hop, least in ((there, 5 * MS), (back, 10 * MS)):
        (split,) = hop["splits"]
        # TCP puts several messages into one packet, above all after a loss.
        assert split["matched"] > 50 and split["emulated"]["p50_ns"] >= least
    assert not found["problems"], found["problems"]


def test_links_of_a_router_are_changed_from_the_desk(machines: SshMachines) -> None:
    routed(machines)
    going = machines.start("run", machines.write("routed.yaml", WAITING))
    assert going.stderr is not None
    while "phase run" not in going.stderr.readline():
        assert going.poll() is None
    done = machines.command("net", "set", "h1 <-> h2", "delay=60ms", "loss=none")
    assert done.returncode == 0, done.stderr
    shown = json.loads(machines.command("net", "show", "--json").stdout)
    asked = {(link["from"], link["to"]): link["segments"][-1]["asked"] for link in shown}
    assert {each["delay_ns"] for each in asked.values()} == {60 * MS} and len(asked) == 2
    trip = machines.on("h1", "ping -n -c 3 -i 0.1 192.0.2.12")
    shortest = re.search(r"min/avg/max/mdev = ([\d.]+)/", trip)
    assert shortest is not None and 120 <= float(shortest[1]) < 200, trip
    # The router itself is reached directly, and sends over links that are none.
    trip = machines.on("h1", "ping -n -c 3 -i 0.1 192.0.2.13")
    shortest = re.search(r"min/avg/max/mdev = ([\d.]+)/", trip)
    assert shortest is not None and float(shortest[1]) < 60, trip
    wrong = machines.command("net", "set", "h1 -> h3", "delay=1ms")
    assert "h3 forwards: what is sent to it passes no link" in wrong.stderr
    going.terminate()
    going.communicate(timeout=60)


def test_a_way_past_the_router_is_refused_before_anything_starts(machines: SshMachines) -> None:
    file = machines.write("routed.yaml", FILE)
    done = machines.command("run", file)
    assert done.returncode != 0
    for host, other, address in (("h1", "h2", "192.0.2.12"), ("h2", "h1", "192.0.2.11")):
        assert (
            f"host {host}: what it sends to {other} ({address}) does not come to the router h3 "
            f"first, but goes there directly by eth0; on {host}: ip route replace {address} via "
            "192.0.2.13"
        ) in done.stderr
    routed(machines)
    machines.on("h3", "sysctl -qw net.ipv4.ip_forward=0")
    done = machines.command("run", file)
    assert done.returncode != 0
    assert "h3 is the router, and forwards nothing that comes in by eth0" in done.stderr
    assert "sysctl net.ipv4.ip_forward=1" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("router: h3", "router: h9", "there is no host 'h9'"),
        ("h2 -> h1:", "h2 -> h3:", "h3 is the router, and what is sent to it passes no link"),
        ("testbed: ssh", "testbed: local", "testbed local makes a router of its own"),
        ("hosts: [h3, h1, h2]", "hosts: [h3, h1]", "a router stands between two others"),
        ("hosts: [h3, h1, h2]", "hosts: [h3, h1, h2]", ""),
    ],
)
def test_check_says_what_a_router_cannot_be(
    machine: Machine, old: str, new: str, said: str
) -> None:
    done = machine.command("check", machine.write("routed.yaml", FILE.replace(old, new)))
    assert said in done.stderr and (done.returncode == 0) == (said == ""), done.stderr
    assert said or not done.stderr
