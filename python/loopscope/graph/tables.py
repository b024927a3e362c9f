"""The tables of runs by name, whichever points and repeats they are of, and what they hold.

Every table has the columns `run` and `point` (texts) and `repeat`, and of a sweep `point_<name>`
for each parameter that is swept: durations in ns, sizes in bytes, other quantities in their base
unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loopscope import layout
from loopscope.experiment import Experiment, MessagePath
from loopscope.experiment.quantity import Dimension, dimension_of, parse
from loopscope.graph.mistake import GraphError
from loopscope.report.axis import UNITS
from loopscope.timeline import TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from loopscope.timeline import Run

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Part:
    """Files of one repeat, and the columns that are the same in all their rows."""

    files: tuple[Path, ...]
    columns: Mapping[str, Scalar]


@dataclass(frozen=True)
class Stored:
    """A table in files.

    ``types`` are Ibis's, of all its columns in order. ``units`` are of columns whose names do not
    say it.
    """

    parts: tuple[Part, ...]
    types: Mapping[str, str]
    units: Mapping[str, str] = field(default_factory=dict)


def stored_tables(
    runs: Sequence[Run], points: Mapping[str, Mapping[str, Scalar]]
) -> dict[str, Stored]:
    """Every table of the runs; ``points`` are the swept parameters of each point by its name.

    Raises GraphError where a column has types that do not go together.
    """
    parts: dict[str, list[Part]] = {}
    for run in runs:
        swept = points.get(run.point, {})
        for repeat, directory in run.repeats.items():
            known: dict[str, Scalar] = {"run": run.id, "point": run.point, "repeat": repeat}
            known |= {f"point_{name}": _number(value) for name, value in swept.items()}
            for table, files in _files(directory).items():
                parts.setdefault(table, []).append(Part(tuple(files), known))
    units, values = units_of_points(points.values()), _units_of_values(runs)
    return {
        name: Stored(tuple(found), _types(name, found), units | values.get(name, {}))
        for name, found in parts.items()
    }


def units_of_points(points: Iterable[Mapping[str, Scalar]]) -> dict[str, str]:
    """The units of the columns of swept parameters whose values are quantities of one dimension."""
    found: dict[str, set[Dimension | None]] = {}
    for point in points:
        for name, value in point.items():
            of = dimension_of(value) if isinstance(value, str) else None
            found.setdefault(f"point_{name}", set()).add(of)
    same = {name: each.pop() for name, each in found.items() if len(each) == 1}
    return {name: UNITS[of.base] for name, of in same.items() if of and of.base in UNITS}


def _units_of_values(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """The units of the column `value`, by table, as programs describe their events."""
    import pyarrow.parquet

    found: dict[str, set[str]] = {}
    files = (layout.table(each, "entities") for run in runs for each in run.repeats.values())
    for file in files:
        if file.exists():
            for row in pyarrow.parquet.read_table(file).to_pylist():
                if row.get("unit"):
                    found.setdefault(row["entity"].replace(":", ".", 1), set()).add(row["unit"])
    return {table: {"value": each.pop()} for table, each in found.items() if len(each) == 1}


def path_types(path: MessagePath, points: Iterable[Mapping[str, Scalar]] = ()) -> dict[str, str]:
    """The columns of a path's table (`schema/run-directory.md`) before it is there."""
    columns = ["id"]
    for i in range(len(path.events)):
        columns += [f"ts_{i}", f"err_{i}"]
    for i in range(len(path.events) - 1):
        columns += [f"hop_{i}", f"hop_err_{i}"]
    columns += ["latency", "latency_err"]
    return {**scope_types(points), **dict.fromkeys(columns, "int64")}


def scope_types(points: Iterable[Mapping[str, Scalar]] = ()) -> dict[str, str]:
    """The columns that every table has, of a sweep of these points."""
    found = {"run": "string", "point": "string", "repeat": "int64"}
    for point in points:
        for name, value in point.items():
            found[f"point_{name}"] = _wider(found.get(f"point_{name}"), _type_of(_number(value)))
    return found


def points_of(experiment: Experiment) -> dict[str, Mapping[str, Scalar]]:
    """The swept parameters of each point."""
    return {point.name: point.params for point in experiment.points}


def _files(directory: Path) -> dict[str, list[Path]]:
    found = {name: sorted(files) for name, files in layout.event_tables(directory).items()}
    others = {name: layout.table(directory, name) for name in sorted(TABLES)}
    found |= {name: [file] for name, file in others.items() if file.exists()}
    return found | {f"paths.{n}": [file] for n, file in layout.path_tables(directory).items()}


def _types(table: str, parts: Sequence[Part]) -> dict[str, str]:
    import pyarrow.parquet

    of_part: dict[str, str] = {}
    of_file: dict[str, str] = {}
    large: set[str] = set()
    for part in parts:
        for name, value in part.columns.items():
            of_part[name] = _wider(of_part.get(name), _type_of(value))
        for file in part.files:
            footer = pyarrow.parquet.read_metadata(file)
            schema = footer.schema.to_arrow_schema()
            large |= _large(footer, {each.name for each in schema if str(each.type) == "uint64"})
            for each in schema:
                given = _held_as(each.type)
                known = of_file.get(each.name, given)
                if known != given and {known, given} != {"int64", "float64"}:
                    raise GraphError(
                        f"{file}: the column {each.name} of {table} is {given} here and {known} "
                        "in other repeats or runs"
                    )
                of_file[each.name] = known if known == given else "float64"
    of_file |= dict.fromkeys(large, "string")
    return {**of_part, **{name: each for name, each in of_file.items() if name not in of_part}}


def _large(footer: pq.FileMetaData, unsigned: set[str]) -> set[str]:
    """Columns with whole numbers of 2^63 and more, which no engine's numbers hold.

    They are texts of digits, and still keys.
    """
    if not footer.num_row_groups:
        return set()
    first = footer.row_group(0)
    names = {i: first.column(i).path_in_schema for i in range(footer.num_columns)}
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    found = set()
    for i, name in names.items():
        if name in unsigned:
            told = (group.column(i).statistics for group in groups)
            if any(each is not None and each.has_min_max and each.max >= 1 << 63 for each in told):
                found.add(name)
    return found


def _held_as(given: pa.DataType) -> str:
    """Type in which engines hold a column: whole numbers of 64 bits, reals of double precision."""
    import pyarrow as pa

    if pa.types.is_dictionary(given):
        return _held_as(given.value_type)
    if pa.types.is_integer(given):
        return "int64"
    if pa.types.is_floating(given):
        return "float64"
    if pa.types.is_boolean(given):
        return "boolean"
    if pa.types.is_list(given) or pa.types.is_large_list(given):
        return f"array<{_held_as(given.value_type)}>"
    if pa.types.is_binary(given) or pa.types.is_large_binary(given):
        return "binary"
    return "string"


def _number(value: Scalar) -> Scalar:
    """A parameter's value in its base unit, where it is a quantity."""
    dimension = dimension_of(value) if isinstance(value, str) else None
    if dimension is None:
        return value
    exact = parse(value, dimension)
    return int(exact) if exact.denominator == 1 else float(exact)


def _type_of(value: Scalar) -> str:
    return {bool: "boolean", int: "int64", float: "float64", str: "string"}[type(value)]


def _wider(known: str | None, given: str) -> str:
    if known is None or known == given:
        return given
    return "float64" if {known, given} == {"int64", "float64"} else "string"
