"""Packets through a router's movers: intact, in order, no earlier than asked, all accounted for."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable

import pytest
from router_network import HOST, Network, movers, run, segments
from router_network import address as ethernet_address

Make = Callable[[int], Network]

# Receives numbered datagrams until one that says how many there were, and tells what it got: their
# numbers in order, and the least time from the sender's clock to the kernel's stamp.
RECEIVER = """
    import json, socket, struct, sys
    group = sys.argv[1]
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    own.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
    own.bind(("", 7000))
    if group:
        member = socket.inet_aton(group) + socket.inet_aton("0.0.0.0")
        own.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    own.settimeout(30)
    print("ready", flush=True)
    numbers, least, wrong = [], None, 0
    while True:
        data, control, _, _ = own.recvmsg(4096, 256)
        number, at = struct.unpack("<QQ", data[:16])
        if number == 0:
            break
        seconds, ns = struct.unpack("qq", control[0][2])
        delay = seconds * 1_000_000_000 + ns - at
        least = delay if least is None else min(least, delay)
        wrong += data[16:] != bytes([number % 251]) * (len(data) - 16)
        numbers.append(number)
    print(json.dumps({"numbers": numbers, "least": least, "wrong": wrong}))
"""

# Sends numbered datagrams, then some times that it was that: one of these arrives.
SENDER = """
    import socket, struct, sys, time
    to, count, size, pause, ends = sys.argv[1], *map(float, sys.argv[2:])
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
    for number in range(1, int(count) + 1):
        data = bytes([number % 251]) * (int(size) - 16)
        own.sendto(struct.pack("<QQ", number, time.time_ns()) + data, (to, 7000))
        if pause:
            time.sleep(pause)
    for _ in range(int(ends)):
        own.sendto(struct.pack("<QQ", 0, 0), (to, 7000))
"""

Received = dict[str, list[int]]


def receive(network: Network, host: str, group: str = "") -> subprocess.Popen[str]:
    process = network.python(host, RECEIVER, group)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def send(network: Network, to: str, count: int, size: int, pause: float = 0, *, ends: int) -> None:
    sender = network.python("h1", SENDER, to, str(count), str(size), str(pause), str(ends))
    _, errors = sender.communicate(timeout=120)
    assert sender.returncode == 0, errors


def got(receiver: subprocess.Popen[str]) -> dict[str, object]:
    output, errors = receiver.communicate(timeout=120)
    assert receiver.returncode == 0, errors
    return dict(json.loads(output))


def greet(network: Network) -> None:
    """Has everybody learn where everybody is."""
    for i in range(2, len(network.hosts) + 1):
        network.inside("h1", "ping", "-c", "1", "-W", "10", f"10.9.0.{i}")


def settled(network: Network) -> None:
    """Waits until no packet has come to the link from h1 to h2 for half a second."""
    before = -1
    while (now := packets_in(network)) != before:
        before = now
        time.sleep(0.5)


def test_one_of_the_own_movers_works() -> None:
    """Tests of a mover that does not work are skipped: not of all of them."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: makes devices, needs root")
    refused = movers()
    assert not refused["xdp"] or not refused["tap"], refused


def test_datagrams_arrive_intact_in_order_and_not_early(network: Make, mover: str) -> None:
    """Through a queue that outlasts the mover's rings, and by stamps outside of the router."""
    net = network(2)
    delay = 30_000_000
    router = net.emulate(net.document(mover, [link("h1", "h2", delay_ns=delay)]))
    greet(net)
    receiver = receive(net, "h2")
    send(net, "10.9.0.2", 20_000, 700, ends=0)
    # What says the end would be lost as well while the mover is still behind.
    settled(net)
    send(net, "10.9.0.2", 0, 16, ends=5)
    result = got(receiver)
    report = net.end(router)
    lost = report["ports"][0]["lost"]["full"]
    assert report["mover"] == mover
    assert result["wrong"] == 0
    numbers = result["numbers"]
    assert isinstance(numbers, list)
    assert numbers == sorted(set(numbers)), "reordered or doubled"
    assert len(numbers) + lost == 20_000
    assert isinstance(result["least"], int)
    # The sender's and the stamp's clock are CLOCK_REALTIME, which is slewed by at most 500 ppm.
    assert result["least"] >= delay * (1 - 500e-6)
    (segment,) = segments(report, "h1", "h2")
    assert segment["delay_ns"]["min"] >= delay
    assert segment["reordered"] == 0


