"""Kernel events against the kernel's own counts, tcpdump and strace. Needs root and tracefs."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import struct
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from machine import BIN, Machine

from loopscope.analysis.scheduling import Scheduling
from loopscope.timeline import Run, open_run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]
TRIES = 3


def recorded(machine: Machine, text: str) -> Run:
    """A run of an experiment `oracle`, in which no kernel event may be dropped."""
    machine.write("oracle.yaml", text.replace("PYTHON", f"{BIN}/python"))
    # Other tests may fill the buffers of the scheduler's events meanwhile.
    for _ in range(TRIES):
        done = machine.command("run", "oracle.yaml")
        if found := re.search("no kernel events of class tcp: (.*)", done.stderr):
            pytest.skip(f"SKIPPED LOUDLY: {found[1]}")
        assert done.returncode == 0, done.stdout + done.stderr
        if whole := re.search(r"kernel +emitted .* dropped 0[;\n]", done.stdout):
            break
    assert whole, done.stdout
    return open_run(machine.directory / "runs" / "oracle" / "latest")


def rows(run: Run, table: str, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    """Rows of a table, in the order of their stamps."""
    return run.relation(table).filter(where).order("counter").project(columns).fetchall()


def component(run: Run, name: str) -> Path:
    """The folder of what a component of h1 left."""
    return run.repeats[1] / "hosts" / "h1" / "components" / name


# Keeps a processor from idling: some virtual machines' kernels tell nothing meanwhile.
HOG = "run: [chrt, -i, '0', taskset, -c, 'CPU', sh, -c, 'while :; do :; done'], ready: started"
COMPETITORS = """
name: oracle
hosts: [h1]
components:
  hog: {host: h1, HOG}
  busy1: {host: h1, run: PYTHON ./worker.py busy CPU, start: run, ready: {exit: 0}}
  busy2: {host: h1, run: PYTHON ./worker.py busy CPU, start: run, ready: {exit: 0}}
  turns: {host: h1, run: PYTHON ./worker.py turns CPU, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["window:*"], kernel: ["sched:*"]}
"""
WORKER = """
import json, os, sys, threading, time
from loopscope_trace import flow_out

kind, cpu = sys.argv[1], int(sys.argv[2])
os.sched_setaffinity(0, {cpu})
begin, end = flow_out("window", "begin"), flow_out("window", "end")
found = []


def stolen():  # By a hypervisor, in ticks.
    with open("/proc/stat") as file:
        (words,) = [line.split() for line in file if line.startswith(f"cpu{cpu} ")]
    return int(words[8])


def marked(event, counts):
    number = 0
    while True:
        # Asking for its own time makes the kernel bring the time for which it ran up to date.
        time.thread_time_ns()
        before = os.pread(counts, 100, 0).split()
        event(number)
        # If it has not waited nor come again meanwhile, it was on its processor all the time.
        if os.pread(counts, 100, 0).split()[1:] == before[1:]:
            return [number, *map(int, before), stolen()]
        number += 1


def measured():
    counts = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    first = marked(begin, counts)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        if kind == "turns":
            time.sleep(0.002)
            for _ in range(60_000):
                pass
    found.append([threading.get_native_id(), first, marked(end, counts)])


# The two that work by turns also wait for the interpreter's lock, and wake each other.
threads = [threading.Thread(target=measured) for _ in range(2 if kind == "turns" else 1)]
for each in threads:
    each.start()
for each in threads:
    each.join()
