"""The steps of an analysis: what each takes, its options, and what it gives.

One definition: the checks of ``analyse``, the JSON Schema, ``loopscope analyse --steps`` and the
guide's table are made from these. What a step computes is in ``loopscope.graph``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from . import event_values, values
from .file_section import Section
from .place import Place
from .quantity import DURATION, RATIO
from .step_values import (
    Amount,
    Callable,
    Columns,
    Formula,
    Misses,
    StatisticList,
    TableName,
    TableNames,
)
from .values import Integer, Quantity

ColumnType = Literal["integer", "real", "text", "boolean"]
By = Annotated[list[str], Columns()]
Column = Annotated[str, values.Identifier("a column")]
Name = Annotated[str, TableName()]
Time = Annotated[
    str,
    values.Identifier("a column"),
    Field(default="ts", description="Column of the time, in ns."),
]


class Options(Section):
    """Options of a step.

    Where ``short`` is set, that option alone may stand in their place, and where it is the ``only``
    one it does.
    """

    short: ClassVar[str | None] = None
    only: ClassVar[bool] = False
    takes: ClassVar[str] = "a table"
    gives: ClassVar[str] = "the same columns"

    @model_validator(mode="before")
    @classmethod
    def _in_short(cls, value: Any) -> Any:
        if cls.short is not None and (cls.only or not isinstance(value, dict)):
            return {cls.short: value}
        return value


class Select(Options):
    """Keeps these columns, in this order."""

    short = "columns"
    only = True
    gives = "the columns named"
    columns: Annotated[list[str], Columns(1)] = Field(description="Which columns.")


class Where(Options):
    """Keeps the rows for which a condition holds."""

    short = "condition"
    only = True
    condition: Annotated[str, Formula()] = Field(
        description="Formula that is true or false, such as duration > 5ms and host = 'h2'."
    )


class Trim(Options):
    """Leaves out the rows of the first and the last stretch of each repeat."""

    short = "first"
    first: Annotated[int, Quantity(DURATION, "0s")] = Field(
        default="0s",
        validate_default=True,
        description="How long after the table's first row in each repeat, such as 30s.",
    )
    last: Annotated[int, Quantity(DURATION, "0s")] = Field(
        default="0s", validate_default=True, description="How long before its last row."
    )
    time: Time


class Rename(Options):
    """Gives columns other names."""

    short = "columns"
    only = True
    gives = "the same columns under their new names"
    columns: dict[Column, Column] = Field(min_length=1, description="OLD: NEW.")


class Derive(Options):
    """Adds columns, or replaces them; each formula sees those before it."""

    short = "columns"
    only = True
    gives = "the same columns and those derived"
    columns: dict[Column, Annotated[str, Formula()]] = Field(
        min_length=1, description="NAME: FORMULA, such as late: duration > 5ms."
    )


class Pair(Options):
    """Makes intervals of instants: the n-th start of a key with its n-th end, in each repeat.

    Starts without an end stay, with null in `end`, `duration` and `err_ns`.
    """

    takes = "the starts"
    gives = (
        "run, point, repeat, the key, `start`, `end`, `duration` (ns), `err_ns` (ns: the sum of "
        "both ends' maximum errors, unknown where one is; of two events of one host, where both "
        "tables still have `host` and `counter`, what its counter claims (`hosts`), if that is "
        "less), and what `keep` names"
    )
    with_: Name = Field(alias="with", description="Pipeline or table of the ends.")
    key: Annotated[list[str], Columns(1)] = Field(
        description="Columns that tie a start to its end, such as id."
    )
    keep: By = Field(default=[], description="Further columns of the starts.")
    time: Time
    width: Column = Field(
        default="err_ns", description="Column of the maximum error of the time, ns."
    )


class PathOf(Options):
    """The messages of a path of `measure.paths`, or of a part of it. Begins a pipeline."""

    short = "name"
    takes = "nothing: it stands first, in a pipeline without `from`"
    gives = (
        "run, point, repeat, `id` (and `key` where that is none of one whole number), `start`, "
        "`start_err` (its maximum error), `end`, `duration`, "
        "`err_ns` (the duration's maximum error), in ns; null where a message was not seen at an "
        "end"
    )
    name: Annotated[str, values.Reference("path")] = Field(description="The path.")
    first: Annotated[str, event_values.Event()] | None = Field(
        default=None, description="component/group:name where it begins. Default: the path's first."
    )
    last: Annotated[str, event_values.Event()] | None = Field(
        default=None, description="Where it ends. Default: the path's last."
    )


class Window(Options):
    """Adds columns made of the rows around each row, in each repeat."""

    gives = "the same columns and those derived"
    derive: dict[Column, Annotated[str, Formula("window")]] = Field(
        min_length=1, description="NAME: FORMULA with functions of several rows, as mean(duration)."
    )
    order: Column = Field(default="ts", description="Column that orders the rows.")
    rows: Annotated[int, Integer(1, 1_000_000_000)] | None = Field(
        default=None, description="The row and those before it, so many in all."
    )
    time: Annotated[int, Quantity(DURATION, "1ns")] | None = Field(
        default=None,
        description="The row and those at most so long before it by `order`, such as 1s. Without "
        "`rows` and `time`: the row and all before it.",
    )
    by: By = Field(default=[], description="Windows see only rows that are alike in these.")

    @classmethod
    def check(cls, at: Place) -> None:
        if at.get("rows") is not None and at.get("time") is not None:
            at.report("a window is of so many rows or of so much time: give one of the two")


class Resample(Options):
    """Makes one row of each stretch of time.

    Stretches count from the table's first row in each repeat; those without rows, between the first
    and the last, have one too.
    """

    gives = "run, point, repeat, `by`, `start` (ns), and the columns derived"
    every: Annotated[int, Quantity(DURATION, "1ns")] = Field(
        description="Length of a stretch, such as 100ms."
    )
    derive: dict[Column, Annotated[str, Formula("aggregate")]] = Field(
        min_length=1, description="NAME: FORMULA of a group, such as rate: count()."
    )
    by: By = Field(default=[], description="A row for each value of these.")
    time: Time


class Group(Options):
    """Makes one row of all rows that are alike in some columns."""

    gives = "`by`, and the columns derived"
    by: By = Field(default=[], description="Which columns. Default: one row of all.")
    derive: dict[Column, Annotated[str, Formula("aggregate")]] = Field(
        min_length=1, description="NAME: FORMULA of a group, such as bytes: sum(size)."
    )


class Top(Options):
    """Keeps the rows with the largest values of a column; equal ones by the other columns."""

    rows: Annotated[int, Integer(1, 1_000_000)] = Field(description="How many.")
    of: Column = Field(description="Of which column. Rows with null there are left out.")
    least: Annotated[bool, values.Boolean()] = Field(
        default=False, description="The smallest values instead."
    )
    by: By = Field(default=[], description="So many for each value of these.")


class Histogram(Options):
    """Counts rows by the value of a column. Empty bins have no row."""

    gives = "`by`, `low` (the bin's first value), `high` (the next bin's first), `count`"
    of: Column = Field(description="Column of whole numbers.")
    bin: Annotated[int | float, Amount()] = Field(
        description="Width of a bin, whole in the base unit, such as 10us."
    )
    by: By = Field(default=[], description="A histogram for each value of these.")


class StatisticsOf(Options):
    """Statistics of a column, each with a confidence interval and what the clock leaves open.

    Percentiles are by nearest rank. Groups of at most `memory` rows are resampled (`bootstrap`:
    percentiles of the statistics of resamples); of larger ones percentiles are those of a t-digest,
    with the interval between the ranks that the binomial distribution gives, and the mean's is the
    normal one (`t-digest`); their deviation has none.
    """

    gives = (
        "`by`, `of`, `statistic`, `value`, `low` and `high` (the confidence interval), `err` (how "
        "far the clock's error may move the value; null where it is not known), `count` (rows that "
        "have a value), `missing` (rows with null), `method` (bootstrap or t-digest)"
    )
    of: Column = Field(description="Column of numbers.")
    width: Column = Field(
        default="none",
        description="Column of its maximum error, such as err_ns; none: it is exact.",
    )
    by: By = Field(default=[], description="Statistics for each value of these.")
    statistics: Annotated[list[str], StatisticList()] = Field(
        default=["mean", "deviation", "min", "p50", "p90", "p99", "p999", "max"],
        description="mean, deviation (standard deviation), min, max, percentiles as p99.",
    )
    confidence: Annotated[float, Quantity(RATIO, "50%", "99.99%")] = Field(
        default="95%", validate_default=True, description="Of the intervals."
    )
    resamples: Annotated[int, Integer(100, 100_000)] = Field(
        default=1000, description="How many resamples."
    )
    seed: Annotated[int, Integer(0, 2**31 - 1)] = Field(default=1, description="Of the resampling.")
    memory: Annotated[int, Integer(1000, 100_000_000)] = Field(
        default=100_000, description="Rows of a group up to which it is resampled."
    )


class Join(Options):
    """Joins the rows of another table to those that are alike in some columns, in each repeat."""

    gives = "the columns of both; the other's with `suffix` where both have the name"
    with_: Name = Field(alias="with", description="The other pipeline or table.")
    on: Annotated[list[str], Columns(1)] = Field(description="Columns that are alike.")
    how: Literal["inner", "left"] = Field(
        default="inner", description="left: rows without a counterpart stay, with nulls."
    )
    suffix: Annotated[str, values.Identifier("a suffix")] = Field(
        default="_right", description="What is added to names that both have."
    )


class AsOf(Options):
    """Joins to each row the last row of another table at or before its time, in each repeat."""

    gives = "the columns of both, as join left does"
    with_: Name = Field(alias="with", description="The other pipeline or table.")
    time: Time
    other: Column | None = Field(
        default=None, description="Column of the time in the other table. Default: as `time`."
    )
    by: By = Field(default=[], description="Only rows that are alike in these.")
    within: Annotated[int, Quantity(DURATION, "0ns")] | None = Field(
        default=None, description="Only rows at most so long before, such as 10ms."
    )
    suffix: Annotated[str, values.Identifier("a suffix")] = Field(
        default="_right", description="What is added to names that both have."
    )


class Merge(Options):
    """Puts the rows of several tables one after the other, as on one time line."""

    short = "with"
    gives = "the columns of all, null where a table has none, and `source`"
    with_: Annotated[list[str], TableNames()] = Field(
        alias="with", description="The other pipelines and tables."
    )
    label: Column = Field(
        default="source", description="Column that says which pipeline or table a row is from."
    )


class Deadline(Options):
    """Counts the rows that met a limit, missed it, and those of which the width leaves it open.

    It counts as `expect` does. A row without a time is a message that was lost, and missed it.
    """

    gives = (
        "`by`, `limit` (ns), `count`, `met`, `missed`, `undecided`, `allowed` (misses), `verdict` "
        "(PASS, FAIL; UNKNOWN where the undecided ones decide, and of no row)"
    )
    of: Column = Field(default="duration", description="Column of the interval, ns.")
    width: Column = Field(
        default="err_ns", description="Column of its maximum error, ns; none: it is exact."
    )
    limit: Annotated[int, Quantity(DURATION, "1ns")] = Field(
        description="Met is what is below this, such as 5ms."
    )
    misses: Annotated[dict[str, int | float], Misses()] = Field(
        default=0,
        validate_default=True,
        description="Misses allowed: a number of rows, or a share of all such as 0.1%.",
    )
    by: By = Field(default=[], description="A verdict for each value of these.")


class Narrate(Options):
    """Writes a readable log: one line for each row in the order of time, with its maximum error."""

    gives = "run, point, repeat, the time, `line`; and a file NAME.txt"
    time: Time
    width: Column = Field(
        default="err_ns", description="Column of the maximum error of the time, ns; none: exact."
    )
    columns: Annotated[list[str], Columns()] | None = Field(
        default=None,
        description="What a line tells besides. Default: every column that is not null, but for "
        "counter, pid, tid and cpu, instants and maximum errors. A duration has that of err_ns.",
    )


class Plot(Options):
    """Draws a figure of the table; the table goes on as it is."""

    gives = "the same columns; figures/NAME.svg, .pdf, .png and .csv"
    kind: Literal["scatter", "histogram", "ccdf", "mean-deviation", "heatmap"] = Field(
        description="Which figure."
    )
    columns: dict[Annotated[str, values.Text()], Annotated[str, values.Text()]] = Field(
        min_length=1,
        description="What the figure's axes show, as {x: start, y: duration}, and its options.",
    )
    title: Annotated[str, values.Text()] | None = Field(default=None, description="Its title.")
    name: Annotated[str, values.Name("a figure", 64)] | None = Field(
        default=None, description="Of its files. Default: PIPELINE-KIND."
    )
    width: Literal["one", "two"] = Field(default="one", description="Columns of a paper's page.")


class Export(Options):
    """Writes the table to a file; the table goes on as it is."""

    short = "format"
    gives = "the same columns; tables/NAME.parquet, .arrow or .csv"
    format: Literal["parquet", "arrow", "csv"] = Field(description="Form of the file.")
    name: Annotated[str, values.Name("a table", 64)] | None = Field(
        default=None, description="Of the file. Default: the pipeline's."
    )


class Python(Options):
    """A step of your own: a function in a .py file in this file's folder.

    It gets the Ibis table and the options and gives an Ibis table; or, with `columns`, an iterator
    of Arrow record batches and the options, and gives batches with these columns.
    """

    short = "call"
    gives = "what the function gives"
    call: Annotated[str, Callable()] = Field(description="MODULE:FUNCTION.")
    columns: dict[Column, ColumnType] | None = Field(
        default=None,
        description="Names and types of the batches' columns: integer, real, text, boolean.",
    )
    by: By = Field(
        default=[],
        description="With `columns`: rows that are alike in these come together, in order, to one "
        "call. Default: all rows to one call, in the order of all columns.",
    )
    options: dict[Column, Annotated[str | int | float | bool, values.Single("an option")]] = Field(
        default={}, description="Handed to the function by name; quantities keep their spelling."
    )

    @classmethod
    def check(cls, at: Place) -> None:
        if at.get("by") is not None and at.get("columns") is None:
            at.report("by is for batches: give columns, or leave it out")


def description_of(step: type[Options]) -> str:
    """Description of a step, in a paragraph."""
    return " ".join((step.__doc__ or "").split())
