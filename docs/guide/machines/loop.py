#!/usr/bin/env python3
"""The loop of the guide to machines: a sensor, a tracker and an actuator send numbers on by UDP."""

import socket
import sys
import time

import loopscope_trace

PORT = 5005
PERIOD_S = 0.005

sent = loopscope_trace.event("loop", "sent")
received = loopscope_trace.event("loop", "received")
role, *to = sys.argv[1:]
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

if role == "sensor":
    for number in range(400):
        sent(number)
        link.sendto(b"%d" % number, (to[0], PORT))
        time.sleep(PERIOD_S)
else:
    link.bind(("", PORT))
    print("listening", flush=True)
    while message := link.recv(100):
        received(int(message))
        if to:
            sent(int(message))
            link.sendto(message, (to[0], PORT))