json.dump(found, open("counts.json", "w"))
"""


def silences(run: Run, cpus: list[int], begin: int, end: int) -> list[tuple[int, int]]:
    """Times in which the kernel told nothing of one of some processors.

    On some virtual machines it tells that certain threads come to a processor, and then nothing
    while they have it, not even that they leave. Such a time ends with the next switch.
    """
    switches = rows(run, "kernel.sched_switch", "cpu, ts, prev_tid, next_tid")
    # Each processor has an idling thread of its own, of number 0.
    leave = {went or ~cpu for cpu, _, went, _ in switches}
    found = []
    for cpu in cpus:
        on_it = [each[1:] for each in switches if each[0] == cpu]
        for (start, _, came), (until, went, _) in pairwise(on_it):
            if came != went and until > begin and start < end:
                assert (came or ~cpu) not in leave, f"no event of when {came} left or {went} came"
                found.append((max(start, begin), min(until, end)))
    if (ns := sum(until - start for start, until in found)) > 0.1 * len(cpus) * (end - begin):
        pytest.skip(f"SKIPPED LOUDLY: this kernel tells nothing of {ns} ns")
    return found


def test_the_kernel_counts_the_same_times_of_threads(machine: Machine) -> None:
    """For how long threads ran and waited, and how often they came to a processor.

    Four threads compete for one processor. Each reads its own counts at the begin and at the end of
    3 s (Documentation/scheduler/sched-stats.rst), where it records an event too. What `Scheduling`
    tells of the time between is compared with the differences of the counts: the sum of `running`,
    the sum of `runnable`, and the number of switches to the thread. This number is equal, and
    nothing is `unknown`, but where the kernel tells nothing.

    The times may differ by 1 % and 2 us for each timeslice. Where a wake-up preempts the running
    thread, the kernel does not read its clock again for the switch (`rq_clock_skip_update`): by its
    counts the thread came when it was woken, by the events some 8 us later. Of 1170 timeslices of
    0.2 ms 423 began so and 240 ended so: the thread waited 4.2 ms longer by the events, 2.7 ms of
    which are these. The rest is 1.3 us for each: a thread is woken before it is put into the queue.
    The sum of both times has the second cause alone and may differ by 0.1 % and 2 us for each.
    """
    file = Path("/proc/thread-self/schedstat")
    if not file.exists() or not any(map(int, file.read_text().split())):
        pytest.skip("SKIPPED LOUDLY: the kernel counts no times of threads (CONFIG_SCHED_INFO)")
    cpu = min(os.sched_getaffinity(0))
    machine.write("worker.py", WORKER)
    run = recorded(machine, COMPETITORS.replace("HOG", HOG).replace("CPU", str(cpu)))
    scheduling = Scheduling(run, 1, "_kernel")
    begins, ends = (
        {(tid, number): ts for tid, number, ts in rows(run, f"window.{name}", "tid, id, ts")}
        for name in ("begin", "end")
    )
    files = [component(run, name) / "files/counts.json" for name in ("busy1", "busy2", "turns")]
    every = [each for file in files for each in json.loads(file.read_text())]
    leave = {tid for (tid,) in rows(run, "kernel.sched_switch", "prev_tid")}
    assert len(every) == 4 and leave.issuperset(tid for tid, *_ in every)
    for tid, first, last in every:
        begin, end = begins[tid, first[0]], ends[tid, last[0]]
        silent = silences(run, [cpu], begin, end)
        untold_ns = sum(until - start for start, until in silent)
        sums: Counter[str] = Counter()
        woken, until = None, end
        while until > begin:
            stretch = scheduling.before(tid, until)
            assert stretch is not None and stretch.start < until, (stretch, until)
            start = max(stretch.start, begin)
            sums[stretch.state] += until - start
            # Where no wake-up ends a sleep, the kernel did not tell when it ended.
            if stretch.state == "unknown" or (stretch.state == "blocked" and woken is None):
                assert any(a < until and start < b for a, b in silent), (stretch, until)
                untold_ns += until - start
            woken, until = stretch.waking, start
        run_ns, wait_ns, slices, stolen = (b - a for a, b in zip(first[1:], last[1:], strict=True))
        assert run_ns > 0 and wait_ns > 0 and slices > 0
        where = f"cpu = {cpu} AND next_tid = {tid} AND ts > {begin} AND ts <= {end}"
        came = len(rows(run, "kernel.sched_switch", "ts", where))
        # The kernel does not count as run what a hypervisor took, of which it tells whole ticks.
        stolen_ns = (stolen + 1) * 10**9 // os.sysconf("SC_CLK_TCK") if last[-1] else 0
        ran, waited = sums["running"] - run_ns, sums["runnable"] - wait_ns
        allowed = 2_000 * slices + untold_ns
        both = 0.001 * (run_ns + wait_ns) + allowed
        assert abs(came - slices) <= len(silent)
        assert abs(waited) <= 0.01 * wait_ns + allowed
        assert -0.01 * run_ns - allowed <= ran <= 0.01 * run_ns + allowed + stolen_ns
        assert -both <= ran + waited <= both + stolen_ns


# Connections: one that is refused, one with messages of many sizes both ways, one that is reset.
TRAFFIC = """
name: oracle
hosts: [h1, h2]
components:
  tcpdump:
    host: h1
    run:
      [sh, -c, "exec tcpdump -Z root -i data0 -B 8192 -s 128 --immediate-mode --nano -w pcap 2>&1"]
    ready: {line: listening on}
  sink: {host: h2, run: PYTHON ./sink.py, ready: {port: 7001}}
  source: {host: h1, run: PYTHON ./source.py COUNT, start: run, ready: {exit: 0}}
