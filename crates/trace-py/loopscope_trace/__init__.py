"""Instrumentation of Python programs: events, intervals, counters, histograms and flows.

    from loopscope_trace import event

    sent = event("pipe", "sent", size="u32")
    sent(id, 12)

Make entities where modules begin, and call them where it matters. A group and a name are printable
ASCII without spaces, ``:``, ``"``, ``\\`` and ``,``; people write the two as ``group:name``. The id
ties the events of one message together: any integer of 64 bits.

While nobody records, a call is little more than a call; its arguments are counted, not looked at.
A process that runs under ``loopscope record`` or is attached to writes its records into mapped
files, without a system call, each stamped with the machine's counter.

Entities may be used by any number of threads, and in forked children. They belong to the main
interpreter: a subinterpreter with a lock of its own cannot import this module.
"""

from __future__ import annotations

import sys

try:
    from . import _core
except ImportError as error:
    raise ImportError(
        "loopscope_trace needs 64-bit Linux on x86-64 or aarch64 and CPython 3.8 or later, "
        f"in its main interpreter; its extension module does not load here: {error}"
    ) from error
from ._core import Counter, Histogram, Interval, thread_init

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import TypeVar

    from ._core import Event, Link

    Made = TypeVar("Made")

__all__ = [
    "Counter",
    "Histogram",
    "Interval",
    "counter",
    "describe",
    "event",
    "flow_in",
    "flow_link",
    "flow_out",
    "histogram",
    "interval",
    "thread_init",
]
__version__ = "0.1.0"

# Types of fields, with their codes in a call site.
_TYPES = {
    "u8": 1,
    "u16": 2,
    "u32": 3,
    "u64": 4,
    "i8": 5,
    "i16": 6,
    "i32": 7,
    "i64": 8,
    "f32": 9,
    "f64": 10,
    "str": 11,
    "bytes": 12,
}
_MOST_FIELDS = 8
# enum loopscope_kind in trace.h.
_EVENT, _FLOW_OUT, _FLOW_IN, _FLOW_LINK = 1, 10, 11, 12
_MOST_BUCKETS = 60000
_LONGEST_NAME = 255
_LONGEST_TEXT = 4096

# What was made, by what and where: made again in the same place, it is the same.
_made: dict[tuple[object, ...], object] = {}
# The range of each histogram: a call site that gave another would be refused.
_extents: dict[tuple[str, str], tuple[int, int, int] | None] = {}


def event(group: str, name: str, *, unit: str = "", description: str = "", **fields: str) -> Event:
    """An event, as a callable: ``sent = event("pipe", "sent", size="u32")``, ``sent(id, 12)``.

    Each keyword is a field and its type: ``u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 str bytes``, eight
    of them at most. The callable takes the id and a value for each field, by position or by name
    (the id of an event without fields by position alone). ``bytes`` takes whatever has a buffer.
    ``unit`` says what the values are counted in (``"ns"``, ``"B"``), ``description`` what the event
    is, for those who read the trace.

    The callable raises TypeError for a wrong number of arguments, and while the event is recorded
    also TypeError, OverflowError or ValueError for a value that its field cannot hold. Raises
    ValueError here for names and types that are none.
    """
    return _event(_EVENT, group, name, fields, unit, description, sys._getframe(1))


def flow_out(
    group: str, name: str, *, unit: str = "", description: str = "", **fields: str
) -> Event:
    """An event that marks the sending of the message with its id; otherwise as :func:`event`."""
    return _event(_FLOW_OUT, group, name, fields, unit, description, sys._getframe(1))


def flow_in(
    group: str, name: str, *, unit: str = "", description: str = "", **fields: str
) -> Event:
    """An event that marks the arrival of the message with its id; otherwise as :func:`event`."""
    return _event(_FLOW_IN, group, name, fields, unit, description, sys._getframe(1))


def flow_link(group: str, name: str, *, description: str = "") -> Link:
    """States that an output was computed from an input: ``fused(in_id, out_id)``.

    Many inputs of one output, and many outputs of one input, are a call each.
    """
    return _event(_FLOW_LINK, group, name, {"out": "i64"}, "", description, sys._getframe(1))


def interval(
    group: str,
    name: str,
    *,
    id: str | None = None,
    over: int = 0,
    unit: str = "",
    description: str = "",
) -> Interval:
    """An interval: one record for each one completed, with its start and its duration.

        step = interval("ctl", "step")
        with step(id):            # or: step.start(), step.end(id)
            …
        with step(key=id):        # may be left on another thread or in another task
            …
        @interval("ctl", "step")  # each call of the function
        def control(): …

    Intervals without a key belong to the thread that starts them; they nest and recur. A key is an
    integer of 64 bits that start and end agree on, and becomes the record's id: two intervals that
    overlap have different keys.

    Only intervals longer than ``over``, in nanoseconds, are recorded. ``id`` is for decorators: the
    name of the function's argument that is the record's id, 0 without. Coroutine functions and
    generator functions are decorated too: from first step to last, keyed by that argument or else
    by a number that each call gets.

    A block that is entered while the interval is disabled is not recorded. An end without a start
    is counted as dropped.
    """
    if not isinstance(over, int) or not 0 <= over < 1 << 64:
        raise ValueError(f"{group}:{name}: over is a number of nanoseconds, not {over!r}")
    frame = sys._getframe(1)

    def decorate(made: Interval, function: Callable[..., object]) -> Callable[..., object]:
        from ._decorate import decorate

        return decorate(made, function, id)

    def make(*place: object) -> Interval:
        return _core.interval(*place, over, decorate)

    return _make(make, group, name, (over, id), unit, description, frame)


