"""Looks at the newest picture that it has not seen."""

from loopscope import stm

frames = stm.Service().create("frames", item_bytes=640 * 480, capacity=4)
into = frames.input(lossy=True)
while True:
    with into.unseen(timeout=10) as frame:
        if not len(frame):
            break
        picture = frame.array(shape=(480, 640))
        print(f"{frame.time}: mean {picture.mean()}, {frame.age_ns / 1e6:.1f} ms old")
        del picture
print(into.counts())
