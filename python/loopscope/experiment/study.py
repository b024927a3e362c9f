"""The keys of a study: numbers of single entities, the table of points, the figures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from . import statement_values, values
from .quantity import DURATION
from .section import Section

Text = Annotated[str, values.Text()]
Scalar = str | int | float | bool


class Value(Section):
    """One number made of a field of an entity's events, over all repeats of a point."""

    of: Annotated[str, statement_values.Entity()] = Field(description="The entity, as group:name.")
    field: Annotated[str, values.Identifier("a field")] | None = Field(
        default=None, description="Which of its fields; only stat: count does without one."
    )
    component: Annotated[str, values.Reference("component")] | None = Field(
        default=None, description="Only this component's events. Default: every component's."
    )
    stat: Annotated[str, statement_values.OfValues()] = Field(
        description="mean, deviation (standard deviation), min, max, sum, last (of the last "
        "repeat), count (of events) or a percentile as p99."
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
