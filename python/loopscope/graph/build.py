"""A graph over an engine: pipelines in order, each step made of the table before it.

Over ``Types`` nothing runs, and every column that is missing or of a wrong type is found; over
another engine the same walk makes the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loopscope.experiment import AnalysisStep, Graph, MessagePath, Pipeline
from loopscope.experiment.problem import nearest
from loopscope.graph.mistake import SCOPE, Key, Mistake, scope
from loopscope.graph.units import Units, after, by_name
from loopscope.timeline import TABLES

if TYPE_CHECKING:
    import ibis

    from loopscope.graph.engine import Engine
    from loopscope.graph.tables import Stored

    Options = Mapping[str, Any]


@dataclass(frozen=True)
class Product:
    """Output of a step for a file.

    ``kind`` is `table`, `figure` or `log`; ``options`` are the step's.
    """

    kind: str
    name: str
    pipeline: str
    table: ibis.Table
    order: tuple[str, ...]
    options: Options
    units: Mapping[str, str]
    """Units of those columns that have one."""


@dataclass(frozen=True)
class Found:
    """A mistake with its place: keys from the top of the file."""

    place: tuple[Key, ...]
    message: str
    hint: str | None


@dataclass
class Context:
    """Further inputs of a step, besides its table and options."""

    engine: Engine
    stored: Mapping[str, Stored]
    paths: Mapping[str, MessagePath] | None
    """None: not known."""
    modules: Mapping[str, str]
    closed: bool
    """Whether ``stored`` are all the tables that there are."""
    made: dict[str, ibis.Table | None] = field(default_factory=dict)
    """Pipelines so far; None for one whose columns are not known."""
    opened: dict[str, ibis.Table] = field(default_factory=dict)
    units: dict[str, Units] = field(default_factory=dict)
    """Units of the columns of each table of ``made``."""
    products: list[Product] = field(default_factory=list)
    pipeline: str = ""
    given: Units = field(default_factory=dict)
    """Units of the columns of the pipeline's table so far."""
    label: str = ""
    """Label of the pipeline's rows where they are merged with others': their origin."""

    def table(self, name: str, keys: tuple[Key, ...]) -> ibis.Table:
        """A pipeline or table by name. Raises Mistake where there is none, and Unknown."""
        if name in self.made:
            found = self.made[name]
            if found is None:
                raise Unknown
            return found
        if name == "hops":
            return self._hops(keys)
        if name in self.stored:
            return self._opened(name)
        later = "." in name and (self.paths is None or not name.startswith("paths."))
        if not self.closed and (later or name in TABLES):
            raise Unknown
        known = [*self.made, *self.stored]
        what = "table" if self.closed else "pipeline and no such table of a run"
        close = nearest(name, known)
        listed = "" if close else f" (there is: {', '.join(known)})"
        raise Mistake(f"there is no {what} {name!r}{listed}", keys, close)

    def units_of(self, name: str) -> Units:
        """The units of the columns of a pipeline or table that exists."""
        if name in self.units:
            return self.units[name]
        known = self.stored[name].units if name in self.stored else {}
        if name == "hops":
            known = next(each.units for of, each in self.stored.items() if of.startswith("paths."))
        return by_name(self.table(name, ()).columns, known)

    def path(self, name: str, keys: tuple[Key, ...]) -> tuple[MessagePath, ibis.Table]:
        """A path and the table of its messages."""
        if self.paths is None:
            raise Unknown
        if name not in self.paths:
            known = ", ".join(self.paths) or "none"
            raise Mistake(
                f"the run has no path {name!r}; it has: {known}", keys, nearest(name, self.paths)
            )
        return self.paths[name], self.table(f"paths.{name}", keys)

    def produce(self, kind: str, name: str, table: ibis.Table, options: Options) -> None:
        """Leaves a table to be written. Raises Mistake where another has the name."""
        form = options.get("format")
        same = (p for p in self.products if (p.kind, p.name) == (kind, name))
        taken = next((p for p in same if p.options.get("format") == form), None)
        if taken is not None:
            raise Mistake(
                f"{taken.pipeline} writes a {kind} {name!r} already: give this one a name",
                ("name",),
            )
        order = natural_order(table)
        known = by_name(table.columns, self.given)
        told = {name: unit for name, unit in known.items() if unit}
        self.products.append(Product(kind, name, self.pipeline, table, order, options, told))

    def _opened(self, name: str) -> ibis.Table:
        if name not in self.opened:
            self.opened[name] = self.engine.stored(name, self.stored[name])
        return self.opened[name]

    def _hops(self, keys: tuple[Key, ...]) -> ibis.Table:
        from loopscope.timeline import hops_of

        names = [name for name in self.stored if name.startswith("paths.")]
        if not names and self.paths is None:
            raise Unknown
        if not names:
            raise Mistake("no path was measured, so there are no hops", keys)
        tables = {name.removeprefix("paths."): self._opened(name) for name in names}
        first = self.stored[names[0]].types
        shared = [name for name in first if name in SCOPE or name.startswith("point_")]
        return hops_of(tables, shared)


