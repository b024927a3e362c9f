"""Reads messages of 104 bytes on PORT, and answers each with one byte."""

import signal
import socket
import sys

from loopscope_trace import flow_in

received = flow_in("msg", "received")
connection, _ = socket.create_server(("", int(sys.argv[1]))).accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while message := connection.recv(104, socket.MSG_WAITALL):
    received(int.from_bytes(message[:4], "little"))
    connection.sendall(b"k")
signal.pause()
