"""Sends COUNT messages to HOST PORT, some PERIOD ms apart, and waits for an answer to each.

A message has a head of 4 bytes and a body of 100, in WRITES calls.
"""

import random
import socket
import sys
import time

from loopscope_trace import flow_out

sent = flow_out("msg", "sent")
host, port, count, period, writes = sys.argv[1], *map(int, sys.argv[2:])
connection = socket.create_connection((host, port))
for number in range(count):
    time.sleep(random.uniform(0.5, 1.5) * period / 1000)
    head = number.to_bytes(4, "little")
    sent(number)
    for part in [head + bytes(100)] if writes == 1 else [head, bytes(100)]:
        connection.sendall(part)
    connection.recv(1)
