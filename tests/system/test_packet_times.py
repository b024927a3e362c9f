"""Times by packet against times by message, over links with a planted delay.

They need root and programs in the kernel.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from machine import BIN, Machine

pytestmark = pytest.mark.full

STREAM, FRAME, DATAGRAM = 300_000, 120_000, 40_000
MESSAGES, PERIOD_S = 8, 0.15
DELAYS_MS = (5, 25)
# A file in which the source of the stream writes `tcpi_total_retrans` of tcp(7), for each delay.
RETRANSMITTED = "retransmitted"
SOURCE = f"""
import socket, struct, sys, time
from loopscope_trace import flow_out

group = sys.argv[1]
sent = flow_out(group, "sent")
if group == "stream":
    conn = socket.create_connection(("h2", 7001))
else:
    conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    conn.connect(("h2", 7002))
begin = time.monotonic() + 0.3
for number in range({MESSAGES}):
    time.sleep(max(0.0, begin + number * {PERIOD_S} - time.monotonic()))
    sent(number)
    if group == "stream":
        conn.sendall(bytes({STREAM}))
        conn.recv(1)
    else:
        for place in range({FRAME // DATAGRAM}):
            conn.send(struct.pack("!II", number, place) + bytes({DATAGRAM} - 8))
if group == "stream":
    info = conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    (again,) = struct.unpack_from("I", info, 100)
    with open(sys.argv[2], "a") as file:
        print(again, file=file)
    conn.shutdown(socket.SHUT_WR)
    conn.recv(1)
"""
SINK = f"""
import socket, struct, sys
from loopscope_trace import flow_in

group = sys.argv[1]
received = flow_in(group, "received")
if group == "stream":
    conn, _ = socket.create_server(("", 7001)).accept()
    for number in range({MESSAGES}):
        left = {STREAM}
        while left:
            left -= len(conn.recv(left))
        received(number)
        conn.sendall(b"k")
    conn.recv(1)
else:
    conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    conn.bind(("", 7002))
    print("bound", flush=True)
    while True:
        number, place = struct.unpack("!II", conn.recv(65_536)[:8])
        if place == {FRAME // DATAGRAM - 1}:
            received(number)
        if number == {MESSAGES - 1} and place == {FRAME // DATAGRAM - 1}:
            break
"""


def experiment(machine: Machine) -> str:
    source, sink = machine.write("source.py", SOURCE), machine.write("sink.py", SINK)
    lines = [
        "name: datagrams",
        "hosts: [h1, h2]",
        "params: {delay: 5ms}",
        f"sweep: {{delay: [{', '.join(f'{each}ms' for each in DELAYS_MS)}]}}",
        "network: {h1 -> h2: {delay: $delay}}",
        "components:",
    ]
    for group, ready in (("stream", "{port: 7001}"), ("frame", "{line: bound}")):
        run = f"{BIN}/python {sink} {group}"
        lines.append(f"  {group}-sink: {{host: h2, run: {run}, ready: {ready}}}")
        run = f"{BIN}/python {source} {group} {machine.directory / RETRANSMITTED}"
        lines.append(f"  {group}: {{host: h1, run: {run}, start: run, ready: {{exit: 0}}}}")
    lines.append("phases: [{name: run, measured: true, timeout: 60s}]")
    kernel = '["sched:*", "tcp:*", "udp:*"]'
    lines.append(f'trace: {{user: ["stream:*", "frame:*"], kernel: {kernel}}}')
    lines += ["measure:", "  paths:"]
    for group in ("stream", "frame"):
        events = f"[{group}/{group}:sent, {group}-sink/{group}:received]"
        lines.append(f"    {group}: {{key: id, events: {events}}}")
    return "\n".join([*lines, ""])


def by_point(machine: Machine, path: str) -> list[dict[str, Any]]:
    """What `why --datagrams` says of the only hop at each point, with the point's delay, ns."""
    words = ("why", "runs/datagrams/latest", "--datagrams", "--path", path)
    done = machine.command(*words, "--json")
    assert done.returncode == 0, done.stderr
    found = []
    for document in map(json.loads, done.stdout.splitlines()):
        assert (document["path"], document["error"]) == (path, None)
        (hop,) = document["hops"]
        assert document["loop"]["count"] == MESSAGES
        found.append({**hop, "delay_ns": int(document["params"]["delay"][:-2]) * 1_000_000})
    text = machine.command(*words).stdout
    rows = re.findall(r"^ *(\d+)ms +(packet|message|\w+) ", text, re.MULTILINE)
    named = ("packet", "message", path)
    assert rows == [(str(delay), name) for delay in DELAYS_MS for name in named], text
    return found


@pytest.mark.usefixtures("root")
def test_packets_take_the_links_delay_and_messages_longer(machine: Machine) -> None:
    machine.write("datagrams.yaml", experiment(machine))
    done = machine.command("run", "datagrams.yaml")
    if "no kernel events of class tcp" in done.stderr + done.stdout:
        reason = re.findall("no kernel events of class tcp: (.*)", done.stderr + done.stdout)[0]
        pytest.skip(f"SKIPPED LOUDLY: {reason}")
    assert done.returncode == 0, done.stdout + done.stderr
    # Some virtual machines' kernels tell nothing while certain threads are on a processor, and the
    # run says so.
    untold = "is not observable" in done.stdout + done.stderr
    # TCP sends again what a busy machine acknowledges late.
    retransmitted = [int(line) for line in (machine.directory / RETRANSMITTED).read_text().split()]
    for path, size, most_again in (
        ("stream", STREAM, retransmitted),
        ("frame", FRAME, [0] * len(DELAYS_MS)),
    ):
        points = by_point(machine, path)
        assert [each["delay_ns"] // 1_000_000 for each in points] == list(DELAYS_MS)
        for hop, again in zip(points, most_again, strict=True):
            left_out = sum(hop["not_followed"].values())
            assert left_out <= (MESSAGES // 4 if untold else 0), hop
            assert hop["received"] == MESSAGES, hop
            followed = MESSAGES - left_out
            # Each byte came once, and each packet is counted.
            least = 0.9 if untold else 1
            assert least * followed * size <= hop["bytes"] <= followed * size, hop
            timed = hop["packets"]["count"]
            came = round(hop["packets_per_message"] * followed)
            assert timed + hop["ambiguous"] + hop["no_departure"] == came, hop
            # A packet has no more bytes than the link's packets have.
            assert came >= hop["bytes"] / 1_480 and timed > came / 2, hop
            assert hop["left_again"] <= again, (hop, again)
            assert hop["no_arrival"] <= (came / 10 if untold else 0), hop
            # The link holds each packet for its delay; the rest is the machine's.
            assert 0 <= hop["packets"]["mean_ns"] - hop["delay_ns"] < 10_000_000, hop
            assert hop["packets"]["mean_ns"] < hop["messages"]["mean_ns"], hop
            assert hop["ratio"] == hop["packets"]["mean_ns"] / hop["messages"]["mean_ns"] < 1
    # TCP needs several round trips for a message that is larger than its window.
    assert points[0]["packets"]["mean_ns"] < points[1]["packets"]["mean_ns"]
    drawn = machine.command("figure", "runs/datagrams/latest", "mean-deviation", "stream.packets")
    assert drawn.returncode == 0, drawn.stderr
    csv = machine.directory / "runs/datagrams/latest/figures/mean-deviation-stream.packets.csv"
    _, *rows = csv.read_text().splitlines()
    means = [round(float(row.split(",")[1]), 1) for row in rows]
    assert means == [each["packets"]["mean_ns"] for each in by_point(machine, "stream")]
