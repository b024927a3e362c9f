"""Samples of a figure: columns of a table as numbers with units, in series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopscope.analysis.quantity_text import UNKNOWN_NS, number
from loopscope.experiment.problem import nearest
from loopscope.report.axis import places

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[Any]
    """int64 or float64."""
    Floats = npt.NDArray[np.float64]

_SUFFIXES = {
    "ns": "ns",
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "ppm": "ppm",
    "hz": "Hz",
    "bytes": "B",
    "bps": "bit/s",
}
_TIMES = re.compile(r"(latency|duration|interval|age|hop_\d+)(_err)?|hop_err_\d+|err_\d+")
_INSTANTS = re.compile(r"ts(_\d+)?|\w+_ts|start|end")


class FigureError(ValueError):
    """A figure that cannot be drawn. The text says why and what there is."""


def missing(what: str, given: str, known: Iterable[str]) -> str:
    """`no path lop (did you mean loop?); there is: loop`."""
    names = list(known)
    close = nearest(given, names)
    hint = f" (did you mean {close}?)" if close else ""
    return f"no {what} {given}{hint}; there is: {', '.join(names) or 'none'}"


@dataclass(frozen=True)
class Column:
    """Description of a role's numbers."""

    name: str
    unit: str
    """Unit of the numbers; empty for plain ones."""
    categories: tuple[str, ...] = ()
    """Where they stand for texts."""
    instant: bool = False
    """Whether they were instants; they count from the first then."""

    @property
    def title(self) -> str:
        return f"{self.name} since the first" if self.instant else self.name

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Series:
    label: str
    values: Mapping[str, Numbers]
    """Numbers by role, all of one length; maximum errors that are not known are NaN."""

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))


@dataclass(frozen=True)
class Samples:
    columns: Mapping[str, Column]
    """Descriptions by role."""
    series: tuple[Series, ...]
    left_out: int
    """Rows that lack one of the numbers."""
    key: str = ""
    """Quantity in which the series differ, with its unit; empty for one series."""

    def every(self, role: str) -> Numbers:
        return np.concatenate([each.values[role] for each in self.series])

    def __len__(self) -> int:
        return sum(map(len, self.series))

    @property
    def notes(self) -> list[str]:
        left_out = f"{number(self.left_out)} rows without a number left out"
        return [left_out] if self.left_out else []


def read_samples(
    table: pa.Table, roles: Mapping[str, str], options: Mapping[str, str], texts: bool
) -> Samples:
    """The columns that `roles` name, by role; rows that lack one of them are left out.

    A row of `series` without a text is of the series `none`. `err` may lack any: such a maximum
    error is unknown. Where `texts`, x may be text. Raises `FigureError` for a column that is not
    there or no number.
    """
    for role, name in roles.items():
        if name not in table.column_names:
            close = nearest(name, table.column_names)
            hint = f"; did you mean {close}?" if close else ""
            there = ", ".join(table.column_names)
            raise FigureError(f"{role}: the table has no column {name}{hint} It has: {there}")
    needed = [name for role, name in roles.items() if role not in ("err", "series", "key")]
    whole = table.select(list(dict.fromkeys(roles.values())))
    complete = pc.is_valid(whole[needed[0]])
    for name in needed:
        complete = pc.and_(complete, pc.is_valid(whole[name]))
        if pa.types.is_floating(whole.schema.field(name).type):
            finite = pc.fill_null(pc.is_finite(whole[name]), False)
            complete = pc.and_(complete, finite)
    rows = whole if pc.all(complete).as_py() else whole.filter(complete)
    if not len(rows):
        what = "is empty" if not len(table) else f"has no row with a number in {', '.join(needed)}"
        raise FigureError(f"nothing to draw: the table {what}")
    numbers: dict[str, Numbers] = {}
    columns: dict[str, Column] = {}
    for role, name in roles.items():
        if role == "series":
            continue
        label = options.get(f"{role}_label") or _words(name)
        unit = options.get(f"{role}_unit") or _unit(table.schema.field(name))
        instant = role == "x" and unit == "ns" and _INSTANTS.fullmatch(name) is not None
        values, columns[role] = _numbers(
            rows[name], role, Column(label, unit, instant=instant), texts and role == "x"
        )
        numbers[role] = values
    if "err" in numbers:
        of = columns["y" if "y" in columns else "x"]
        if columns["err"].unit not in ("", of.unit):
            raise FigureError(
                f"err: it is in {columns['err'].unit}, {of.name} in {of.unit or 'none'}"
            )
        columns["err"] = replace(columns["err"], unit=of.unit)
        err = np.asarray(numbers["err"], dtype=np.float64)
        numbers["err"] = np.where(err >= UNKNOWN_NS, np.nan, err)
    series = _series(rows, roles.get("series"), numbers)
    key = ""
    if "series" in roles:
        field = table.schema.field(roles["series"])
        given = options.get("series_label")
        key = Column(_words(field.name), _unit(field)).heading if given is None else given
    return Samples(columns, series, len(whole) - len(rows), key)


