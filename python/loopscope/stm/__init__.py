"""Space-time memory: channels of items with a time, which the programs of a machine share.

A channel has at most one item of each time. Programs put items, get them by their times without a
copy, and say which times they have consumed; what nobody can want any more is freed.
`schema/stm.md` says what each operation does. Channels have names, by a service: ``loopscope stm
serve``.

>>> from loopscope import stm
>>> frames = stm.Service().create("frames", item_bytes=1 << 20)
>>> camera, tracker = frames.output(), frames.input()
>>> camera.put(7, b"a frame")
>>> with tracker.get(7) as item:
...     bytes(item)
b'a frame'
>>> tracker.consume_until(7)
"""

from loopscope._native import (
    Ambiguous,
    Exists,
    Full,
    Gone,
    Late,
    Never,
    NoSlot,
    NotConnected,
    NotYet,
    StmError,
    TooMany,
)
from loopscope.stm.channels import Channel, Counts, Input, InputCounts, Look, Output, Service
from loopscope.stm.items import Item, Loan, Serializer
from loopscope.stm.pace import Pace, Turn

__all__ = [
    "Ambiguous",
    "Channel",
    "Counts",
    "Exists",
    "Full",
    "Gone",
    "Input",
    "InputCounts",
    "Item",
    "Late",
    "Loan",
    "Look",
    "Never",
    "NoSlot",
    "NotConnected",
    "NotYet",
    "Output",
    "Pace",
    "Serializer",
    "Service",
    "StmError",
    "TooMany",
    "Turn",
]