@pytest.mark.full
def test_what_is_lost_is_counted(network: Make, mover: str) -> None:
    net = network(2)
    loss = {"kind": "periodic", "every": 10}
    links = [link("h1", "h2", loss=loss, delay_ns=1_000_000, mtu=1000), link("h2", "h1")]
    router = net.emulate(net.document(mover, links))
    greet(net)
    receiver = receive(net, "h2")
    send(net, "10.9.0.2", 3000, 200, pause=0.0001, ends=0)
    send(net, "10.9.0.2", 7, 1200, ends=5)
    result = got(receiver)
    report = net.end(router)
    (segment,) = segments(report, "h1", "h2")
    numbers = result["numbers"]
    assert isinstance(numbers, list)
    assert report["ports"][0]["lost"]["full"] == 0
    assert segment["dropped"]["mtu"] == 7
    assert segment["dropped"]["loss"] == segment["in"]["packets"] // 10
    assert all(segment["dropped"][reason] == 0 for reason in ("queue", "codel", "moving"))
    # Besides the numbered ones: the greeting, requests for addresses, and what says the end.
    others = segment["in"]["packets"] - 3007
    dropped = 3000 - len(numbers)
    assert segment["dropped"]["loss"] - others <= dropped <= segment["dropped"]["loss"]


@pytest.mark.full
def test_multicast_goes_over_each_receivers_link(network: Make, mover: str) -> None:
    net = network(3)
    delays = {"h2": 2_000_000, "h3": 40_000_000}
    links = [link("h1", host, delay_ns=delay) for host, delay in delays.items()]
    router = net.emulate(net.document(mover, links))
    receivers = {host: receive(net, host, "239.1.2.3") for host in delays}
    send(net, "239.1.2.3", 500, 100, pause=0.0002, ends=5)
    results = {host: got(receiver) for host, receiver in receivers.items()}
    report = net.end(router)
    for host, delay in delays.items():
        assert results[host]["numbers"] == list(range(1, 501))
        least = results[host]["least"]
        assert isinstance(least, int)
        assert least >= delay * (1 - 500e-6)
        (segment,) = segments(report, "h1", host)
        assert segment["out"]["packets"] >= 501
    assert segments(report, "h1", "h3")[0]["delay_ns"]["min"] >= delays["h3"]


TCP_RECEIVER = """
    import hashlib, socket
    listening = socket.create_server(("", 7001))
    print("ready", flush=True)
    own, _ = listening.accept()
    digest = hashlib.sha256()
    while data := own.recv(1 << 20):
        digest.update(data)
    own.sendall(digest.digest())
"""
TCP_SENDER = """
    import hashlib, random, socket, sys
    data = random.Random(4).randbytes(int(sys.argv[2]))
    own = socket.create_connection((sys.argv[1], 7001), timeout=60)
    own.sendall(data)
    own.shutdown(socket.SHUT_WR)
    digest = b""
    while part := own.recv(64):
        digest += part
    assert digest == hashlib.sha256(data).digest()
"""


def test_tcp_connects_and_its_bytes_arrive(network: Make, mover: str) -> None:
    net = network(2)
    links = [
        link("h1", "h2", delay_ns=2_000_000, rate_bps=400_000_000),
        link("h2", "h1", delay_ns=2_000_000),
    ]
    router = net.emulate(net.document(mover, links))
    receiver = net.python("h2", TCP_RECEIVER)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "ready\n"
    sender = net.python("h1", TCP_SENDER, "10.9.0.2", str(50_000_000))
    _, errors = sender.communicate(timeout=120)
    assert sender.returncode == 0, errors
    report = net.end(router)
    (segment,) = segments(report, "h1", "h2")
    assert report["ports"][0]["lost"]["oversize"] == report["ports"][0]["lost"]["unfinished"] == 0
    assert segment["out"]["bytes"] >= 50_000_000
    # From the first departure to the last, no more than the rate and one frame.
    seconds = (segment["last_ns"] - segment["first_ns"]) / 1e9
    assert (segment["out"]["bytes"] - 1514 * 64) * 8 / seconds <= 400e6