HOGS
NETWORK
phases: [{name: run, measured: true, timeout: 60s}]
trace: {user: ["msg:*"], kernel: ["tcp:*", "sched:sched_switch"]}
"""
LOSSY = "network: {h1 <-> h2: {delay: 2ms, loss: {every: 30}}}"
SOURCE = """
import json, os, socket, struct, sys, time
from loopscope_trace import flow_out

sent = flow_out("msg", "sent")
clocks = []


def mark(number):
    before = time.clock_gettime_ns(time.CLOCK_REALTIME)
    sent(number)
    clocks.append((number, before, time.clock_gettime_ns(time.CLOCK_REALTIME)))


count = int(sys.argv[1])
socket.socket().connect_ex(("h2", 7002))
conn = socket.create_connection(("h2", 7001))
conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for number in range(count):
    size = (1, 10, 100, 1448, 1449, 5_000, 70_000, 200_000)[number % 8]
    answer = (1, 3_000, 40_000)[number % 3]
    mark(number)
    conn.sendall(struct.pack("!II", size, answer))
    conn.sendall(bytes(size))
    while answer:
        answer -= len(conn.recv(answer))
    if number % 10 == 0:
        time.sleep(0.06)  # Delayed acknowledgements go out.
conn.shutdown(socket.SHUT_WR)
assert conn.recv(1) == b""
reset = socket.create_connection(("h2", 7001))
reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
reset.close()
time.sleep(0.05)
mark(count)
json.dump([os.stat("/proc/self/ns/net").st_ino, clocks], open("clocks.json", "w"))
"""
SINK = """
import socket, struct

listener = socket.create_server(("0.0.0.0", 7001))
conn, _ = listener.accept()
conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
with conn, conn.makefile("rb") as file:
    while head := file.read(8):
        size, answer = struct.unpack("!II", head)
        file.read(size)
        conn.sendall(bytes(answer))
listener.accept(), listener.accept()  # The one that is reset, and none until the run ends.
"""
FIN, SYN, ACK, NEVER = 1, 2, 16, 1 << 62


class Segment(NamedTuple):
    """What a segment's headers say."""

    source: str
    target: str
    seq: int
    ack: int
    flags: int
    length: int

    @property
    def end(self) -> int:
        """The sequence number after it."""
        return self.seq + self.length + bool(self.flags & (SYN | FIN))


def captured(file: Path) -> list[tuple[int, Segment]]:
    """The segments in a capture of Ethernet frames (pcap-savefile(5)), with their stamps, ns."""
    data = file.read_bytes()
    magic, *_, link_type = struct.unpack_from("=IHHiIII", data)
    assert (magic, link_type) == (0xA1B23C4D, 1)
    found, at = [], 24
    while at < len(data):
        seconds, ns, there, length = struct.unpack_from("=IIII", data, at)
        frame = data[at + 16 : at + 16 + there]
        at += 16 + there
        if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
            continue
        packet, total = frame[14:], length - 14
        assert struct.unpack_from("!H", packet, 2)[0] == total
        begin = (packet[0] & 15) * 4
        *ports, seq, ack, offset, flags = struct.unpack_from("!HHIIBB", packet, begin)
        addresses = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
        source, target = (f"{a}:{port}" for a, port in zip(addresses, ports, strict=True))
        segment = Segment(source, target, seq, ack, flags, total - begin - (offset >> 4) * 4)
        found.append((seconds * 10**9 + ns, segment))
    return found


def by_ends(segments: list[Any]) -> dict[Any, list[Any]]:
    """Tuples that end with a segment, by its source and target."""
    found = defaultdict(list)
    for each in segments:
        found[each[-1][:2]].append(each)
    return found