def counter(group: str, name: str, *, unit: str = "", description: str = "") -> Counter:
    """A counter: ``.add(amount=1)`` costs no record, ``.log()`` records the value, ``.reset()``.

    Each stream that has it enabled keeps a value of its own, from the time that it is enabled.
    Values wrap at 64 bits, signed.
    """
    return _make(_core.counter, group, name, (), unit, description, sys._getframe(1))


def histogram(
    group: str,
    name: str,
    *,
    low: int | None = None,
    high: int | None = None,
    buckets: int | None = None,
    unit: str = "",
    description: str = "",
) -> Histogram:
    """A histogram of integers: ``.add(value)`` costs no record, ``.log()`` records, ``.reset()``.

    With a range: ``buckets`` of equal width from ``low`` up to below ``high``; values outside are
    counted as below or above. Without: log-linear, 32 buckets per power of two from 0 to 2**63, for
    latencies of unknown range. Each stream that has it enabled keeps one of its own.
    """
    extent = _extent(group, name, low, high, buckets)

    def make(*place: object) -> Histogram:
        return _core.histogram(*place, extent)

    return _make(make, group, name, (extent,), unit, description, sys._getframe(1))


def describe(group: str, name: str = "*", *, unit: str = "", description: str = "") -> None:
    """Says what a group (without a name) or an entity is, and what its values are counted in."""
    _describe(group, name, unit, description, sys._getframe(1))


def _event(
    kind: int,
    group: str,
    name: str,
    fields: dict[str, str],
    unit: str,
    description: str,
    frame: FrameType,
) -> Event:
    if len(fields) > _MOST_FIELDS:
        raise ValueError(
            f"{group}:{name}: {len(fields)} fields; an event has {_MOST_FIELDS} at most"
        )
    if unit in _TYPES:
        raise ValueError(f"{group}:{name}: unit is what the values are counted in, not a field")
    for field, given in fields.items():
        if not (field.isascii() and field.isidentifier()) or field == "id":
            raise ValueError(f"{group}:{name}: {field!r} cannot be the name of a field")
        if given not in _TYPES:
            raise ValueError(
                f"{group}:{name}: field {field}: no type {given!r}; there are {', '.join(_TYPES)}"
            )
    described = tuple((field, _TYPES[given]) for field, given in fields.items())
    signature = ", ".join(["id", *fields])
    documentation = f"{name}({signature})\n--\n\n{description or f'Records {group}:{name}.'}"

    def make(*place: object) -> Event:
        return _core.event(kind, *place, described, documentation)

    return _make(make, group, name, (kind, described), unit, description, frame)


def _extent(
    group: str, name: str, low: int | None, high: int | None, buckets: int | None
) -> tuple[int, int, int] | None:
    extent = None
    if low is not None and high is not None and buckets is not None:
        extent = (low, high, buckets)
        inside = -(1 << 63) <= low < high < 1 << 63 and high - low < 1 << 63
        if not inside or not 1 <= buckets <= min(high - low, _MOST_BUCKETS):
            raise ValueError(
                f"{group}:{name}: {buckets} buckets from {low} to {high}: wanted are a low below "
                "high, less than 2**63 between them, and at least one value for each of 1 to "
                f"{_MOST_BUCKETS} buckets"
            )
    elif (low, high, buckets) != (None, None, None):
        raise ValueError(f"{group}:{name}: low, high and buckets go together")
    earlier = _extents.setdefault((group, name), extent)
    if earlier != extent:
        raise ValueError(f"{group}:{name}: is a histogram of another range already: {earlier}")
    return extent


def _make(
    make: Callable[..., Made],
    group: str,
    name: str,
    form: tuple[object, ...],
    unit: str,
    description: str,
    frame: FrameType,
) -> Made:
    """The entity that was made at this place in this form, else a new one."""
    key = (make.__qualname__, group, name, form, frame.f_code.co_filename, frame.f_lineno)
    made = _made.get(key)
    if made is None:
        _check_name("group", group)
        _check_name("name", name)
        made = _made.setdefault(key, make(group, name, *_place(frame)))
        if unit or description:
            _describe(group, name, unit, description, frame)
    return made  # type: ignore[return-value]


def _describe(group: str, name: str, unit: str, description: str, frame: FrameType) -> None:
    _check_name("group", group)
    _check_name("name", name)
    text = b"".join(_text(part) + b"\0" for part in (unit, description))
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"{group}:{name}: a unit and description of more than {_LONGEST_TEXT} B")
    _core.describe(group, name, *_place(frame), text)


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name) <= _LONGEST_NAME or any(not " " < c <= "~" or c in ':"\\,' for c in name):
        raise ValueError(
            f"{what} {name!r}: wanted is printable ASCII without spaces, colons, double quotes, "
            f"backslashes and commas, of at most {_LONGEST_NAME} characters"
        )


def _place(frame: FrameType) -> tuple[bytes, int]:
    return _text(frame.f_code.co_filename), frame.f_lineno


def _text(text: str) -> bytes:
    return text.replace("\0", "?").encode("utf-8", "backslashreplace")