@pytest.mark.full
def test_a_flipped_bit_is_noticed(network: Make, mover: str) -> None:
    """By the receiver's checksums: nothing that is wrong arrives, and everything else does."""
    net = network(2)
    router = net.emulate(net.document(mover, [link("h1", "h2", corrupt=0.2), link("h2", "h1")]))
    # So that none is asked for by packets that may be flipped.
    knows_neighbour(net)
    receiver = receive(net, "h2")
    send(net, "10.9.0.2", 2000, 300, pause=0.0001, ends=20)
    result = got(receiver)
    report = net.end(router)
    (segment,) = segments(report, "h1", "h2")
    numbers = result["numbers"]
    assert isinstance(numbers, list)
    assert result["wrong"] == 0
    assert segment["corrupted"] > 0
    missing = 2000 - len(numbers)
    assert segment["corrupted"] - 20 - 2 <= missing <= segment["corrupted"]


TAGGED = """
    import socket
    own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    own.bind(("data0", 0))
    for tag in range(1, 51):
        header = bytes.fromhex("020000000002" "020000000001" "8100") + tag.to_bytes(2, "big")
        own.send(header + bytes.fromhex("88b5") + bytes(50))
"""
TAG_LISTENER = """
    import json, socket, struct
    own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    own.setsockopt(263, 8, 1)  # SOL_PACKET, PACKET_AUXDATA
    own.bind(("data0", 3))
    own.settimeout(30)
    print("ready", flush=True)
    tags = []
    while 50 not in tags:
        data, control, _, _ = own.recvmsg(2048, 256)
        if data[12:14] == bytes.fromhex("88b5"):
            # The kernel has taken the tag off: struct tpacket_auxdata, tp_vlan_tci.
            tags.append(struct.unpack("IIIHHHH", control[0][2])[5])
    print(json.dumps({"tags": tags}))
"""


@pytest.mark.full
def test_tagged_frames_keep_their_tag(network: Make, mover: str) -> None:
    net = network(2)
    router = net.emulate(net.document(mover, [link("h1", "h2"), link("h2", "h1")]))
    listener = net.python("h2", TAG_LISTENER)
    assert listener.stdout is not None
    assert listener.stdout.readline() == "ready\n"
    sender = net.python("h1", TAGGED)
    _, errors = sender.communicate(timeout=60)
    assert sender.returncode == 0, errors
    assert got(listener)["tags"] == list(range(1, 51))
    net.end(router)


RESERVED = """
    import socket, sys
    own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    own.bind(("data0", 0))
    for last in range(0x20):
        destination = bytes.fromhex("0180c20000") + bytes([last])
        own.send(destination + bytes.fromhex("020000000001" "88b5") + bytes([last]) * 50)
"""
LISTENER = """
    import json, socket
    own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
    own.bind(("data0", 0x88b5))
    own.settimeout(30)
    print("ready", flush=True)
    heard = []
    while 0x1f not in heard:
        heard.append(own.recv(2048)[14])
    print(json.dumps({"heard": heard}))
"""


@pytest.mark.full
def test_frames_for_the_ends_of_a_cable_go_no_farther(network: Make, mover: str) -> None:
    """01:80:c2:00:00:00 to :0f are not forwarded by a bridge, and counted."""
    net = network(2)
    router = net.emulate(net.document(mover, [link("h1", "h2"), link("h2", "h1")]))
    listener = net.python("h2", LISTENER)
    assert listener.stdout is not None
    assert listener.stdout.readline() == "ready\n"
    sender = net.python("h1", RESERVED)
    _, errors = sender.communicate(timeout=60)
    assert sender.returncode == 0, errors
    assert got(listener)["heard"] == list(range(0x10, 0x20))
    report = net.end(router)
    assert [port["lost"]["reserved"] for port in report["ports"]] == [0x10, 0]


def knows_neighbour(net: Network) -> None:
    """Has h1 send to h2 without asking for its address."""
    lladdr = ["lladdr", ethernet_address(2), "nud", "permanent"]
    net.inside("h1", "ip", "neigh", "replace", "10.9.0.2", *lladdr, "dev", "data0")


