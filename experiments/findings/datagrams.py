"""Sends COUNT numbered datagrams of SIZE bytes to HOST PORT, some PERIOD ms apart."""

import random
import socket
import sys
import time

from loopscope_trace import flow_out

sent = flow_out("msg", "sent")
host, port, count, period, size = sys.argv[1], *map(int, sys.argv[2:])
source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
source.connect((host, port))
for number in range(count):
    time.sleep(random.uniform(0.5, 1.5) * period / 1000)
    sent(number)
    source.send(number.to_bytes(size, "little"))
