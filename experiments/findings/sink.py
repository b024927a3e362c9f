"""Has datagrams come to PORT, and reads none of them."""

import signal
import socket
import sys

sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sink.bind(("", int(sys.argv[1])))
signal.pause()