def packets_in(net: Network) -> int:
    """Packets that have come to the link from h1 to h2."""
    links = [each for each in shown(net) if (each["from"], each["to"]) == ("h1", "h2")]
    return sum(s["in"]["packets"] for s in segments({"links": links}, "h1", "h2"))


@pytest.mark.full
def test_what_a_device_does_not_take_while_it_is_down_is_lost(network: Make, mover: str) -> None:
    """Such packets neither count as sent nor arrive once the device is up again."""
    net = network(2)
    router = net.emulate(net.document(mover, [link("h1", "h2"), link("h2", "h1")]))
    greet(net)
    knows_neighbour(net)
    receiver = receive(net, "h2")
    before = packets_in(net)
    net.inside("router", "ip", "link", "set", "d2", "down")
    # More than fit into the sending ring.
    send(net, "10.9.0.2", 600, 200, pause=0.0001, ends=0)
    settled(net)
    assert packets_in(net) >= before + 600
    net.inside("router", "ip", "link", "set", "d2", "up")
    # The other end of the cable may notice only after a while.
    net.inside("h1", "ping", "-c", "1", "-i", "0.1", "-w", "30", "10.9.0.2")
    send(net, "10.9.0.2", 300, 200, pause=0.0001, ends=5)
    result = got(receiver)
    report = net.end(router)
    (segment,) = segments(report, "h1", "h2")
    assert result["numbers"] == list(range(1, 301))
    assert segment["dropped"]["moving"] >= 600


@pytest.mark.full
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_router(network: Make, mover: str, ending: signal.Signals) -> None:
    net = network(2)
    document = net.document(mover, [link("h1", "h2", delay_ns=1_000_000)])
    router = net.emulate(document)
    sender = net.python("h1", SENDER, "10.9.0.2", "1000000", "200", "0", "0")
    while packets_in(net) < 1000:
        assert router.poll() is None
    router.send_signal(ending)
    router.communicate(timeout=60)
    assert router.returncode == (-signal.SIGKILL if ending == signal.SIGKILL else 0)
    for device in ("d1", "d2"):
        details = net.inside("router", "ip", "-j", "-d", "link", "show", device).stdout
        (described,) = json.loads(details)
        assert "xdp" not in described, described
        assert described.get("promiscuity", 0) == 0
    sender.kill()
    assert net.net("show").returncode == 1
    # Another one can take the devices at once.
    again = net.emulate(document)
    greet(net)
    net.end(again)


def shown(net: Network) -> list[dict[str, object]]:
    result = net.net("show")
    assert result.returncode == 0, result.stderr
    return list(json.loads(result.stdout))


@pytest.mark.full
def test_links_are_shown_and_changed_while_they_carry(network: Make, mover: str) -> None:
    net = network(2)
    router = net.emulate(net.document(mover, [link("h1", "h2", delay_ns=1_000_000)]))
    greet(net)
    changed = net.net("set", "h1 -> h2", '{"delay_ns": 50000000}', "--to", str(router.pid))
    assert changed.returncode == 0, changed.stderr
    assert json.loads(changed.stdout)["delay_ns"] == 50_000_000
    ping = net.inside("h1", "ping", "-c", "2", "-i", "0.01", "10.9.0.2").stdout
    least = float(ping.rsplit("= ", 1)[1].split("/")[0])
    assert least >= 50
    (shown_link,) = (each for each in shown(net) if each["to"] == "h2")
    assert isinstance(shown_link["segments"], list)
    assert [s["asked"]["delay_ns"] for s in shown_link["segments"]] == [1_000_000, 50_000_000]
    assert "50000000" in net.net("show").stdout

    for words, expected in [
        (["h1 -> h2", '{"dely_ns": 5}'], "dely_ns"),
        (["h1 -> h2", '{"duplicate": 1.5}'], "duplicate"),
        (["h1 -> h9", '{"delay_ns": 5}'], "h9"),
        (["h1 -> h2", "5"], "no object"),
        (["h1", "{}"], "no link"),
    ]:
        refused = net.net("set", *words)
        assert refused.returncode == 1
        assert expected in refused.stderr, refused.stderr
    assert net.net("show", "--to", "1").returncode == 1
    report = net.end(router)
    assert [s["asked"]["delay_ns"] for s in segments(report, "h1", "h2")] == [1_000_000, 50_000_000]
    assert net.net("show").returncode == 1


