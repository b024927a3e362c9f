"""Reads numbered datagrams on PORT."""

import socket
import sys

from loopscope_trace import flow_in

received = flow_in("msg", "received")
sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.bind(("", int(sys.argv[1])))
while True:
    received(int.from_bytes(sink.recv(8), "little"))
