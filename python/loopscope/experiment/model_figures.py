"""Numbers of single entities and figures: the keys of a value and of a figure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from . import statement_values, values
from .channel import Layer
from .file_section import Section
from .place import Place
from .quantity import DURATION
from .statement_values import TIME, StatisticName, statistic
from .yaml_tree import Scalar as Tree_Scalar
from .yaml_tree import Tree, child, entries, text_of

Text = Annotated[str, values.Text()]
Scalar = str | int | float | bool


class Value(Section):
    """One number made of a field of an entity's events, or a layer's time, over all repeats."""

    of: Annotated[str, statement_values.Entity()] | None = Field(
        default=None, description="The entity, as group:name."
    )
    layer: Layer | None = Field(
        default=None,
        description="Instead of an entity, a layer of the time of all threads at channels, with "
        "stat: sum (in ns) or share (in %). application, blocked, runtime and messaging are by the "
        "clock; those with _cpu are processor time, of which the share is of the three; memory and "
        "synchronisation are parts of the runtime, messaging_synchronisation of messaging.",
    )
    field: Annotated[str, values.Identifier("a field")] | None = Field(
        default=None, description="Which of its fields; only stat: count does without one."
    )
    component: Annotated[str, values.Reference("component")] | None = Field(
        default=None, description="Only this component's events. Default: every component's."
    )
    stat: Annotated[str, statement_values.OfValues()] = Field(
        description="mean, deviation (standard deviation), min, max, sum, last (of the last "
        "repeat), count (of events) or a percentile as p99; of a layer, sum or share."
    )
    unit: Text | None = Field(
        default=None,
        description="Unit of the number, such as bit/s, B, ns or packets. Every statistic but "
        "count needs one.",
    )
    scale: Annotated[float, statement_values.Number()] = Field(
        default=1.0, description="What the field is multiplied by to be in that unit, such as 8."
    )
    per: Annotated[str, values.Key()] | None = Field(
        default=None,
        description="A field, such as id, or a list of several: the numbers of events that have "
        "the same there are added up first, as those of several processes in one second. Events "
        "that have none are left out.",
    )
    skip_first: Annotated[int, values.Integer(0, 1_000_000)] = Field(
        default=0, description="Events of each repeat to leave out at its beginning."
    )
    skip_last: Annotated[int, values.Integer(0, 1_000_000)] = Field(
        default=0,
        description="Events of each repeat to leave out at its end, such as a second that is cut "
        "short.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        stat = at.text_at("stat")
        if (at.get("of") is None) == (at.get("layer") is None):
            at.report(
                "a value is of an entity (of) or of a layer, and this has "
                + ("neither" if at.get("of") is None else "both"),
                at_key=True,
            )
        if stat is None:
            return
        if (layer := at.get("layer")) is not None:
            _check_layer(at, layer, stat)
            return
        if stat == "share":
            at.report("share is of a layer of the threads at channels", at_key=True)
        for key, wanted in (("field", "what it is of"), ("unit", "such as bit/s, ns or packets")):
            if stat != "count" and at.get(key) is None:
                at.report(f"{stat} needs {key}: {wanted}", at_key=True)
        for key in ("field", "scale", "per", "skip_first", "skip_last"):
            given = at.get(key)
            if stat == "count" and given is not None:
                given.report(f"count is of all the events: leave {key} out")


UNITS_OF_LAYERS = {"share": "%", "sum": "ns"}
"""What a layer's statistics are in."""


def _check_layer(at: Place, layer: Place, stat: str) -> None:
    if stat not in UNITS_OF_LAYERS:
        at.report(f"a layer has sum and share, and no {stat}", at_key=True)
    for key in ("field", "component", "unit", "scale", "per", "skip_first", "skip_last"):
        if given := at.get(key):
            given.report(f"a layer is of all threads at channels: leave {key} out")
    if not at.whole.entries("channels"):
        layer.report("the experiment has no channels, and layers are of the threads at them")


