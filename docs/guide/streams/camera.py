"""Puts a picture 50 times a second. The time of an item is the picture's number."""

import sys
import time

from loopscope import stm

frames = stm.Service().create("frames", item_bytes=640 * 480, capacity=4)
with frames.output() as out:
    for number in range(int(sys.argv[1])):
        with out.loan() as loan:
            loan.array(shape=(480, 640))[:] = number % 256
            loan.put(number)
        time.sleep(0.02)
    out.put(number + 1, b"")  # the end
