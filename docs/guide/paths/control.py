#!/usr/bin/env python3
"""A camera, its receivers, and a controller with a period of its own: ``control.py ROLE``."""

import socket
import sys
import threading
import time

from loopscope_trace import event

from loopscope.phase import Session

GRACE_S = 0.5
"""How long receivers go on after the last frame."""


def camera(run, config):
    sent = event("cam", "sent")
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    to = [address(run, name) for name in ("tracker", "logger")]
    for frame in every(1 / 30, config["seconds"]):
        sent(frame)
        for receiver in to:
            out.sendto(b"%d" % frame, receiver)


def logger(run, config):
    received = event("cam", "received")
    for frame in numbers(config["seconds"] + GRACE_S):
        received(frame)


def tracker(run, config):
    received = event("cam", "received")
    made = event("est", "made", frame="u32")
    to = address(run, "controller")
    for estimate, frame in enumerate(numbers(config["seconds"] + GRACE_S), start=1000):
        received(frame)
        time.sleep(0.004)
        made(estimate, frame)
        inbox.sendto(b"%d" % estimate, to)


def controller(run, config):
    received = event("est", "received")
    applied = event("act", "applied", estimate="u32")
    planned = event("plan", "made")
    lock, first = threading.Lock(), threading.Event()
    newest = 0

    def hold():
        nonlocal newest
        for estimate in numbers(config["seconds"] + GRACE_S):
            with lock:
                newest = estimate
                received(estimate)
            first.set()

    holder = threading.Thread(target=hold)
    holder.start()
    first.wait(config["seconds"])
    for step in every(0.01, config["seconds"]):
        with lock:
            applied(step, newest)
            if step % 10 == 0:
                planned(step // 10)
    holder.join()


def every(period, seconds):
    """Counts, one number each period."""
    start = time.monotonic()
    for number in range(round(seconds / period)):
        time.sleep(max(0, start + number * period - time.monotonic()))
        yield number


def numbers(seconds):
    """What comes to this program's port."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        inbox.settimeout(left)
        try:
            yield int(inbox.recv(64))
        except TimeoutError:
            return


def address(run, name):
    peer = run.peers[name]
    return peer.address, peer.values["port"]


role = sys.argv[1]
inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inbox.bind(("", 0))
with Session(["listen", "run"], arguments=[]) as session:
    for phase in session:
        if phase.name == "listen":
            phase.publish(port=inbox.getsockname()[1])
        else:
            globals()[role](phase, session.config)
