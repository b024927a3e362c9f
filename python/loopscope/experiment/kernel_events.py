"""The kernel's events that can be recorded, by class.

Each class has buffers of its own on every processor, and so an account of its own of what was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .event_values import chosen
from .problem import nearest
from .values import JsonSchema, Names, Rule, text, wrong

VECTORS = ("local_timer", "reschedule", "call_function", "call_function_single", "irq_work")
"""The interrupts that processors send and time themselves, by the names of their tracepoints."""

CLASSES: dict[str, tuple[str, ...]] = {
    "sched": (
        "sched/sched_switch",
        "sched/sched_waking",
        "sched/sched_wakeup",
        "sched/sched_wakeup_new",
        "sched/sched_migrate_task",
        "sched/sched_process_fork",
        "sched/sched_process_exec",
        "sched/sched_process_exit",
    ),
    "irq": (
        "irq/irq_handler_entry",
        "irq/irq_handler_exit",
        *(f"irq_vectors/{each}_{end}" for each in VECTORS for end in ("entry", "exit")),
    ),
    "softirq": ("irq/softirq_raise", "irq/softirq_entry", "irq/softirq_exit"),
    "timer": (
        "timer/timer_start",
        "timer/timer_cancel",
        "timer/timer_expire_entry",
        "timer/timer_expire_exit",
        "timer/hrtimer_start",
        "timer/hrtimer_cancel",
        "timer/hrtimer_expire_entry",
        "timer/hrtimer_expire_exit",
    ),
    "idle": ("power/cpu_idle", "power/cpu_frequency"),
    "syscall": ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit"),
    "fault": ("exceptions/page_fault_user", "exceptions/page_fault_kernel"),
    "block": ("block/block_rq_insert", "block/block_rq_issue", "block/block_rq_complete"),
    "net": (
        "net/net_dev_queue",
        "net/net_dev_start_xmit",
        "net/net_dev_xmit",
        "net/netif_rx",
        "net/netif_receive_skb",
        "napi/napi_poll",
        "skb/skb_copy_datagram_iovec",
        "skb/kfree_skb",
        "sock/inet_sock_set_state",
        "tcp/tcp_probe",
        "tcp/tcp_retransmit_skb",
    ),
    "sleep": ("bpf/interruptible_sleep", "bpf/uninterruptible_sleep", "bpf/throttled"),
    "tcp": (
        "bpf/tcp_send",
        "bpf/tcp_receive",
        "bpf/tcp_ready",
        "bpf/tcp_read",
        "bpf/tcp_resend",
        "bpf/tcp_message",
        "bpf/segment_queued",
        "bpf/segment_out",
        "bpf/segment_in",
    ),
    "udp": (
        "bpf/datagram_queued",
        "bpf/datagram_out",
        "bpf/datagram_in",
        "bpf/datagram_ready",
        "bpf/datagram_read",
    ),
    "drop": ("bpf/packet_drop",),
    "call": ("bpf/system_call",),
}
"""Tracepoints (``GROUP/NAME`` as the kernel has them), by class.

Those of the group ``bpf`` are loopscope's own: programs in the kernel record them."""

HISTOGRAMS = "histograms"
"""The name under which agents tell why they keep no histograms."""

COUNTS = "schedstat"
"""The class of what is recorded instead where no events can be: counts of threads."""

AUTO = (
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_process_fork",
    "irq:irq_handler_*",
    "irq:local_timer_*",
    "sleep:uninterruptible_sleep",
    "sleep:throttled",
    "drop:packet_drop",
)
"""Patterns on what is recorded where nobody asked: what says who had a processor, what the kernel
waits for on a thread's behalf, which threads' cgroups had used up their processor time, and the
packets that it drops.

Soft interrupts are left out: of a message's way over a network they are the most events.
"""


_OF_THREADS = "sched:sched_process_fork"
OF_MESSAGES = {
    "udp": ("udp:*", "drop:packet_drop", _OF_THREADS),
    "tcp": ("tcp:*", _OF_THREADS),
}
"""Patterns on what tells the messages of programs that record nothing themselves, by protocol."""
OF_WAKEUPS = {
    "timer": ("sched:sched_waking", "irq:local_timer_*", "irq:irq_handler_*", _OF_THREADS),
    "interrupt": ("sched:sched_waking", "irq:irq_handler_*", "softirq:*", _OF_THREADS),
}
"""Patterns on what tells what wakes the threads of programs, by what that is."""


@dataclass(frozen=True)
class KernelClass(Rule):
    """The name of a class."""

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if name not in CLASSES:
            message = f"there is no class of kernel events {name!r}: {', '.join(CLASSES)}"
            wrong(message, nearest(name.removesuffix(":*"), CLASSES))
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string", "enum": list(CLASSES)}


def without(classes: Mapping[str, str]) -> list[str]:
    """What to say of classes that could not be recorded, each with why, and of histograms."""
    names: dict[str, list[str]] = {}
    for name, why in sorted(classes.items()):
        names.setdefault(why, []).append(name)
    said = []
    for why, every in names.items():
        if of := [name for name in every if name != HISTOGRAMS]:
            said.append(f"no kernel events of class {' and '.join(of)}: {why}")
        if HISTOGRAMS in every:
            said.append(f"no histograms that the kernel keeps: {why}")
    return said


def left_out(patterns: Iterable[str]) -> tuple[str, ...]:
    """The classes that `auto` leaves out for their cost; none where nobody chose `auto`.

    ``patterns`` are those of the plan, which begin with `AUTO` where the file has `auto`.
    """
    given = tuple(patterns)
    if given[: len(AUTO)] != AUTO:
        return ()
    recorded = selected(given)
    return tuple(name for name in CLASSES if name not in recorded)


def named() -> dict[str, tuple[str, str]]:
    """Class and tracepoint of each event, by ``CLASS:NAME``."""
    return {
        f"{name}:{event.rpartition('/')[2]}": (name, event)
        for name, events in CLASSES.items()
        for event in events
    }


def selected(patterns: Iterable[str]) -> dict[str, list[str]]:
    """The tracepoints that patterns on ``CLASS:NAME`` choose, by class."""
    found: dict[str, list[str]] = {}
    patterns = tuple(patterns)
    for event, (name, tracepoint) in named().items():
        if chosen(event, patterns):
            found.setdefault(name, []).append(tracepoint)
    return found