def limits(packets: list[Any], other: list[Any]) -> list[tuple[int, int]]:
    """After and before which captures of the other direction each segment has to be.

    It is after the first one with the bytes that it acknowledges, and before the first one that
    acknowledges its bytes, if it is the first that has them.
    """
    begin, there = packets[0][1].seq, other[0][1].seq
    ends = np.maximum.accumulate([(s.end - there) % 2**32 for _, s in other])
    acks = np.maximum.accumulate([bool(s.flags & ACK) * (s.ack - begin) % 2**32 for _, s in other])
    found, most = [], 0
    for _, segment in packets:
        end = (segment.end - begin) % 2**32
        ack = bool(segment.flags & ACK) * (segment.ack - there) % 2**32
        before = int(acks.searchsorted(end))
        known = end > most and before < len(other)
        lower = other[int(ends.searchsorted(ack))][0] if ack else 0
        found.append((lower, other[before][0] if known else NEVER))
        most = max(most, end)
    return found


@pytest.mark.parametrize(("network", "count"), [("", 150), (LOSSY, 40)], ids=["plain", "lossy"])
def test_tcpdump_sees_the_same_segments(machine: Machine, network: str, count: int) -> None:
    """Every segment of a host with what its headers say, in the order of each direction.

    tcpdump captures on the host's device from before the first connection until the source's last
    event or later. Until then its capture is equal to `segment_out` and `segment_in` of the host's
    network namespace, in the order of each direction of each connection (of those that come, of
    each processor), but for segments of a time in which the kernel tells nothing.

    tcpdump stamps with CLOCK_REALTIME. The source reads that clock before and after each of its
    events, so that of the kernel's events it is known too, to within some 300 ns. An event has to
    be later than the capture of what the segment acknowledges, and earlier than the capture of what
    acknowledges the segment.
    """
    if shutil.which("tcpdump") is None:
        pytest.skip("SKIPPED LOUDLY: needs tcpdump")
    machine.write("source.py", SOURCE)
    machine.write("sink.py", SINK)
    allowed = os.sched_getaffinity(0)
    cpus = sorted(allowed)[:2]
    hogs = [f"  hog{n}: {{host: h1, {HOG}}}".replace("CPU", str(n)) for n in cpus]
    text = TRAFFIC.replace("HOGS", "\n".join(hogs)).replace("NETWORK", network)
    os.sched_setaffinity(0, cpus)
    try:
        run = recorded(machine, text.replace("COUNT", str(count)))
    finally:
        os.sched_setaffinity(0, allowed)
    assert "\n0 packets dropped" in (component(run, "tcpdump") / "stdout.log").read_text()
    netns, clocks = json.loads((component(run, "source") / "files/clocks.json").read_text())
    marks = {number: (ts, err) for number, ts, err in rows(run, "msg.sent", "id, ts, err_ns")}
    at = [marks[number][0] for number, *_ in clocks]
    # By how much CLOCK_REALTIME is ahead of the time line, at least and at most, from a base.
    base = clocks[0][1] - at[0]
    least = [before - base - sum(marks[number]) for number, before, _ in clocks]
    read = [before for _, before, _ in clocks]
    most = [after - base - marks[number][0] + marks[number][1] for number, _, after in clocks]
    every = captured(component(run, "tcpdump") / "files/pcap")
    seen = by_ends([each for each in every if each[0] < clocks[-1][1]])
    told = {}
    columns = "ts, err_ns, cpu, source::VARCHAR, target::VARCHAR, seq, ack, tcp_flags, bytes"
    for table, end in (("kernel.segment_out", 0), ("kernel.segment_in", 1)):
        found = rows(run, table, columns, f"netns = {netns} AND ts < {at[-1]}")
        # Two processors may receive at the same time, but only one sends.
        events = by_ends([(ts, err, cpu * end, Segment(*of)) for ts, err, cpu, *of in found])
        assert all(ends[end].startswith("10.77.0.1:") for ends in events), list(events)
        told |= events
    silent, known = silences(run, cpus, at[0] - 10**8, at[-1]), 0
    for ends, packets in seen.items():
        left, last = told.pop(ends, []), Counter[int]()
        for packet, limit in zip(packets, limits(packets, seen[ends[::-1]]), strict=True):
            # One of the clocks may run by up to 500 ppm faster, a millisecond in two seconds.
            near = packet[0] - base - np.interp(packet[0], read, least)
            hidden = any(a - 10_000 < near < b + 10_000 for a, b in silent)
            # An untold one may be sent again: that is later.
            same = (e for e in left if e[-1] == packet[1] and not (hidden and e[0] > near + 10**6))
            if (event := next(same, None)) is None:
                assert hidden, (packet, near, [each for each in silent if each[1] > near][:2])
                continue
            left.remove(event)
            ts, err, cpu, _ = event
            assert ts >= last[cpu], packet
            last[cpu] = ts
            earliest = ts - err + base + int(np.interp(ts, at, least)) - 1
            latest = ts + err + base + int(np.interp(ts, at, most)) + 1
            assert limit[0] <= latest and earliest <= limit[1], (packet, limit, earliest, latest)
            known += limit[1] < NEVER
        assert not left, left
    assert not told and known > 2 * count
    assert not network or rows(run, "kernel.tcp_resend", "seq", f"netns = {netns}")


