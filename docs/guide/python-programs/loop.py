"""A sensor thread that hands readings to a control loop: ``python loop.py COUNT``."""

import queue
import sys
import threading
import time

from loopscope_trace import counter, flow_in, flow_out, histogram, interval

sent = flow_out("loop", "sent", celsius="f64")
received = flow_in("loop", "received", waiting="u16", description="waiting: readings behind it")
step = interval("loop", "step", description="One reading, from its receipt to the new output")
late = counter("loop", "late", description="Readings that were not the newest any more")
age = histogram("loop", "age", unit="ns", description="Of a reading when its step ends")

readings: "queue.Queue" = queue.Queue()


def sensor(count):
    for number in range(count):
        celsius = 20 + number % 7 / 10
        sent(number, celsius)
        readings.put((number, time.monotonic_ns(), celsius))
        time.sleep(0.001)
    readings.put(None)


@interval("loop", "control", id="number")
def control(number, celsius, output=0.0):
    return output + 0.2 * (20.3 - celsius)


threading.Thread(target=sensor, args=(int(sys.argv[1]),)).start()
output = 0.0
for number, measured, celsius in iter(readings.get, None):
    received(number, waiting=readings.qsize())
    with step(number):
        output = control(number, celsius, output)
        if not readings.empty():
            late.add()
    age.add(time.monotonic_ns() - measured)
late.log()
age.log()
print(f"output {output:.3f}")
