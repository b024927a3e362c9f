"""The time that all hosts share, read without a system call.

    from loopscope_trace import clock

    sent = clock.now()
    took = clock.elapsed(sent, clock.now())
    if took is not None:
        print(f"{took.best} ns, at most {took.longest}")

A service of the machine publishes what it knows of the global clock on a page of shared memory:
the file that ``LOOPSCOPE_CLOCK`` names, else ``/dev/shm/loopscope-clock``. Reading it needs no
privilege and never waits, whatever became of the service; what has expired is ``UNKNOWN``. Only
:func:`open` raises, and whatever is given arguments that are none.

Times are nanoseconds of the global clock, which begins where the reference host's counter does;
:func:`utc` says how far it is from UTC. The truth lies in ``earliest`` to ``latest``, both
included, under the stated bound on oscillators and no other assumption. An ``UNKNOWN`` time has
the least and the largest number of 64 bits there.
"""

from ._core import ClockSpan as Span
from ._core import ClockTime as Time
from ._core import ClockUtc as Utc
from ._core import elapsed, map, monotonic, now, open, utc

__all__ = [
    "HOLDOVER",
    "SYNCHRONISED",
    "UNKNOWN",
    "Span",
    "Time",
    "Utc",
    "elapsed",
    "map",
    "monotonic",
    "now",
    "open",
    "utc",
]

# enum loopscope_clock_status in clock.h.
UNKNOWN = 0
"""Nothing is known, or nothing that still holds."""
SYNCHRONISED = 1
"""The reference answers."""
HOLDOVER = 2
"""The reference does not answer any more; widths grow."""
