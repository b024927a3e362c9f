"""Reads messages on PORT with real-time priority; each takes a lock.

An ordinary process holds it for some HOLD ms of processor time, and then not for some PAUSE ms.
Both are on processor CPU.
"""

import multiprocessing
import os
import random
import signal
import socket
import sys
import time

from loopscope_trace import flow_in, flow_out

port, hold, pause, cpu = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
os.sched_setaffinity(0, {cpu})
lock = multiprocessing.get_context("fork").Lock()
reader = os.getpid()
if os.fork() == 0:
    # Only real-time threads keep it from its processor for long.
    os.nice(-20)
    while os.getppid() == reader:
        with lock:
            until = time.thread_time() + random.uniform(0.5, 1.5) * hold / 1000
            while time.thread_time() < until:
                pass
        time.sleep(random.uniform(0.5, 1.5) * pause / 1000)
    os._exit(0)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))
received, done = flow_in("msg", "received"), flow_out("msg", "done")
connection, _ = socket.create_server(("", port)).accept()
while message := connection.recv(8):
    number = int.from_bytes(message, "little")
    received(number)
    with lock:
        pass
    done(number)
signal.pause()
