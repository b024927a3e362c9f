"""Sleeps and computes in turn; says for how long it was kept from computing when it was due."""

import os
import time

from loopscope.phase import Session
from loopscope_trace import event

woke = event("starter", "woke", late_us="f64", description="late_us: after it was due")
done = event("starter", "done", waited_us="f64", description="waited_us: neither slept nor ran")


def compute(steps):
    number = 0
    for _ in range(steps):
        number += 1
    return number


def turns(count, sleep_ns, steps):
    """So many turns; ns for which it neither slept nor had a processor."""
    began, ran = time.monotonic_ns(), time.thread_time_ns()
    for number in range(count):
        due = time.monotonic_ns() + sleep_ns
        time.sleep(sleep_ns / 1e9)
        woke(number, (time.monotonic_ns() - due) / 1e3)
        compute(steps)
    ran = time.thread_time_ns() - ran
    return time.monotonic_ns() - began - ran - count * sleep_ns


with Session(["run"]) as session:
    for phase in session:
        config = session.config
        if config["policy"] == "fifo":
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
        elif config["policy"] == "batch":
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        done(0, turns(int(config["iterations"]), 1_000_000, 1000) / 1e3)
