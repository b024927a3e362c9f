"""Statistics of groups of rows, with confidence intervals, from batches that come group by group.

The k-th smallest of n draws from n sorted values is the value at ⌊n·U⌋, U being the k-th smallest
of n uniform numbers, which is distributed as Beta(k, n − k + 1): a resample's percentile takes one
draw and not n. Means and deviations are of whole resamples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopscope.analysis.bounded_statistics import Sample, nearest_rank, quantile
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.graph.digest import Digest

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.graph.engine import Batches

    Values = npt.NDArray[Any]
    """Array of int64 or float64."""

COLUMNS = {
    "of": "string",
    "statistic": "string",
    "value": "float64",
    "low": "float64",
    "high": "float64",
    "err": "float64",
    "count": "int64",
    "missing": "int64",
    "method": "string",
}
"""Columns of statistics besides those of their groups, with Ibis's types."""


def statistics_of(
    batches: Batches, by: Sequence[str], options: Mapping[str, Any], types: Mapping[str, str]
) -> Batches:
    """The statistics of `_value` and `_width` (ns; none: exact), one a row, of each group.

    The batches are in the order of ``by``.
    """
    from loopscope.graph.engine import arrow_schema

    schema = arrow_schema(types)
    for key, group in grouped(batches, by, options["memory"]):
        shared = dict(zip(by, key, strict=True)) | {
            "of": options["of"],
            "count": group.count,
            "missing": group.missing,
            "method": group.method,
        }
        rows = [
            {**shared, "statistic": name, **group.statistic(name, options)}
            for name in options["statistics"]
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def grouped(
    batches: Batches, by: Sequence[str], memory: int
) -> Iterator[tuple[tuple[Any, ...], _Group]]:
    """Groups of rows that follow each other, alike in ``by``, each when it is whole."""
    key: tuple[Any, ...] | None = None
    group = _Group(memory)
    for found, part in stretches(batches, by):
        if key is not None and found != key:
            yield key, group
            group = _Group(memory)
        key = found
        group.add(part)
    if key is not None:
        yield key, group


def stretches(
    batches: Batches, by: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Rows that follow each other in a batch, alike in ``by``, with their values there."""
    for batch in batches:
        starts = [0, *_changes(batch, by), batch.num_rows]
        for first, end in zip(starts, starts[1:], strict=False):
            if first < end:
                part = batch.slice(first, end - first)
                yield tuple(part[name][0].as_py() for name in by), part


def _changes(batch: pa.RecordBatch, by: Sequence[str]) -> list[int]:
    """The rows that differ in ``by`` from the row before."""
    if batch.num_rows < 2 or not by:
        return []
    differ = np.zeros(batch.num_rows - 1, dtype=bool)
    for name in by:
        before, after = batch[name].slice(0, batch.num_rows - 1), batch[name].slice(1)
        of_null = pc.xor(pc.is_null(before), pc.is_null(after))
        differ |= pc.coalesce(pc.not_equal(before, after), of_null).to_numpy(zero_copy_only=False)
    return [int(i) + 1 for i in np.flatnonzero(differ)]


@dataclass
class _Group:
    """Values, all of them up to ``memory``, beyond that their digest."""

    memory: int
    count: int = 0
    missing: int = 0
    _values: list[Values] = field(default_factory=list)
    _widths: list[Values] = field(default_factory=list)
    _digest: Digest | None = None

    @property
    def method(self) -> str:
        return "bootstrap" if self._digest is None else "t-digest"

    def add(self, batch: pa.RecordBatch) -> None:
        there = batch.filter(pc.is_valid(batch["_value"]))
        self.missing += batch.num_rows - there.num_rows
        self.count += there.num_rows
        values = there["_value"].to_numpy(zero_copy_only=False)
        widths = np.zeros(len(values), dtype=np.int64)
        if "_width" in batch.schema.names:
            widths = there["_width"].fill_null(UNKNOWN_NS).to_numpy(zero_copy_only=False)
        self._values.append(values)
        self._widths.append(widths)
        if self._digest is None and self.count > self.memory:
            self._digest = Digest()
        if self._digest is not None:
            for each, width in zip(self._values, self._widths, strict=True):
                self._digest.add(each, width)
            self._values.clear()
            self._widths.clear()

    def statistic(self, name: str, options: Mapping[str, Any]) -> dict[str, float | None]:
        """`value`, `low`, `high`, `err`; null where there is none."""
        if self.count == 0:
            return dict.fromkeys(("value", "low", "high", "err"))
        confidence = options["confidence"] / 1e6
        if self._digest is not None:
            return self._digest.statistic(name, confidence)
        values, widths = np.concatenate(self._values), np.concatenate(self._widths)
        value, err = _measured(values, widths, name)
        low, high = _interval(np.sort(values), name, confidence, options)
        return {"value": value, "low": low, "high": high, "err": err}


def _measured(values: Values, widths: Values, name: str) -> tuple[float, float | None]:
    if np.issubdtype(values.dtype, np.integer):
        bracket = Sample(values, widths).bracket(name)
        assert bracket is not None
        return float(bracket.value), None if bracket.err is None else float(bracket.err)
    return _of_reals(np.sort(values), name), 0.0


def _of_reals(values: Values, name: str) -> float:
    if name == "mean":
        return math.fsum(values) / len(values)
    if name == "deviation":
        return float(np.std(values))
    return float(values[_rank(name, len(values)) - 1])


def _rank(name: str, n: int) -> int:
    """The rank of a statistic among n sorted values, from 1."""
    if name in ("min", "max"):
        return 1 if name == "min" else n
    share = quantile(name)
    assert share is not None
    return nearest_rank(share, n)


def _interval(
    values: Values, name: str, confidence: float, options: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    """Confidence interval by resampling sorted values.

    None of the extremes: resamples never exceed them.
    """
    n, draws = len(values), options["resamples"]
    if name in ("min", "max") or n < 2:
        return None, None
    chance = np.random.default_rng(options["seed"])
    if name in ("mean", "deviation"):
        # From the first value on, so that a long time before them costs no digits.
        base = values[0]
        near = (values - base).astype(np.float64)
        offset = float(base) if name == "mean" else 0.0
        of = np.mean if name == "mean" else np.std
        found = np.array([of(near[chance.integers(0, n, n)]) for _ in range(draws)]) + offset
    else:
        k = _rank(name, n)
        found = values[
            np.floor(n * chance.beta(k, n - k + 1, draws)).astype(np.int64).clip(0, n - 1)
        ]
    tail = (1 - confidence) / 2
    found = np.sort(found)
    low = found[max(0, math.ceil(tail * draws) - 1)]
    high = found[min(draws - 1, math.ceil((1 - tail) * draws) - 1)]
    return float(low), float(high)
