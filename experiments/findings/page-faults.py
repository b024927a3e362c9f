"""Reads messages on PORT; for a SHARE of them it uses PAGES pages for the first time.

KIND: `memory`, whose pages the kernel makes at once, or a `file`, which it reads 32 pages at a time.
"""

import mmap
import os
import random
import signal
import socket
import sys

from loopscope_trace import event, flow_in, flow_out

received, done = flow_in("msg", "received"), flow_out("msg", "done")
touched = event("msg", "touched")
port, pages, share, kind = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
step = mmap.PAGESIZE * (32 if kind == "file" else 1)
size = pages * step
file = os.open("pages", os.O_RDWR | os.O_CREAT)
os.write(file, os.urandom(size))
os.fsync(file)
connection, _ = socket.create_server(("", port)).accept()
while message := connection.recv(8):
    number = int.from_bytes(message, "little")
    # What is made is not used yet.
    if kind == "file":
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        memory = mmap.mmap(file, size, access=mmap.ACCESS_COPY)
    else:
        memory = mmap.mmap(-1, size)
    received(number)
    if random.random() < share:
        touched(number)
        for page in range(0, size, step):
            memory[page] = 1
    done(number)
    memory.close()
signal.pause()
