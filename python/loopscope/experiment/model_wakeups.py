"""What wakes the threads of programs that record nothing: the keys of ``trace.wakeups``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from . import event_values, values
from .event_selection import check_recorded
from .file_section import Section
from .place import Place


class Wakeups(Section):
    """Timers or interrupts that wake threads of programs, told from the kernel's events."""

    by: Literal["timer", "interrupt"] = Field(
        description="timer: a timer that ends a sleep, such as clock_nanosleep's or epoll_wait's. "
        "interrupt: an interrupt of a device, or a soft interrupt that one asked for."
    )
    interrupt: Annotated[str, values.Text()] | None = Field(
        default=None,
        description="Pattern on the interrupt's name in /proc/interrupts, with * and ?, such as "
        "eth0*. Default: any.",
    )
    thread: Annotated[str, values.Text()] = Field(
        default="*",
        description="Pattern on the names of the threads that it wakes, of at most 15 characters, "
        "with * and ?. Default: all of a component.",
    )

    number: Annotated[str, event_values.Entity()] | None = Field(
        default=None,
        description="Event (group:name) whose number each has: that of the first one that the "
        "thread has after it and before the next of these, such as cmd:sent. Those without one are "
        "counted, and have no event. Default: their place in order, from 0.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        number = at.get("number")
        if number is not None and number.text:
            group = number.text.partition(":")[0]
            if group in (name for name, _ in at.whole.entries("trace", "wakeups")):
                number.report(f"{number.text} is what wakes a thread, which has no number itself")
            else:
                check_recorded(number, number.text)
        interrupt = at.get("interrupt")
        if interrupt is not None and at.text_at("by") == "timer":
            interrupt.report("a timer has no interrupt of its own: remove this", at_key=True)
