"""Reads messages on PORT and works LESS ms on each, MORE for a SHARE of them."""

import random
import signal
import socket
import sys
import time

from loopscope_trace import flow_in, flow_out

received, done = flow_in("msg", "received"), flow_out("msg", "done")
port, (less, more, share) = int(sys.argv[1]), map(float, sys.argv[2:])
connection, _ = socket.create_server(("", port)).accept()
while message := connection.recv(8):
    number = int.from_bytes(message, "little")
    received(number)
    work = more if random.random() < share else less
    until = time.thread_time() + work / 1000
    while time.thread_time() < until:
        pass
    done(number)
signal.pause()
