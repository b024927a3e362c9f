"""What the keys of a study must be together: units of values, and what a figure can draw."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import PydanticCustomError

from .source import Location, Mark, Scalar, Tree, child, elements, entries, text_of
from .statement_values import TIME, StatisticName, statistic
from .values import Names, Report


def units(measured: Tree | None) -> dict[str, str | None]:
    """The unit of each value; None where it cannot be read, "" of counts."""
    found: dict[str, str | None] = {}
    for name, _, value in entries(measured):
        unit = child(value, "unit")
        counted = unit is None and text_of(child(value, "stat")) == "count"
        found[name] = "" if counted else text_of(unit)
    return found


def values_are_whole(root: Tree, known: Names, report: Report) -> None:
    """A value that is no count has a field and a unit; a count has no field."""
    for name, mark, value in entries(child(child(root, "measure"), "values")):
        stat = text_of(child(value, "stat"))
        if stat is None:
            continue
        for key, wanted in (("field", "what it is of"), ("unit", "such as bit/s, ns or packets")):
            given = child(value, key)
            if stat != "count" and given is None:
                message = f"{stat} needs {key}: {wanted}"
                report(mark, ("measure", "values", name), message)
        for key in ("field", "scale", "per", "skip_first", "skip_last"):
            given = child(value, key)
            if stat == "count" and given is not None:
                message = f"count is of all the events: leave {key} out"
                report(given.mark, ("measure", "values", name, key), message)


def table(root: Tree, known: Names, report: Report) -> None:
    """There is a table where there are points, and its columns are statistics."""
    given = child(root, "table")
    if given is None:
        return
    if child(root, "sweep") is None:
        report(
            given.mark,
            ("table",),
            "a table is of the points of a sweep: give sweep, or leave it out",
        )
    for mark, column in _subjects(given, known):
        if column.is_messages(known):
            report(mark, ("table",), _a_path(column))


def figures(root: Tree, known: Names, report: Report) -> None:
    """A figure has axes of one unit each, and points to draw."""
    for name, _, figure in entries(child(root, "figures")):
        place: Location = ("figures", name)
        drawn = _subjects(child(figure, "y"), known)
        errors = _subjects(child(figure, "error"), known)
        over_time = text_of(child(figure, "x")) == TIME
        for mark, y in drawn:
            if over_time and y.stat not in (None, "age"):
                part = y.text.rpartition(".")[0]
                report(mark, (*place, "y"), f"over time, name a path or a value: {part}")
            elif not over_time and y.is_messages(known):
                report(mark, (*place, "y"), _a_path(y))
        for mark, error in errors:
            if error.is_messages(known):
                report(mark, (*place, "error"), _a_path(error))
        several = {y.unit(known) for _, y in [*drawn, *errors]}
        if len(several) > 1 and None not in several:
            kinds = " and ".join(sorted(unit or "a count" for unit in several if unit is not None))
            report(drawn[0][0], (*place, "y"), f"one axis cannot show {kinds}")
        if errors and len(drawn) > 1:
            report(errors[0][0], (*place, "error"), "error bars are of one statistic: name one y")
        labels = child(figure, "labels")
        if labels is not None and len(elements(labels)) != max(
            1, len(elements(child(figure, "y")))
        ):
            report(labels.mark, (*place, "labels"), "give each y one label")
        idle = ("error", "series", "compare") if over_time else ("until",)
        for key in idle:
            given = child(figure, key)
            if given is not None:
                why = "over time there is no" if over_time else "only figures over time have"
                report(given.mark, (*place, key), f"{why} {key}")
        x = child(figure, "x")
        if over_time and x is not None and _holds(child(figure, "log"), "x"):
            report(x.mark, (*place, "log"), "time begins at zero: no logarithmic axis")
        _only(place, child(figure, "only"), known.swept or {}, report)


def _only(
    place: Location, only: Tree | None, swept: Mapping[str, tuple[str, ...]], report: Report
) -> None:
    for parameter, _, value in entries(only):
        known = swept.get(parameter, ())
        if isinstance(value, Scalar) and not value.bad and known and value.text not in known:
            message = f"no point has {parameter}={value.text}: they are {', '.join(known)}"
            report(value.mark, (*place, "only", parameter), message)


def _subjects(tree: Tree | None, known: Names) -> list[tuple[Mark, StatisticName]]:
    """What can be read of a subject or a list of them."""
    items = elements(tree) or ([tree] if isinstance(tree, Scalar) else [])
    found = []
    for item in items:
        text = text_of(item)
        if text is None:
            continue
        try:
            found.append((item.mark, statistic(text, known)))
        except PydanticCustomError:
            continue
    return found


def _a_path(given: StatisticName) -> str:
    return f"{given.text} is a path: name one of its statistics, such as {given.text}.p99"


def _holds(tree: Tree | None, word: str) -> bool:
    return any(text_of(item) == word for item in elements(tree))
