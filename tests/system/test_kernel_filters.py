"""`trace: kernel_filters`: what the kernel records alone, and that all of that is there.

Needs root, and a kernel that lets programs in.
"""

from __future__ import annotations

import pytest
from kernel_run import without_loss
from machine import BIN, Machine

from loopscope.timeline import Run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

SENDER = """
import socket, sys, time

time.sleep(0.3)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
streams = [socket.create_connection((sys.argv[1], port)) for port in (7003, 7004)]
for number in range(100):
    for port in (7001, 7002):
        udp.sendto(b"x" * 50, (sys.argv[1], port))
    for stream in streams:
        stream.sendall(b"y" * 50)
    time.sleep(0.002)
"""
SINK = """
import socket, threading

def read(port):
    conn, _ = socket.create_server(("", port)).accept()
    while conn.recv(1000):
        pass

threads = [threading.Thread(target=read, args=(port,)) for port in (7003, 7004)]
for thread in threads:
    thread.start()
for port in (7001, 7002):
    conn = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    conn.bind(("", port))
    globals()[f"udp{port}"] = conn
for thread in threads:
    thread.join()
"""
TEXT = f"""
name: chosen
hosts: [h1, h2]
components:
  sink: {{host: h2, run: {BIN}/python ./sink.py, ready: {{port: 7002}}}}
  own-sink: {{host: h1, run: {BIN}/python ./sink.py, ready: {{port: 7002}}}}
  sender: {{host: h1, run: {BIN}/python ./sender.py h2, start: run, ready: {{exit: 0}}}}
  own: {{host: h1, run: {BIN}/python ./sender.py 127.0.0.1, start: run, ready: {{exit: 0}}}}
phases: [{{name: run, timeout: 60s}}]
trace:
  kernel: [KERNEL]
  kernel_filters: {{FILTERS}}
"""


def chosen(machine: Machine, kernel: str, filters: str) -> Run:
    machine.write("sender.py", SENDER)
    machine.write("sink.py", SINK)
    text = TEXT.replace("{FILTERS}", f"{{{filters}}}").replace("KERNEL", kernel)
    run, *_ = without_loss(machine, text, "(?:tcp|udp|call)")
    return run


def counts(run: Run, table: str, end: str) -> dict[str, int]:
    """How many events of a table there are with each port at an end."""
    name = f"kernel.{table}"
    if name not in run.tables:
        return {}
    port = f"regexp_extract({end}::VARCHAR, '[0-9]+$')"
    rows = run.relation(name).aggregate(f"{port} AS port, count(*) AS count")
    return dict(rows.fetchall())


def test_events_of_other_ports_are_left_out(machine: Machine) -> None:
    run = chosen(machine, '"udp:*", "tcp:*"', "ports: [7001, 7003]")
    for table in ("datagram_queued", "datagram_in"):
        assert counts(run, table, "target") == {"7001": 200}, table
    assert counts(run, "datagram_ready", "local") == {"7001": 200}
    sent = counts(run, "tcp_send", "remote")
    assert sent["7003"] == 200 and set(sent) == {"7003"}, sent
    # One of both ends of a segment has the port.
    ends = [counts(run, "segment_in", end) for end in ("source", "target")]
    assert ends[0]["7003"] + ends[1]["7003"] == sum(ends[0].values()) > 200, ends


def test_packets_at_other_devices_are_left_out(machine: Machine) -> None:
    run = chosen(machine, '"udp:*", "tcp:*"', "devices: [data0]")
    # What goes to the own host does so by another one.
    for table in ("datagram_queued", "datagram_in"):
        assert counts(run, table, "target") == {"7001": 100, "7002": 100}, table
    assert counts(run, "datagram_ready", "local") == {"7001": 200, "7002": 200}
    addresses = "source::VARCHAR AS source"
    sources = run.relation("kernel.segment_in").project(addresses).distinct().fetchall()
    assert sources and not any("127.0.0.1" in source for (source,) in sources), sources


def test_short_calls_are_left_out(machine: Machine) -> None:
    run = chosen(machine, '"call:*"', "calls_over: 1ms")
    calls = run.relation("kernel.system_call")
    least = calls.aggregate("min(duration_ns)").fetchone()
    assert least is not None and least[0] >= 1_000_000
    slept = calls.filter("syscall::VARCHAR = 'clock_nanosleep'")
    # Each of two programs sleeps a hundred times for 2 ms, and once before.
    assert len(slept) == 202
    # One that another thread takes the processor from may take long too.
    assert len(calls.filter("syscall::VARCHAR = 'sendto'")) < 400
