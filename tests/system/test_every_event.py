"""Every event of the kernel that can be chosen, in a run that does all that they tell of.

Needs root, tracefs and a build with clang.
"""

from __future__ import annotations

import os

import pytest
from kernel_run import without_loss
from machine import BIN, Machine

from loopscope.experiment import kernel_events
from loopscope.timeline import Run

pytestmark = pytest.mark.full

COUNT = 50
WORK = """
import os, socket, subprocess, sys, time

server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
sender, receiver = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
receiver.bind(("127.0.0.1", 0))
for number in range(50):
    client.sendall(bytes(1000))
    accepted.recv(1000)
    sender.sendto(b"abc", receiver.getsockname())
    receiver.recv(10)
    # Nobody listens there.
    sender.sendto(b"abc", ("127.0.0.1", 9))
    time.sleep(0.002)
    with open("file", "wb") as file:
        file.write(bytes(10_000))
        file.flush()
        os.fsync(file.fileno())
    pages = bytearray(200_000)
subprocess.run(["true"], check=True)
"""
EXPERIMENT = f"""
name: every
hosts: [h1]
components: {{work: {{host: h1, run: {BIN}/python ./work.py, start: run, ready: {{exit: 0}}}}}}
phases: [{{name: run, measured: true, timeout: 60s}}]
trace: {{kernel: full}}
measure: {{}}
"""
# What a program does that many times, and what the machine does at least once meanwhile.
OFTEN = (
    "sched_switch sched_waking sched_wakeup hrtimer_start hrtimer_cancel hrtimer_expire_entry "
    "softirq_raise softirq_entry sys_enter page_fault_user net_dev_queue net_dev_start_xmit "
    "net_dev_xmit netif_rx netif_receive_skb napi_poll skb_copy_datagram_iovec kfree_skb tcp_probe "
    "interruptible_sleep tcp_send tcp_receive tcp_ready tcp_read segment_queued segment_out "
    "segment_in datagram_queued datagram_out datagram_in datagram_ready datagram_read "
    "packet_drop system_call"
).split()
ONCE = (
    "sched_wakeup_new sched_process_fork sched_process_exec sched_process_exit "
    "inet_sock_set_state timer_start timer_cancel"
)
PAIRS = (
    "irq_handler softirq local_timer reschedule call_function call_function_single irq_work "
    "timer_expire hrtimer_expire"
).split()


@pytest.mark.usefixtures("root")
def test_full_records_every_event(machine: Machine) -> None:
    machine.write("work.py", WORK)
    found, read, _ = without_loss(machine, EXPERIMENT, "tcp")
    counts = {table: rows(found, table) for table in found.tables if table.startswith("kernel.")}
    # There is no event that is not one of a class.
    known = {name.rpartition(":")[2] for name in kernel_events.named()}
    assert {table.removeprefix("kernel.") for table in counts} <= known

    def count(name: str) -> int:
        return counts.get(f"kernel.{name}", 0)

    absent = {name.rpartition("/")[2] for name in read["kernel"]["absent"]}
    for name in {*OFTEN} - absent:
        # Some kernels do not tell what certain threads do.
        assert count(name) >= 0.9 * COUNT, (name, counts)
    for name in {*ONCE.split()} - absent:
        assert count(name), (name, counts)
    for name in PAIRS:
        ends = count(f"{name}_entry"), count(f"{name}_exit")
        assert abs(ends[0] - ends[1]) <= 2 + 0.05 * max(ends), (name, ends)
    assert abs(count("sys_enter") - count("sys_exit")) <= 100 + 0.05 * count("sys_exit")
    if os.stat(machine.directory).st_dev >> 8:
        assert count("block_rq_issue") >= 0.9 * COUNT and count("block_rq_complete")
    # The same, by tracefs and by programs in the kernel.
    lo = found.relation("kernel.net_dev_start_xmit").filter("name = 'lo'")
    packets = count("segment_out") + count("datagram_out")
    assert len(lo) >= packets >= 0.9 * 4 * COUNT
    reasons = "reason::VARCHAR LIKE '%NO_SOCKET%'"
    dropped = found.relation("kernel.packet_drop").filter(reasons)
    assert len(dropped) >= 0.9 * COUNT and count("kfree_skb") >= len(dropped)
    executed = found.relation("kernel.sched_process_exec").filter("filename LIKE '%/true'")
    assert len(executed) >= 1


def rows(run: Run, table: str) -> int:
    """How many rows a table has."""
    return len(run.relation(table))