class Figure(Section):
    """Statistics against a swept parameter, or messages and values over time."""

    title: Text | None = Field(default=None, description="Default: what is drawn.")
    x: Annotated[str, statement_values.Axis()] = Field(
        description="The swept parameter along the horizontal axis; or time: then y is a path, "
        "PATH[EVENT -> EVENT], the age of data at each use (with .age, of graphs), or the name of "
        "a value, and each point of the sweep has a panel of its own."
    )
    y: Annotated[tuple[statement_values.StatisticName, ...], statement_values.Statistics()] = Field(
        description="One statistic or a list of them, as in expect: loop.p99, "
        "loop[EVENT -> EVENT].mean or the name of a value. Besides those of expect, paths have "
        "settling: how long after the first message the times came within 5 % of their largest "
        "excursion from the median of the run's second half; and where an event joins, age: the "
        "greatest of the data at a use."
    )
    labels: list[Text] = Field(
        default=[], description="What the key calls each of several y, in their order."
    )
    error: (
        Annotated[tuple[statement_values.StatisticName, ...], statement_values.Statistics(most=1)]
        | None
    ) = Field(
        default=None,
        description="A statistic to draw as error bars to both sides of y: loop.deviation.",
    )
    series: Annotated[str, values.Reference("swept parameter")] | None = Field(
        default=None, description="The swept parameter each of whose values has a line of its own."
    )
    only: dict[
        Annotated[str, values.Reference("swept parameter")],
        Annotated[Scalar, values.Single("the value of a swept parameter")],
    ] = Field(default={}, description="Only the points of the sweep with these values.")
    log: list[Literal["x", "y"]] = Field(default=[], description="Axes with a logarithmic scale.")
    compare: Literal["identity", "linear"] | None = Field(
        default=None,
        description="identity: a line where y is what x asks for. linear: the straight line that "
        "fits each series best, by least squares, with its slope.",
    )
    x_label: Text | None = Field(default=None, description="What x is. The unit is added.")
    y_label: Text | None = Field(default=None, description="What y is. The unit is added.")
    until: Annotated[int, values.Quantity(DURATION, "1us")] | None = Field(
        default=None, description="With x: time, how much is shown, such as 2s. Default: all."
    )

    @classmethod
    def check(cls, at: Place) -> None:
        drawn, errors = statistics_at(at.get("y")), statistics_at(at.get("error"))
        over_time = at.text_at("x") == TIME
        for place, y in drawn:
            if over_time and y.stat not in (None, "age"):
                part = y.text.rpartition(".")[0]
                place.report(f"over time, name a path or a value: {part}")
            elif over_time and _is_layer(at, y.text):
                place.report(f"{y.text} is a layer's time of a whole run, and has no course")
            elif not over_time and y.is_messages(at.names):
                place.report(a_path(y))
        for place, error in errors:
            if error.is_messages(at.names):
                place.report(a_path(error))
        several = {y.unit(at.names) for _, y in [*drawn, *errors]}
        if len(several) > 1 and None not in several:
            kinds = " and ".join(sorted(unit or "a count" for unit in several if unit is not None))
            drawn[0][0].report(f"one axis cannot show {kinds}")
        if errors and len(drawn) > 1:
            errors[0][0].report("error bars are of one statistic: name one y")
        labels = at.get("labels")
        if labels is not None and len(labels.elements()) != max(1, len(at.elements("y"))):
            labels.report("give each y one label")
        for key in ("error", "series", "compare") if over_time else ("until",):
            if given := at.get(key):
                why = "over time there is no" if over_time else "only figures over time have"
                given.report(f"{why} {key}")
        x = at.get("x")
        if over_time and x is not None and "x" in [item.text for item in at.elements("log")]:
            x.report("time begins at zero: no logarithmic axis")
        for parameter, value in at.entries("only"):
            known = (at.names.swept or {}).get(parameter, ())
            tree = value.tree
            if isinstance(tree, Tree_Scalar) and not tree.bad and known and tree.text not in known:
                value.report(f"no point has {parameter}={tree.text}: they are {', '.join(known)}")


def _is_layer(at: Place, name: str) -> bool:
    measured = at.whole.get("measure")
    values = measured.entries("values") if measured is not None else []
    return any(each == name and value.get("layer") is not None for each, value in values)


def statistics_at(at: Place | None) -> list[tuple[Place, StatisticName]]:
    """Readable statistics of one statistic or a list of them, each at its place."""
    if at is None:
        return []
    found = []
    for item in at.elements() or [at]:
        if item.text is not None:
            try:
                found.append((item, statistic(item.text, at.names)))
            except PydanticCustomError:
                continue
    return found


def a_path(given: StatisticName) -> str:
    """The message for a path in the place of a number."""
    return f"{given.text} is a path: name one of its statistics, such as {given.text}.p99"


def units(measured: Tree | None) -> dict[str, str | None]:
    """The unit of each value; None where it cannot be read, "" of counts."""
    found: dict[str, str | None] = {}
    for name, _, value in entries(measured):
        unit = child(value, "unit")
        stat = text_of(child(value, "stat"))
        if child(value, "layer") is not None:
            found[name] = UNITS_OF_LAYERS.get(stat or "")
        else:
            found[name] = "" if unit is None and stat == "count" else text_of(unit)
    return found