CALLS = """
name: oracle
hosts: [h1]
components:
  mix: {host: h1, run: strace -f -n -e raw=all -o log PYTHON ./mix.py, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
trace: {kernel: ["syscall:*"]}
"""
# Calls that fail, locks, a signal that interrupts a call, children that are forked and executed.
MIX = """
import os, signal, subprocess, threading, time

lock = threading.Lock()


def work(number):
    for _ in range(20 + number):
        os.getppid()
    null = os.open("/dev/null", os.O_RDWR)
    for each in range(10):
        os.write(null, bytes(each))
        os.pread(null, 10, 7 << 33)
    os.access(f"/nothing/{number}", os.R_OK)
    with lock:
        time.sleep(0.002)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(0.03)
if not (child := os.fork()):
    os._exit(os.getpgid(0) == 0)
os.waitpid(child, 0)
subprocess.run(["/bin/true"], check=True)
"""
# Results that the kernel has for itself too (include/linux/errno.h).
ERRORS = {"ERESTARTSYS": 512, "ERESTARTNOINTR": 513, "ERESTARTNOHAND": 514}
ERRORS |= {"ERESTART_RESTARTBLOCK": 516, **{name: n for n, name in errno.errorcode.items()}}


def traced(text: str) -> dict[int, list[Any]]:
    """Name, number, arguments and result of calls by thread, of `strace -f -n -e raw=all`."""
    found = defaultdict(list)
    for line in text.splitlines():
        read = re.match(r"(\d+) +\[ *(\d+)\] (<\.\.\. )?(\w+)(?:\(| resumed>)(.*)", line)
        if read is None:
            assert re.search(r"\] (\+\+\+|---) ", line), line
            continue
        calls = found[int(read[1])]
        if not read[3]:
            words = re.split(r"\)| <unfinished", read[5])[0].split(", ")
            arguments = tuple(int(word, 0) for word in words if word)
            calls.append([read[4], int(read[2]), arguments, None])
        if ended := re.search(r"\) += (\S+)(?: (E\w+))?", read[5]):
            value, error = ended.groups()
            if error or value != "?":
                calls[-1][3] = -ERRORS[error] if error else int(value, 0)
    return found


def test_strace_sees_the_same_system_calls(machine: Machine) -> None:
    """Every call of each thread of a program, with its arguments and result, in their order.

    strace follows the program from the call that executes it on. A thread or a process that it
    makes first has the end of the call that made it, of which strace tells in its parent alone.
    `exit` and `exit_group` do not end, and when `rt_sigreturn` ends the kernel has forgotten that
    it was this call.
    """
    if shutil.which("strace") is None:
        pytest.skip("SKIPPED LOUDLY: needs strace")
    machine.write("mix.py", MIX)
    run = recorded(machine, CALLS)
    threads = traced((component(run, "mix") / "files/log").read_text())
    # Its own, four of Python's, a process that was forked and one that was executed.
    assert len(threads) == 7
    for tid, calls in threads.items():
        entries = rows(run, "kernel.sys_enter", "counter, nr, args", f"tid = {tid}")
        begin = next(counter for counter, nr, _ in entries if nr == calls[0][1])
        entries = [each[1:] for each in entries if each[0] >= begin]
        assert Counter(call[1] for call in calls) == Counter(nr for nr, _ in entries)
        for (_, number, given, _), (nr, arguments) in zip(calls, entries, strict=True):
            assert (nr, struct.unpack("<6Q", arguments)[: len(given)]) == (number, given)
        exits = rows(run, "kernel.sys_exit", "nr, ret", f"tid = {tid} AND counter >= {begin}")
        assert exits == [
            (-1 if name == "rt_sigreturn" else number, result)
            for name, number, _, result in calls
            if name not in ("exit", "exit_group")
        ]