def test_mistakes_are_named(network: Make) -> None:
    net = network(2)
    good = net.document("tap", [link("h1", "h2", delay_ns=5)])
    settings = net.directory / "settings.json"
    for change, expected in [
        (
            {"links": [{"from": "h1", "to": "h2", "settings": {"delay": 5}}]},
            "unknown field `delay`",
        ),
        ({"links": [link("h1", "h2", delay_ns="5ms")]}, "links[0].settings.delay_ns"),
        ({"links": [link("h1", "h7")]}, '"h7"'),
        ({"mover": "pigeon"}, "mover"),
        ({"mover": "netem"}, "netem"),
        ({"ports": [{"host": "h1", "device": "d1"}, {"host": "h2", "device": "d9"}]}, "d9"),
    ]:
        settings.write_text(json.dumps({**good, **change}))
        router = net.start("router", HOST, "emulate", "--settings", settings)
        _, errors = router.communicate(timeout=60)
        assert router.returncode == 1
        assert expected in errors and "panicked" not in errors, errors


@pytest.mark.full
def test_large_frames_are_the_other_movers(network: Make) -> None:
    """AF_XDP has no room for them: `auto` says so and takes the other one, which carries them."""
    net = network(2)
    for i, host in enumerate(net.hosts, 1):
        run("ip", "-n", net.name(host), "link", "set", "data0", "mtu", "9000")
        run("ip", "-n", net.name("router"), "link", "set", f"d{i}", "mtu", "9000")
    router = net.emulate(net.document("auto", []))
    greet(net)
    net.inside("h1", "ping", "-c", "2", "-i", "0.01", "-M", "do", "-s", "8900", "10.9.0.2")
    report = net.end(router)
    assert report["mover"] == "tap"
    assert "MTU" in report["why"] or movers()["xdp"]


@pytest.mark.full
def test_it_takes_part_in_an_experiment(network: Make, mover: str) -> None:
    """Told of its links by the agent, in every phase; steps begin with the measured one."""
    net = network(2)
    steps = [{"at_ns": 0, "set": {"delay_ns": 30_000_000}}]
    links = [{**link("h1", "h2", delay_ns=1_000_000), "steps": steps}]
    document = net.document(mover, links, phases=["warm", "run"])
    router, agent = under_an_agent(net)
    agent.say(type="configure", version=1, component="_links", host="_router", config=document)
    assert agent.heard()["phases"] == ["warm", "run"]
    for phase, measured in (("warm", False), ("run", True)):
        agent.say(type="phase", phase=phase, measured=measured, peers={})
        assert agent.heard() == {"type": "done", "phase": phase}
        greet(net)
    agent.say(type="end")
    output, errors = router.communicate(timeout=60)
    assert router.returncode == 0, errors
    assert "30.000 ms" in output
    report = json.loads((net.directory / "links.json").read_text())
    before, after = segments(report, "h1", "h2")
    assert before["since_ns"] < 0 <= after["since_ns"]
    assert before["in"]["packets"] > 0 and after["in"]["packets"] > 0
    assert after["delay_ns"]["min"] >= 30_000_000