def _series(rows: pa.Table, name: str | None, numbers: Mapping[str, Numbers]) -> tuple[Series, ...]:
    if name is None:
        return (Series("", numbers),)
    column = rows[name]
    if pa.types.is_integer(column.type) and not column.null_count:
        numbered, code = _encoded(column)
        texts = list(map(str, numbered))
    else:
        texts, code = _encoded(column.cast(pa.string()).fill_null("none"))
    return tuple(
        Series(label, {role: values[code == i] for role, values in numbers.items()})
        for i, label in enumerate(texts)
    )


def _encoded(column: pa.ChunkedArray) -> tuple[list[Any], npt.NDArray[np.int32]]:
    """The values, in the order in which they first appear, and for each row which it is."""
    found = column.combine_chunks().dictionary_encode()
    return found.dictionary.to_pylist(), found.indices.to_numpy()


def _numbers(
    column: pa.ChunkedArray, role: str, as_told: Column, texts: bool
) -> tuple[Numbers, Column]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        instant = pa.types.is_timestamp(kind)
        to = pa.timestamp("ns") if instant else pa.duration("ns")
        values = column.cast(to).cast(pa.int64()).to_numpy()
        values = values - values.min() if instant else values
        return values, replace(as_told, unit="ns", instant=instant)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if not texts:
            raise FigureError(f"{role}: {as_told.name} is text: a number is needed")
        words, code = _encoded(column)
        at, unit, categories = places(words)
        return at[code], replace(as_told, unit=unit or as_told.unit, categories=categories)
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
        kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise FigureError(f"{role}: {as_told.name} is {kind}: a number is needed")
    if pa.types.is_integer(kind) and kind != pa.uint64():
        filled = column.fill_null(UNKNOWN_NS) if role == "err" else column
        values = filled.cast(pa.int64()).to_numpy()
    else:
        values = column.cast(pa.float64()).to_numpy()
    return values - values.min() if as_told.instant else values, as_told


def _unit(field: pa.Field) -> str:
    """Unit in the column's metadata (`unit`), else the one in its name."""
    told = (field.metadata or {}).get(b"unit")
    if told is not None:
        return str(told.decode())
    return unit_of_name(field.name)


def unit_of_name(name: str) -> str:
    """Unit by the ending of a column's name; empty where it has none."""
    if _TIMES.fullmatch(name) or _INSTANTS.fullmatch(name):
        return "ns"
    return unit_of_suffix(name)


def unit_of_suffix(name: str) -> str:
    """Unit by the last word of a name such as late_ms."""
    return _SUFFIXES.get(name.rpartition("_")[2], "") if "_" in name else ""


def _words(name: str) -> str:
    """A column's name without its unit."""
    stem, _, suffix = name.rpartition("_")
    return (stem if stem and suffix in _SUFFIXES else name).replace("_", " ")
