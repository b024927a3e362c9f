"""Fewer points than were measured, and every outlier among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Indices = npt.NDArray[np.intp]


def thin(values: npt.NDArray[np.generic], limit: int) -> Indices:
    """Ascending indices of at most `limit` values, each stretch's greatest and least among them."""
    n = len(values)
    if n <= limit:
        return np.arange(n)
    kept: list[Indices] = []
    for stretch in np.array_split(np.arange(n), max(1, limit // 4)):
        here = values[stretch]
        of_stretch = [here.argmin(), here.argmax(), 0, len(stretch) // 2]
        kept.append(stretch[of_stretch])
    return np.unique(np.concatenate(kept))
