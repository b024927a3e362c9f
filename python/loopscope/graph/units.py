"""The units of columns through a graph: of those that are read, of formulas, after each step.

A unit is told where dimensional analysis gives it: sums of equal units have it, products and
quotients with plain numbers keep it, quotients of equal units are plain. Everything else is open
and shown without a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from loopscope.experiment.formula import Column, Constant, Node, Use, parse
from loopscope.graph.mistake import Key, Mistake
from loopscope.report.axis import UNITS
from loopscope.report.samples import unit_of_name, unit_of_suffix

if TYPE_CHECKING:
    from loopscope.experiment import AnalysisStep

Unit = str | None
"""Unit as axes show it; empty for plain numbers, None where it is not known."""
Units = Mapping[str, Unit]
"""Units of all columns of a table by name."""

_SAME = frozenset(
    ("negative", "abs", "round", "floor", "ceil", "real", "nullif")
    + ("sum", "mean", "min", "max", "first", "lag", "lead")
)
"""Functions whose result is in the unit of their first argument."""
_PLAIN = ("sqrt", "ln", "log10", "exp")
"""Functions that give plain numbers of plain numbers."""
_COUNTS = ("count", "count_if", "count_distinct", "row", "length")
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "in")
_CONVERSIONS = {8, 60, 3600, *(base**n for base in (1000, 1024) for n in (1, 2, 3, 4))}
"""Factors by which numbers come into another unit; whether one was meant to is not known."""
_OWN: Mapping[str, Units] = {
    "pair": dict.fromkeys(("start", "end", "duration", "err_ns"), "ns"),
    "resample": {"start": "ns"},
    "histogram": {"count": ""},
    "statistics": dict.fromkeys(("count", "missing"), ""),
    "deadline": {
        "limit": "ns",
        **dict.fromkeys(("count", "met", "missed", "undecided", "allowed"), ""),
    },
}
"""The columns that steps make with the same units each time."""


def by_name(names: Iterable[str], known: Units) -> dict[str, Unit]:
    """The units of a table's columns: those that are known, else as their names say."""
    return {name: known[name] if name in known else unit_of_name(name) or None for name in names}


def after(
    step: AnalysisStep, names: Iterable[str], before: Units, of_table: Callable[[str], Units]
) -> dict[str, Unit]:
    """The units of the columns ``names`` that a step gives.

    ``of_table`` has those of the other tables that it takes, by name. Raises Mistake where a
    formula puts different units together.
    """
    options = step.options
    found: dict[str, Unit] = {**before, **_OWN.get(step.kind, {})}
    if step.kind == "where":
        _of_formula(options["condition"], before, "row", ())
    elif step.kind == "derive":
        for name, text in options["columns"].items():
            found[name] = _of_column(name, text, found, "row", (name,))
    elif step.kind in ("window", "group", "resample"):
        use: Use = "window" if step.kind == "window" else "aggregate"
        for name, text in options["derive"].items():
            found[name] = _of_column(name, text, before, use, ("derive", name))
    elif step.kind == "rename":
        for old, new in options["columns"].items():
            found[new] = before[old] if before[old] is not None else unit_of_name(new) or None
    elif step.kind in ("join", "as-of"):
        for name, unit in of_table(options["with"]).items():
            found[name + options["suffix"] if name in before else name] = unit
    elif step.kind == "merge":
        tables = [before, *map(of_table, options["with"])]
        for name in {name for table in tables for name in table}:
            units = {table[name] for table in tables if name in table}
            found[name] = units.pop() if len(units) == 1 else None
    elif step.kind in ("histogram", "statistics"):
        found |= dict.fromkeys(("low", "high", "value", "err"), before[options["of"]])
    elif step.kind == "python":
        # What a function does with a column is not known.
        found = {}
    return by_name(names, found)


def _of_column(name: str, text: str, units: Units, use: Use, keys: tuple[Key, ...]) -> Unit:
    """The unit of what a formula derives.

    A name such as late_ms decides; of one such as latency it is used where nothing in the formula
    has a unit.
    """
    found = _of_formula(text, units, use, keys)
    if said := unit_of_suffix(name):
        return said
    node = parse(text, use)
    open_ = found is None and not any(each for each in _units_in(node, units))
    return unit_of_name(name) or None if open_ else found


def _units_in(node: Node, units: Units) -> Iterable[Unit]:
    if isinstance(node, Constant):
        yield UNITS.get(node.unit, "")
    elif isinstance(node, Column):
        yield units[node.name]
    else:
        for each in node.arguments:
            yield from _units_in(each, units)


def _of_formula(text: str, units: Units, use: Use, keys: tuple[Key, ...]) -> Unit:
    """Raises Mistake where it puts different units together."""

    def unit(node: Node) -> Unit:
        if isinstance(node, Column):
            return units[node.name]
        if isinstance(node, Constant):
            return UNITS.get(node.unit, "") if isinstance(node.value, int | float) else None
        name, given = node.name, [unit(each) for each in node.arguments]
        if name in ("+", "-", "%", *_COMPARISONS):
            different = sorted({each for each in given if each})
            if len(different) > 1:
                raise Mistake(
                    f"{text!r}: {name} puts together numbers in {' and '.join(different)}: divide "
                    "each by a quantity of its unit, such as 1ms, if that is meant",
                    keys,
                )
        if name in ("+", "-", "%", "least", "greatest", "coalesce"):
            return _alike(node.arguments, given)
        if name == "if":
            return _alike(node.arguments[1:], given[1:])
        if name == "*":
            return _product(node.arguments, given)
        if name in ("/", "//"):
            if given[0] == given[1]:
                return None if given[0] is None else ""
            return given[0] if given[1] == "" and not _converts(node.arguments[1]) else None
        if name in _SAME:
            return given[0]
        if name in _PLAIN:
            return "" if given[0] == "" else None
        return "" if name in _COUNTS else None

    return unit(parse(text, use))


def _alike(nodes: Iterable[Node], given: Iterable[Unit]) -> Unit:
    """The unit that all have; numbers as such, and null, are in that of the others."""
    bare = [isinstance(node, Constant) and not node.unit for node in nodes]
    found = {unit for unit, each in zip(given, bare, strict=True) if not each}
    return (found.pop() if len(found) == 1 else None) if found else ""


def _product(nodes: tuple[Node, ...], given: list[Unit]) -> Unit:
    for i, of in enumerate(given):
        # A plain number takes the unit of the other, unless it may change it.
        if of == "" and not (given[1 - i] and _converts(nodes[i])):
            return given[1 - i]
    return None


def _converts(node: Node) -> bool:
    """Whether a factor may be there to change the unit."""
    if not isinstance(node, Constant) or not isinstance(node.value, int | float) or not node.value:
        return False
    size = abs(node.value)
    return any(abs(each - 1) < 1e-9 for of in _CONVERSIONS for each in (size / of, size * of))
