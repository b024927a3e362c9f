"""The service of a machine's channels, a channel, and connections to it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Literal, NamedTuple

from loopscope._native import StmChannel, StmInput, StmItem, StmOutput, StmService
from loopscope.stm.items import Item, Loan, Serializer, serializer_of

Timeout = float | None
"""Seconds that an operation waits at most; 0: it does not; None: for as long as it takes."""


class Counts(NamedTuple):
    """What a channel has counted."""

    put: int
    """Items that were put."""
    collected: int
    """Those of them whose slot is free again."""
    dropped: int
    """Those of these that were dropped to make room."""
    present: int
    """Items that it has."""
    free: int
    """Slots that nobody uses."""


class InputCounts(NamedTuple):
    """What an input connection has counted."""

    floor: int
    """All times below this are consumed."""
    held: int
    """Items that it holds."""
    lost: int
    """Items that it wanted and that were dropped."""
    skipped: int
    """Items that it passed over by getting a newer one."""


class Look(NamedTuple):
    """A copy of an item."""

    time: int
    """Its time."""
    half_width: int
    """By how much the time may be wrong at most, in its units."""
    put_ns: int
    """When it was put: ns of CLOCK_MONOTONIC."""
    age_error_ns: int
    """By how much that may be wrong at most: 0 where it was put on this host."""
    data: bytes
    """Its bytes, or the first of them."""
    nbytes: int
    """How many it has."""


class _Ends:
    """What a program closes, or leaves by a ``with``."""

    _native: Any

    def close(self) -> None:
        """Ends it. Items and loans that are in use stay."""
        self._native.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Input(_Ends):
    """A connection that gets items. Each thread makes its own."""

    def __init__(self, native: StmInput, slot_bytes: int, serializer: Serializer | None) -> None:
        self._native = native
        self._slot_bytes = slot_bytes
        self._serializer = serializer
        self.floor: int = native.floor
        """All times below this were consumed when it joined."""

    def __enter__(self) -> Input:
        return self

    def get(self, time: int, timeout: Timeout = None) -> Item:
        """The item of a time. Waits until it is put.

        Raises `Gone` if the time was consumed or collected, `Never` if the producers have promised
        that none comes, `NotYet` if none came in time, and `TooMany` if it holds as many as it may.
        """
        return self._get("exact", timeout, time)

    def newest(self, timeout: Timeout = None) -> Item:
        """The item of the greatest time. Waits until there is one. Raises as `get`."""
        return self._get("newest", timeout)

    def oldest(self, timeout: Timeout = None) -> Item:
        """The item of the lowest time. Waits until there is one. Raises as `get`."""
        return self._get("oldest", timeout)

    def unseen(self, timeout: Timeout = None) -> Item:
        """The item of the greatest time, above all that this connection was given.

        Waits until there is one. Consumes all lower times. Raises as `get`.
        """
        return self._get("unseen", timeout)

    def nearest(
        self, time: int, tolerance: int, *, half_width: int = 0, timeout: Timeout = None
    ) -> Item:
        """The item whose time is nearest to one, and not farther from it than `tolerance`.

        `half_width`: by how much `time` may be wrong at most. Waits until there is one. Raises
        `Ambiguous` if several may be the nearest, by the half-widths of their times, else as `get`.
        """
        return self._get("nearest", timeout, time, tolerance, half_width)

    def look(self, after: int | None = None, most: int | None = None) -> Look:
        """A copy of the newest item, which is not held then and does not count as one that was got.

        `most`: bytes that are copied at most. Does not wait, and takes no lock but for a look in
        many. Raises `NotYet` if its time is not later than `after`, or this connection wants none.
        """
        return Look(*self._native.look(after, self._slot_bytes if most is None else most))

    def range(self, first: int, last: int) -> list[Item]:
        """The items that there are from one time to another, both included, by their times.

        Raises `TooMany` if it would hold more than it may; then it gets none.
        """
        return [self._item(item) for item in self._native.range(first, last)]

    def consume(self, time: int) -> None:
        """Says that it wants nothing of this time. Raises `TooMany`, see `ahead` of `create`."""
        self._native.consume(time)

    def consume_each(self, times: Iterable[int]) -> None:
        """Says that it wants nothing of these times, one after the other.

        Raises `TooMany` as `consume`; the times before are consumed then.
        """
        self._native.consume_each(list(times))

    def consume_until(self, time: int) -> None:
        """Says that it wants nothing of this and all lower times."""
        self._native.consume_until(time)

    def counts(self) -> InputCounts:
        """What it has counted."""
        return InputCounts(*self._native.counts())

    def _get(
        self, which: str, timeout: Timeout, time: int = 0, tolerance: int = 0, half_width: int = 0
    ) -> Item:
        return self._item(self._native.get(which, time, tolerance, half_width, timeout))

    def _item(self, native: StmItem) -> Item:
        return Item(native, self._slot_bytes, self._serializer)


class Output(_Ends):
    """A connection that puts items. Each thread makes its own."""

    def __init__(
        self,
        native: StmOutput,
        item_bytes: int,
        serializer: Serializer | None,
        on_collected: Callable[[int], object] | None,
    ) -> None:
        self._native = native
        self._item_bytes = item_bytes
        self._serializer = serializer
        self._on_collected = on_collected
        self._untold: deque[int] = deque()

    def __enter__(self) -> Output:
        return self

    def put(self, time: int, data: Any, *, half_width: int = 0, timeout: Timeout = None) -> None:
        """Puts a copy of what has a buffer: bytes, an array, and the like.

        `half_width`: by how much the time may be wrong at most, in its units. Waits for room.

        Raises `Exists`, `Late`, `Full` or `NoSlot`, and ValueError if it is longer than an item of
        this channel may be.
        """
        source = memoryview(data)
        try:
            flat: memoryview | bytes = source.cast("B")
        except TypeError:
            # An array that is not contiguous, has no elements, or elements with fields.
            flat = source.tobytes()
        end = None if timeout is None else monotonic() + timeout
        with self.loan(len(flat), timeout=timeout) as loan:
            loan.view[:] = flat
            left = None if end is None else max(end - monotonic(), 0)
            loan.put(time, half_width=half_width, timeout=left)

    def put_object(
        self, time: int, value: object, *, half_width: int = 0, timeout: Timeout = None
    ) -> None:
        """Puts a value as the bytes that the channel's serializer makes of it; else as `put`."""
        data = serializer_of(self._serializer).dumps(value)
        data = data.encode() if isinstance(data, str) else data
        self.put(time, data, half_width=half_width, timeout=timeout)

    def loan(self, nbytes: int | None = None, *, timeout: Timeout = None) -> Loan:
        """Memory for an item of so many bytes, or of as many as it may have, to be filled in place.

        Waits for a free slot; on another host than the channel's home, the put does. Raises
        `NoSlot`, and `TooMany` if it has as many as it may.
        """
        nbytes = self._item_bytes if nbytes is None else nbytes
        if not 0 <= nbytes <= self._item_bytes:
            raise ValueError(f"an item of this channel has at most {self._item_bytes} bytes")
        self._tell_collected()
        return Loan(self._native.loan(timeout), nbytes)

    def derives(self, source: Input) -> None:
        """Has the promise of this connection follow what its thread gets by another one.

        It puts nothing below the lowest time of which `source` has an item or may get one, as the
        producers there have promised. With several sources the lowest of theirs counts. Calls of
        the sources, and waits of theirs, carry the promise on.
        """
        self._native.derives(source._native)

    def collected(self) -> list[int]:
        """The times of its items that were collected since the last call; the handler is told them.

        An item is collected when its bytes are of no use to anybody any more, so that what belongs
        to it, such as a buffer of a camera, can be used again. Raises ValueError if the connection
        was made without `on_collected`.
        """
        if self._on_collected is None:
            raise ValueError("the connection was made without a handler: output(on_collected=…)")
        return self._tell_collected()

    def _tell_collected(self) -> list[int]:
        if self._on_collected is None:
            return []
        # Where the handler raises, the next call tells of the others.
        self._untold.extend(self._native.collected())
        told = []
        while self._untold:
            told.append(self._untold.popleft())
            self._on_collected(told[-1])
        return told

    def bound(self, time: int) -> int:
        """Promises that it puts nothing below a time any more. Returns the promise that holds."""
        promised: int = self._native.bound(time)
        return promised


