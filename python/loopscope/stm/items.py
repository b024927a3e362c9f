"""Items that were got, and memory for items that are to be put, with views of their bytes."""

from __future__ import annotations

import ctypes
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from loopscope._native import StmItem, StmLoan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt


class Serializer(Protocol):
    """What makes bytes of values and values of bytes, such as the modules `json` and `pickle`."""

    def dumps(self, value: Any, /) -> bytes | str:
        """The bytes of a value; a text is put in UTF-8."""
        ...

    def loads(self, data: bytes, /) -> Any:
        """The value of bytes."""
        ...


def serializer_of(given: Serializer | None) -> Serializer:
    """The one that was given. Raises ValueError without one."""
    if given is None:
        raise ValueError("the channel was opened without a serializer: open(…, serializer=json)")
    return given


class _Memory:
    """Bytes of a slot. What keeps the slot lives as long as this or any view of them."""

    _what: str

    def __init__(self, keeper: StmItem | StmLoan, slot_bytes: int, nbytes: int) -> None:
        self._keeper: Any = keeper
        self._slot_bytes = slot_bytes
        self._nbytes = nbytes
        self._block: weakref.ref[Any] | None = None

    def _there(self) -> Any:
        if self._keeper is None:
            raise ValueError(f"the {self._what} has been released")
        return self._keeper

    def _bytes(self) -> memoryview:
        block: Any = None if self._block is None else self._block()
        if block is None:
            # As large as a slot: ctypes makes a type of its own for each size.
            keeper = self._there()
            block = (ctypes.c_ubyte * self._slot_bytes).from_address(keeper.address)
            block.keeper = keeper
            self._block = weakref.ref(block)
        self._there()
        return memoryview(block).cast("B")[: self._nbytes]

    def _is_viewed(self) -> bool:
        return self._block is not None and self._block() is not None

    def _array(
        self, view: memoryview, dtype: npt.DTypeLike, shape: Sequence[int] | int | None
    ) -> npt.NDArray[Any]:
        import numpy as np

        size = np.dtype(dtype).itemsize
        if not size or self._nbytes % size:
            raise ValueError(
                f"the {self._what} has {self._nbytes} bytes, which is no number of elements of "
                f"{size} bytes each ({np.dtype(dtype)})"
            )
        array: np.ndarray[Any, Any] = np.ndarray((self._nbytes // size,), dtype, view)
        return array if shape is None else array.reshape(shape)

    def __len__(self) -> int:
        return self._nbytes

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        """Releases the slot, or has the last of its views do so."""
        self._keeper = None


class Item(_Memory):
    """An item that was got. Its bytes stay as they are until it is released.

    It is released by `release`, at the end of a ``with``, and where it is garbage; in the latter
    two cases not before the last view of its bytes is gone.
    """

    _what = "item"

    def __init__(
        self, native: StmItem, slot_bytes: int, serializer: Serializer | None = None
    ) -> None:
        super().__init__(native, slot_bytes, native.bytes)
        self._serializer = serializer
        self.time: int = native.time
        """Its time, as its producer chose it."""
        self.half_width: int = native.half_width
        """By how much the time may be wrong at most, in its units."""
        self.put_ns: int = native.put_ns
        """When it was put: ns of CLOCK_MONOTONIC."""
        self.age_error_ns: int = native.put_error_ns
        """By how much `put_ns` and `age_ns` may be wrong: 0 where it was put on this host."""

    def __enter__(self) -> Item:
        self._there()
        return self

    @property
    def age_ns(self) -> int:
        """How long ago it was put, ns."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - self.put_ns

    @property
    def view(self) -> memoryview:
        """Its bytes, without a copy, to be read only."""
        return self._bytes().toreadonly()

    def array(
        self, dtype: npt.DTypeLike = "u1", shape: Sequence[int] | int | None = None
    ) -> npt.NDArray[Any]:
        """Its bytes as an array, without a copy, to be read only; one dimension without a shape.

        `numpy.from_dlpack` and other libraries take it without a copy, too. Raises ValueError if
        it has not the bytes of such an array.
        """
        return self._array(self.view, dtype, shape)

    def object(self) -> Any:
        """The value that the channel's serializer makes of its bytes.

        Raises what the serializer does, and ValueError if the channel was opened without one.
        """
        return serializer_of(self._serializer).loads(bytes(self))

    def __bytes__(self) -> bytes:
        return bytes(self.view)

    def release(self) -> None:
        """Ends its being held. Raises BufferError if there are views of its bytes."""
        if self._keeper is None:
            return
        if self._is_viewed():
            raise BufferError(
                "there are views of the item's bytes: delete them before, or leave it to them to "
                "release the item"
            )
        self._keeper.release()
        self._keeper = None

    def __repr__(self) -> str:
        state = ", released" if self._keeper is None else ""
        return f"<Item of time {self.time}, {self._nbytes} bytes{state}>"


class Loan(_Memory):
    """Memory for an item, to be filled and put. Without `put` it is given back."""

    _what = "loan"

    def __init__(self, native: StmLoan, nbytes: int) -> None:
        super().__init__(native, native.bytes, nbytes)

    def __enter__(self) -> Loan:
        self._there()
        return self

    @property
    def view(self) -> memoryview:
        """The bytes, to be written. What was in them before is not said."""
        return self._bytes()

    def array(
        self, dtype: npt.DTypeLike = "u1", shape: Sequence[int] | int | None = None
    ) -> npt.NDArray[Any]:
        """The bytes as an array to be written; one dimension if no shape is given.

        Raises ValueError if they are not those of such an array.
        """
        return self._array(self.view, dtype, shape)

    def put(
        self,
        time: int,
        nbytes: int | None = None,
        *,
        half_width: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Makes the bytes, or the first so many of them, the item of a time.

        `half_width`: by how much the time may be wrong at most, in its units. Where the channel is
        full it waits for `timeout` seconds; None: for as long as it takes.

        Raises BufferError if there are views of the bytes, by which the item could be changed, and
        `Full`, `NoSlot`, `Late` or `Exists`; the loan is there still.
        """
        keeper = self._there()
        nbytes = self._nbytes if nbytes is None else nbytes
        if not 0 <= nbytes <= self._nbytes:
            raise ValueError(f"{nbytes} bytes of a loan of {self._nbytes}")
        if self._is_viewed():
            raise BufferError(
                "there are views of the loan's bytes, which could change the item: delete them "
                "before it is put"
            )
        keeper.put(time, half_width, nbytes, timeout)
        self._keeper = None

    def __repr__(self) -> str:
        state = ", put or given back" if self._keeper is None else ""
        return f"<Loan of {self._nbytes} bytes{state}>"
