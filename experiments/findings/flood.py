"""Sends datagrams of SIZE bytes to HOST PORT: for ON ms, then none for OFF ms, and so on.

Each call sends 60, which the network's code takes apart (UDP_SEGMENT). PAUSE: between calls, ms.
"""

import contextlib
import random
import socket
import sys
import time

UDP_SEGMENT = 103
host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
on, off, pause = (float(each) / 1000 for each in sys.argv[4:])
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flood.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
flood.connect((host, port))
datagrams = bytes(60 * size)
while True:
    until = time.monotonic() + random.uniform(0.5, 1.5) * on
    while time.monotonic() < until:
        # Where there is no room for them they are lost.
        with contextlib.suppress(OSError):
            flood.send(datagrams)
        if pause:
            time.sleep(pause)
    time.sleep(random.uniform(0.5, 1.5) * off)
