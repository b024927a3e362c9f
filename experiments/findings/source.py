"""Sends COUNT numbered messages to HOST PORT over TCP, some PERIOD ms apart."""

import random
import socket
import sys
import time

from loopscope_trace import flow_out

sent = flow_out("msg", "sent")
host, port, count, period = sys.argv[1], *map(int, sys.argv[2:])
connection = socket.create_connection((host, port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for number in range(count):
    time.sleep(random.uniform(0.5, 1.5) * period / 1000)
    sent(number)
    connection.sendall(number.to_bytes(8, "little"))