class Channel:
    """A channel that this process uses. It does so until this and its connections are gone."""

    def __init__(self, name: str, native: StmChannel, serializer: Serializer | None) -> None:
        self._native = native
        self._serializer = serializer
        self.name = name
        """Its name."""
        self.capacity: int = native.capacity
        """Items that it may have."""
        self.item_bytes: int = native.item_bytes
        """Bytes that an item may have: what was asked for, or up to 63 more."""

    def input(
        self,
        start: Literal["oldest", "newest", "next"] | int = "oldest",
        *,
        lossy: bool = False,
        holds: int = 16,
    ) -> Input:
        """A new connection that gets items.

        `start`: it wants everything that is there, the newest item and what is later, what is later
        than everything so far, or everything from a time on. `lossy`: a full channel may drop items
        that this connection wants. `holds`: items that it may have at one time. Raises `TooMany`.

        Where the channel's home is another host, it waits until the home knows of the connection:
        no item that is put later is freed before it has come. Where the home is away it does not.
        """
        begin, at = (start, 0) if isinstance(start, str) else ("at", start)
        native = self._native.input(begin, at, lossy, holds)
        return Input(native, self.item_bytes, self._serializer)

    def output(self, *, on_collected: Callable[[int], object] | None = None) -> Output:
        """A new connection that puts items. Raises `TooMany`.

        `on_collected` is called with the time of each item that the connection has put and that was
        collected: in later calls of `put` and `loan`, and of `collected`.

        Where the channel's home is another host, each put goes there and waits for the answer.
        Raises `StmError` if the home does not answer, has no room for the connection, or has
        another channel of this name by now; and later in a put, if the home has gone away: the item
        may be put then or not, and the connection is of no use any more. A new one of the same
        channel goes to the home when that is back; what is put again there is put once.
        """
        native = self._native.output(on_collected is not None)
        return Output(native, self.item_bytes, self._serializer, on_collected)

    @property
    def restarts(self) -> int:
        """How many times its home on another host has begun anew, without its items.

        It counts from when it was opened here. What was put there between the last item that came
        before and the first that came after is lost, unless it is put again. 0 where its home is
        here.
        """
        restarts: int = self._native.restarts
        return restarts

    def counts(self) -> Counts:
        """What it has counted."""
        return Counts(*self._native.counts())

    def __repr__(self) -> str:
        return f"<Channel {self.name}: {self.capacity} items of up to {self.item_bytes} bytes>"


