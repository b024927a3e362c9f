"""Puts a picture 50 times a second by absolute time, and tells of turns that slip."""

import itertools
import sys

from loopscope import stm

frames = stm.Service().create("frames", item_bytes=640 * 480, capacity=4)
pace = stm.Pace(0.02, tolerance=0.001, on_slip=print)
with frames.output() as out:
    for turn in itertools.islice(pace, int(sys.argv[1])):
        out.put(turn.number, bytes(640 * 480))
print(pace.slips, "turns slipped,", pace.skipped, "were left out")
