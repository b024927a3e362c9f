"""Columns of Arrow as arrays of NumPy. Arrow's own conversion imports pandas, which takes longer
than most analyses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt


def numpy_of(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """The values of a column of numbers or truth values, without copying where Arrow has them in
    one piece: the array may be read-only.

    Raises `pyarrow.ArrowTypeError` where a value is null or of another type.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_boolean(array.type):
        return numpy_of(array.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(array)
