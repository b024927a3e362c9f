"""Numbers for what ties messages together, whatever type the fields of a key have.

Messages are joined by whole numbers of 64 bits. A key of one whole number is its own number, as
long as all its values fit. The values of every other key (text, bytes, 2⁶³ and more, several
fields) are numbered from 0 in their own order, alike at all events and in all repeats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from loopscope.experiment.measures import fields_of
from loopscope.timeline import RunError, UnknownTableError
from loopscope.timeline.relation import INTEGERS, column_types, identifier, literal

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.experiment import MessagePath, PathEvent
    from loopscope.timeline import Run
    from loopscope.timeline.relation import Relation

_WHOLE, _TEXT, _BYTES = "a whole number", "text", "bytes"
_LARGE = "DECIMAL(20, 0)"
"""Holds every signed and unsigned number of 64 bits."""
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Keys:
    """The numbers of a key's values; the same value has the same number in every table."""

    types: tuple[str, ...] = ()
    """SQL's types of the key's fields, so that different tables compare.

    Empty where each value is its own number.
    """
    values: pa.Table | None = None
    """A row for each number, a column for each field."""

    def numbered(
        self, run: Run, table: Relation, key: str, name: str, required: bool = True
    ) -> Relation:
        """A table of a run with the number of its key in a further column.

        Rows without a key are left out where it is `required`, else they have a null.
        """
        if self.values is None:
            made = table.project(f"*, {identifier(key)}::BIGINT AS {name}")
            return made.filter(f"{name} IS NOT NULL") if required else made
        known = run.relation_of(
            self.values.append_column(name, pa.array(np.arange(len(self.values))))
        )
        alike = " AND ".join(
            f"events.{identifier(field)}::{kind} = known.{_part(i)}"
            for i, (field, kind) in enumerate(zip(fields_of(key), self.types, strict=True))
        )
        joined = table.set_alias("events").join(
            known.set_alias("known"), alike, how="inner" if required else "left"
        )
        return joined.project(f"events.*, known.{name}")

    def shown(self, number: int) -> int | str:
        """The value that has a number: a whole number as such, bytes in hexadecimal digits."""
        if self.values is None:
            return number
        return shown([column[number].as_py() for column in self.values.columns])

    def numbers_of(self, text: str) -> list[int]:
        """The numbers of the values that `shown` writes so.

        Empty where there is no such value, several where fields hold what separates fields.
        """
        if self.values is not None:
            return [i for i, each in enumerate(self._texts) if each == text]
        number = int(text) if re.fullmatch("-?[0-9]{1,19}", text) else _MOST + 1
        return [number] if abs(number) <= _MOST else []

    def column(self, numbers: npt.NDArray[np.int64] | pa.Array) -> pa.Array | None:
        """The values that have some numbers, for a table; several fields are one text.

        None where the numbers say it themselves.
        """
        return None if self.values is None else self._column.take(pa.array(numbers))

    def lowest_bits(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The lowest 64 bits of the values that have some numbers.

        None where they are not of one whole number.
        """
        if self.values is None:
            return numbers
        if self.types != (_LARGE,):
            return None
        known = self.values[_part(0)].combine_chunks()
        # A decimal of Arrow's is 128 bits, the lowest first, negative ones as their complement.
        bits = np.frombuffer(known.buffers()[1], np.int64)[::2]
        return bits[known.offset : known.offset + len(known)][numbers]

    @cached_property
    def _texts(self) -> list[str]:
        """Every value as it is shown."""
        return [str(self.shown(i)) for i in range(0 if self.values is None else len(self.values))]

    @cached_property
    def _column(self) -> pa.Array:
        """The key of every number."""
        assert self.values is not None
        if len(self.types) > 1:
            return pa.array(self._texts, pa.string())
        known = self.values[_part(0)].combine_chunks()
        if pa.types.is_decimal(known.type):
            least = min((each.as_py() for each in known), default=0)
            known = known.cast(pa.uint64() if least >= 0 else pa.string())
        return known


PLAIN = Keys()
"""Keys of one whole number that fits into 64 bits."""


def read_keys(columns: Sequence[tuple[Relation, str, str]], of: str) -> Keys:
    """The numbers of keys: of each the rows that have it, its fields and whose it is, for people.

    `of` is for the message of a `RunError`, which is raised where a field is missing or no key.
    """
    kinds: list[tuple[str, str]] = []
    unsigned = False
    for table, key, whose in columns:
        fields = fields_of(key)
        for position, field in enumerate(fields):
            kind = _kind(table, field, whose, of)
            unsigned |= column_types(table)[field] == "ubigint"
            if position == len(kinds):
                kinds.append((kind, f"{field} of {whose}"))
            elif kinds[position][0] != kind:
                other, first = kinds[position]
                raise RunError(
                    f"{of}: {field} of {whose} is {kind} and {first} is {other}: what numbers the "
                    "same messages must be of one kind"
                )
        if len(fields) != len(kinds):
            raise RunError(
                f"{of}: {key} of {whose} are {len(fields)} fields, and elsewhere {len(kinds)}"
            )
    if [kind for kind, _ in kinds] in ([], [_WHOLE]) and not (unsigned and _beyond(columns)):
        return PLAIN
    names = {_WHOLE: _LARGE if unsigned else "BIGINT", _TEXT: "VARCHAR", _BYTES: "BLOB"}
    types = tuple(names[kind] for kind, _ in kinds)
    names_of_parts = [_part(i) for i in range(len(types))]
    every: Relation | None = None
    for table, key, _ in columns:
        cast = [
            f"{identifier(field)}::{kind} AS {name}"
            for field, kind, name in zip(fields_of(key), types, names_of_parts, strict=True)
        ]
        some = table.project(", ".join(cast)).filter(
            " AND ".join(f"{name} IS NOT NULL" for name in names_of_parts)
        )
        every = some if every is None else every.union(some)
    assert every is not None
    in_order = every.distinct().order(", ".join(names_of_parts))
    return Keys(types, in_order.to_arrow_table())


def read_list_keys(run: Run, path: MessagePath) -> Keys:
    """The keys of a path that is a list."""
    return _of_events(run, [(event, path.key) for event in path.events], path.name)


def read_graph_keys(run: Run, path: MessagePath) -> Mapping[tuple[int, str], Keys]:
    """The keys of a branching path, by event and key.

    They are those of its own messages, and those of the messages that its fields name.
    """
    alike: list[set[tuple[int, str]]] = [
        {(event, key)} for event, key in enumerate(path.keys) if key is not None
    ]
    for edge in path.edges:
        key = path.keys[edge.start]
        if edge.field is not None and key is not None:
            merged = {(edge.start, key), (edge.end, edge.field)}
            apart = [each for each in alike if not each & merged]
            alike = [*apart, merged.union(*(each for each in alike if each & merged))]
    found: dict[tuple[int, str], Keys] = {}
    for group in alike:
        columns = [(path.events[event], key) for event, key in sorted(group)]
        found |= dict.fromkeys(group, _of_events(run, columns, path.name))
    return found


def _of_events(run: Run, columns: Sequence[tuple[PathEvent, str]], path: str) -> Keys:
    """Those of some events that were recorded."""
    found = []
    for event, key in columns:
        try:
            table = run.relation(event.table)
        except UnknownTableError:
            continue
        of_component = table.filter(f"process = {literal(event.component)}")
        found.append((of_component, key, event.entity))
    return read_keys(found, f"path {path}")


def _kind(table: Relation, field: str, whose: str, of: str) -> str:
    kind = column_types(table).get(field)
    if kind in INTEGERS or kind == "boolean":
        return _WHOLE
    if kind == "varchar":
        return _TEXT
    if kind == "blob":
        return _BYTES
    why = "is no field" if kind is None else "is no whole number, text or bytes"
    raise RunError(f"{of}: {field} {why} of {whose}; its fields: {', '.join(table.columns)}")


def _beyond(columns: Sequence[tuple[Relation, str, str]]) -> bool:
    """Whether a value does not fit into a signed number."""
    largest = (
        table.aggregate(f"max({identifier(field)})").fetchone() for table, field, _ in columns
    )
    return any(most is not None and most > _MOST for each in largest if each for most in each)


def _part(i: int) -> str:
    return f"part_{i}"


def shown(values: Sequence[Any]) -> int | str:
    """The values of a key's fields, for people and JSON."""
    parts = [_shown(value) for value in values]
    return parts[0] if len(parts) == 1 else ", ".join(map(str, parts))


def _shown(value: Any) -> int | str:
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str) else int(value)