@pytest.mark.full
def test_every_packets_way_is_in_the_trace(network: Make) -> None:
    """By the number that stands at the beginning of its payload."""
    if shutil.which("babeltrace2") is None:
        pytest.skip("SKIPPED LOUDLY: babeltrace2 is not installed")
    net = network(2)
    settings = net.directory / "settings.json"
    loss = {"kind": "periodic", "every": 10}
    links = [link("h1", "h2", loss=loss, delay_ns=3_000_000, duplicate=0.2), link("h2", "h1")]
    settings.write_text(json.dumps(net.document("tap", links)))
    trace = net.directory / "trace"
    emulate = [HOST, "emulate", "--settings", settings]
    router = net.start("router", HOST, "record", "--output", trace, "--", *emulate)
    assert router.stdout is not None
    assert "emulating" in router.stdout.readline()
    greet(net)
    receiver = receive(net, "h2")
    send(net, "10.9.0.2", 300, 100, pause=0.0005, ends=20)
    got(receiver)
    changed = net.net("set", "h1 -> h2", '{"loss": null}')
    assert changed.returncode == 0, changed.stderr
    # The recorder has a control socket as well.
    sockets = {int(path.name) for path in (net.directory / "state" / "control").iterdir()}
    (pid,) = sockets - {router.pid}
    os.kill(pid, signal.SIGTERM)
    _, errors = router.communicate(timeout=60)
    assert router.returncode == 0, errors
    segment, _ = segments(json.loads((net.directory / "links.json").read_text()), "h1", "h2")
    text = run("babeltrace2", str(trace)).stdout
    events: dict[str, list[dict[str, str]]] = {}
    for line in text.splitlines():
        name = re.search(r"link:(\w+):", line)
        if name:
            fields = {k: v.strip('"') for k, v in re.findall(r'(\w+) = ("[^"]*"|-?\w+)', line)}
            events.setdefault(name[1], []).append(fields)
    forth = {
        name: [e for e in found if (e["from"], e["to"]) == ("0", "1")]
        for name, found in events.items()
    }
    assert len(forth["enqueued"]) == segment["in"]["packets"]
    assert len(forth["departed"]) == segment["out"]["packets"]
    assert len(forth["dropped"]) == segment["dropped"]["loss"]
    assert len(forth["duplicated"]) == segment["duplicated"] > 0
    assert {e["reason"] for e in forth["dropped"]} == {"loss"}
    assert all(int(e["late_ns"]) >= 0 for e in forth["departed"])
    for event in forth["enqueued"] + forth["departed"]:
        assert int(event["ago_ns"]) >= 0 and int(event["within_ns"]) >= 0
    assert len(forth["set"]) == 1
    numbered = {e["id"]: e["number"] for e in forth["enqueued"] if 1 <= int(e["id"]) <= 300}
    assert len(numbered) == 300
    went = {e["id"] for e in forth["departed"] + forth["dropped"]}
    assert numbered.keys() <= went


@pytest.mark.full
def test_an_experiment_hears_why_there_is_no_router(network: Make) -> None:
    net = network(2)
    document = net.document("tap", [link("h1", "h7")], phases=["run"])
    router, agent = under_an_agent(net)
    agent.say(type="configure", version=1, component="c", host="r", config=document)
    agent.say(type="phase", phase="run", measured=True, peers={})
    assert agent.heard()["type"] == "hello"
    failed = agent.heard()
    assert failed["type"] == "failed" and "h7" in failed["error"]
    router.communicate(timeout=60)
    assert router.returncode == 1


@pytest.mark.full
def test_without_its_agent_it_ends_with_an_error(network: Make) -> None:
    net = network(2)
    document = net.document("tap", [link("h1", "h2")], phases=["run"])
    router, agent = under_an_agent(net)
    agent.say(type="configure", version=1, component="c", host="r", config=document)
    assert agent.heard()["type"] == "hello"
    agent.leave()
    _, errors = router.communicate(timeout=60)
    assert router.returncode == 1
    assert errors.startswith("loopscope-host: ") and "\n" not in errors.strip(), errors
    assert (net.directory / "links.json").exists()


class Agent:
    """The agent's end of the phase protocol."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(60)
        self._end = end
        self._lines = end.makefile("rw")

    def say(self, **message: object) -> None:
        self._lines.write(json.dumps(message) + "\n")
        self._lines.flush()

    def heard(self) -> dict[str, object]:
        message: dict[str, object] = json.loads(self._lines.readline())
        return message

    def leave(self) -> None:
        self._lines.close()
        self._end.close()


def under_an_agent(net: Network) -> tuple[subprocess.Popen[str], Agent]:
    ours, program = socket.socketpair()
    net.environment["LOOPSCOPE_PHASE_FD"] = str(program.fileno())
    router = net.start("router", HOST, "emulate", pass_fds=[program.fileno()])
    del net.environment["LOOPSCOPE_PHASE_FD"]
    program.close()
    return router, Agent(ours)


def link(source: str, sink: str, **settings: object) -> dict[str, object]:
    return {"from": source, "to": sink, "settings": settings}