class Service(_Ends):
    """The service of this machine that knows channels by their names.

    `path` is that of its socket, or `@` and the name of one without a file. None: it is where
    ``loopscope stm serve`` is by default. Raises `StmError` if none is there.
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self._native = StmService(None if path is None else Path(path))

    def __enter__(self) -> Service:
        return self

    def create(
        self,
        name: str,
        *,
        item_bytes: int,
        capacity: int = 16,
        slots: int | None = None,
        inputs: int = 16,
        outputs: int = 4,
        loans: int = 1,
        processes: int = 16,
        ahead: int = 64,
        remembered: int = 64,
        orphans: Literal["keep", "discard"] = "keep",
        full: Literal["refuse", "drop"] = "refuse",
        lifespan: float | None = None,
        serializer: Serializer | None = None,
    ) -> Channel:
        """A new channel, or the one of this name if it was made with the same options.

        Args:
            name: 1 to 100 bytes.
            item_bytes: Bytes that an item may have.
            capacity: Items that it may have.
            slots: Places for items and for those that are being filled. By default there is one for
                every item and every loan. They are memory that is taken at once.
            inputs: Connections that get items, at most.
            outputs: Connections that put items, at most.
            loans: Items that an output connection may fill at one time.
            processes: Programs that may use it at one time.
            ahead: Times without an item that an input connection may have consumed one by one.
            remembered: Times that are gone, among others that are not, which it remembers.
            orphans: What becomes of items while there is no input connection.
            full: What a put does where all inputs still want all items: it waits, or the item of
                the lowest time is dropped and counts as lost.
            lifespan: How long after their put items are of use on other hosts, in seconds, up to an
                hour. They go there in datagrams, and what is not there in time counts as lost.
                None: they go over TCP, and all come.
            serializer: See `open`.

        Raises:
            StmError: There is one of other options, or too little memory.
        """
        if orphans not in ("keep", "discard"):
            raise ValueError(f"orphans are to be 'keep' or 'discard', and not {orphans!r}")
        if full not in ("refuse", "drop"):
            raise ValueError(f"full is to be 'refuse' or 'drop', and not {full!r}")
        if lifespan is not None and not 1e-6 <= lifespan <= 3600:
            raise ValueError(f"lifespan is to be a microsecond to an hour, and not {lifespan} s")
        self._native.create(
            name,
            capacity=capacity,
            slots=capacity + outputs * loans if slots is None else slots,
            item_bytes=item_bytes,
            inputs=inputs,
            outputs=outputs,
            processes=processes,
            loans=loans,
            ahead=ahead,
            remembered=remembered,
            discard_orphans=orphans == "discard",
            drop_when_full=full == "drop",
            lifespan_us=0 if lifespan is None else round(lifespan * 1e6),
        )
        return self._opened(name, True, serializer)

    def open(
        self, name: str, *, puts: bool = False, serializer: Serializer | None = None
    ) -> Channel:
        """A channel that is there; `puts`: to put items, too. Raises `StmError` without one.

        `serializer` makes bytes of the values of `put_object`, and values of the bytes of
        `Item.object`: a module such as `json` or `pickle`. Each program of a channel gives the same
        one. What `pickle` loads may do anything, so those that put have to be trusted.
        """
        return self._opened(name, puts, serializer)

    def _opened(self, name: str, puts: bool, serializer: Serializer | None) -> Channel:
        return Channel(name, self._native.channel(name, puts), serializer)

    def list(self) -> list[dict[str, Any]]:
        """The channels, and what they have, as ``loopscope stm list --json`` prints them."""
        channels: list[dict[str, Any]] = json.loads(self._native.list())
        return channels

    def remove(self, name: str) -> None:
        """Has the service forget a channel. Those that use it go on. Raises `StmError`."""
        self._native.remove(name)