class Unknown(Exception):
    """The columns of a table are not known before a run has it."""


Step = Callable[[Context, Any, Mapping[str, Any]], Any]


def walk(graph: Graph, context: Context) -> Iterator[Found]:
    """Makes every pipeline, gives the mistakes; ``context.products`` is what is to be written."""
    used = [name for pipeline in graph.pipelines for name in pipeline.inputs]
    for pipeline in graph.pipelines:
        context.pipeline = pipeline.name
        context.label = pipeline.source or pipeline.name
        try:
            table = _pipeline(pipeline, context)
            times = used.count(pipeline.name)
            if times == 0 and not any(
                p.table is table and p.kind in _TOLD for p in context.products
            ):
                context.produce("table", pipeline.name, table, {"format": "parquet"})
            context.made[pipeline.name] = context.engine.kept(table) if times > 1 else table
            context.units[pipeline.name] = context.given
        except (Unknown, _At, Mistake) as error:
            context.made[pipeline.name] = None
            if isinstance(error, Mistake):
                error = _At(("analyse", pipeline.name), error)
            if isinstance(error, _At):
                yield Found(error.place, error.mistake.message, error.mistake.hint)


_TOLD = ("table", "log")
"""Kinds of products that have all of a table."""


class _At(Exception):
    def __init__(self, place: tuple[Key, ...], mistake: Mistake) -> None:
        self.place = place
        self.mistake = mistake


def _pipeline(pipeline: Pipeline, context: Context) -> ibis.Table:
    place: tuple[Key, ...] = ("analyse", pipeline.name)
    if pipeline.name in (*context.stored, *TABLES, "hops"):
        raise Mistake(f"{pipeline.name!r} is a table of runs: call the pipeline something else")
    taken: list[tuple[str, tuple[Key, ...]]] = []
    if pipeline.source is not None:
        taken.append((pipeline.source, (*place, "from")))
    for i, step in enumerate(pipeline.steps):
        taken += [(name, (*place, "steps", i, step.kind, "with")) for name in step.inputs]
    # All of them, also where the columns of the first are not known.
    for name, where in taken:
        try:
            context.table(name, ())
        except Mistake as mistake:
            raise _At(where, mistake) from None
        except Unknown:
            pass
    table, context.given = None, {}
    if pipeline.source is not None:
        table, context.given = context.table(pipeline.source, ()), context.units_of(pipeline.source)
    for i, step in enumerate(pipeline.steps):
        try:
            table = _step(step, table, context)
        except Mistake as mistake:
            raise _At((*place, "steps", i, step.kind, *mistake.keys), mistake) from None
    assert table is not None  # the rules: from, or path as the first step
    return table


def _step(step: AnalysisStep, table: ibis.Table | None, context: Context) -> ibis.Table:
    from loopscope.graph.steps import STEPS

    made: ibis.Table = STEPS[step.kind](context, table, step.options)
    before = context.units_of(f"paths.{step.options['name']}") if table is None else context.given
    context.given = after(step, made.columns, before, context.units_of)
    lower: dict[str, str] = {}
    for name in made.columns:
        other = lower.setdefault(name.lower(), name)
        if other != name:
            raise Mistake(f"there would be {other!r} and {name!r}, which engines take for one")
    return made


def natural_order(table: ibis.Table) -> tuple[str, ...]:
    """The columns by which rows are put in order: run, point, repeat, time, then every other one.

    No two orders of the rows are possible then, but where rows are the same.
    """
    first = [*scope(table), *(name for name in ("ts", "start") if name in table.columns)]
    return (*first, *(name for name in table.columns if name not in first))
