"""A run as figures ask for it: its samples by what a person calls them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from loopscope.report.samples import FigureError, missing
from loopscope.report.series import origins

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from loopscope.analysis import Results
    from loopscope.analysis.messages import Intervals, Messages
    from loopscope.experiment import Experiment
    from loopscope.report.plots import Drawn
    from loopscope.report.series import Drawings
    from loopscope.timeline import Run

_SUBJECT = re.compile(
    r"\s*(?P<path>[^\s.\[\]]+)\s*\[\s*(?P<start>\S+?)\s*->\s*(?P<end>\S+?)\s*\]\s*"
)
_FIELD = re.compile(
    r"(?:(?P<component>[^/\s]+)/)?(?P<group>[^:/\s]+):(?P<event>[^.\s]+)\.(?P<field>\w+)"
)
_OF_EVERY_EVENT = frozenset(
    ("repeat", "ts", "err_ns", "counter", "host", "process", "pid", "tid", "cpu", "id", "seq")
)


@dataclass(frozen=True)
class Sampled:
    """Numbers of a run over its time, a row for each."""

    text: str
    """What a person calls it."""
    name: str
    """What an axis shows."""
    title: str
    what: str
    """What they are many of."""
    unit: str
    table: pa.Table
    """`since` (ns, the first of its repeat), `value`, `repeat`, and of times between instants
    `clock_error`, their half-width. In order of repeat and time."""

    @property
    def bounded(self) -> bool:
        return "clock_error" in self.table.column_names


class Source:
    """A run or a point of it, opened and measured when a figure first needs that."""

    def __init__(self, path: Path, point: str | None = None) -> None:
        self.path = path
        self.point = point

    @cached_property
    def run(self) -> Run:
        """Raises `RunError` for a sweep of which no point is chosen."""
        from loopscope.timeline import open_run

        return open_run(self.path, self.point)

    @cached_property
    def whole(self) -> Experiment | None:
        """The experiment, with all its points; None of a run that does not say what it is of."""
        from loopscope.experiment import from_manifest
        from loopscope.timeline import read_manifest

        given = read_manifest(self.path).get("experiment")
        try:
            return None if given is None else from_manifest(given)
        except ValueError as error:
            raise FigureError(f"{self.path}/manifest.json: experiment: {error}") from error

    @property
    def experiment(self) -> Experiment | None:
        """As it is at the point, should one be chosen."""
        if self.whole is None or self.point is None:
            return self.whole
        at = {point.name: point.experiment for point in self.whole.points}
        return at.get(self.point, self.whole)

    @property
    def swept(self) -> list[str]:
        """The parameters that a sweep varies; none where one point is chosen."""
        points = self.whole.points if self.whole and self.point is None else ()
        return list(dict.fromkeys(name for point in points for name in point.params))

    @cached_property
    def results(self) -> Results:
        from loopscope.analysis import analyse

        return analyse(self.run)

    @cached_property
    def drawings(self) -> Drawings:
        from loopscope.report.series import read_drawings

        return read_drawings(self.run, self.results)

    @property
    def paths(self) -> list[str]:
        return [path.name for path in self.experiment.paths] if self.experiment else []

    @property
    def subjects(self) -> dict[str, str]:
        """What figures of samples can be of, and what each is."""
        found = {}
        for path in self.experiment.paths if self.experiment else ():
            if path.edges:
                continue
            found[path.name] = "time of a path"
            for start, end in path.hops:
                hop = f"{path.name}[{path.events[start]} -> {path.events[end]}]"
                found[hop] = "time of a hop"
        for value in self.experiment.values if self.experiment else ():
            if value.field is not None:
                found[value.name] = f"{value.field} of {value.entity}"
        run = self.points[0].run if self.swept else self.run
        for name in run.tables:
            for field, kind in run.table(name).schema().items():
                if field not in _OF_EVERY_EVENT and kind.is_numeric():
                    found[f"{name.replace('.', ':', 1)}.{field}"] = "a field of events"
        return found

    @cached_property
    def points(self) -> list[Source]:
        """Of a sweep, those that were run to their end. Raises `FigureError` where none was."""
        from loopscope.timeline import points_of

        found = [Source(self.path, name) for name in points_of(self.path)]
        complete = [each for each in found if not each.run.incomplete]
        if not complete:
            raise FigureError(f"{self.path}: no point of the sweep was run to its end")
        return complete

    @cached_property
    def own(self) -> Mapping[str, Drawn]:
        """The experiment's own figures that have something to show."""
        from loopscope.analysis import analyse_sweep
        from loopscope.report.plots import Recorder

        if self.whole is None:
            return {}
        recorder = Recorder(self.whole)
        sweep = None
        if self.swept:
            sweep = analyse_sweep(self.path, recorder.see)
        else:
            recorder.see(self.run, self.results)
        return {each.figure.name: each for each in recorder.drawn(sweep)}

    def messages(self, path: str) -> Messages:
        """Raises `FigureError` where the run has no such path."""
        if path not in self.paths:
            raise FigureError(missing("path", path, self.paths))
        if path not in self.results.messages:
            raise FigureError(
                f"path {path} is a graph, which no figure shows: its table is paths.{path}"
            )
        return self.results.messages[path]

    def samples(self, text: str) -> Sampled:
        """What `text` names: a path, `PATH[EVENT -> EVENT]`, a value, or a field of events as
        `group:name.field` or `component/group:name.field`.

        Raises `FigureError` where the run has no such thing, or nothing was seen of it.
        """
        values = {each.name: each for each in self.experiment.values} if self.experiment else {}
        part = _SUBJECT.fullmatch(text)
        if part is not None:
            found = self._of_part(part["path"], part["start"], part["end"])
        elif text in self.paths:
            messages = self.messages(text)
            found = _of_intervals(text, text, messages.intervals(*messages.path.loop), messages)
        elif text in values:
            found = self._of_value(text)
        elif (field := _FIELD.fullmatch(text)) is not None:
            found = self._of_field(text, field)
        else:
            raise FigureError(missing("path, value or field of events", text, self.subjects))
        if not len(found.table):
            raise FigureError(f"{text}: the run has none of it")
        return found

    def _of_part(self, path: str, start: str, end: str) -> Sampled:
        messages = self.messages(path)
        events = [str(each) for each in messages.path.events]
        for event in (start, end):
            if event not in events:
                raise FigureError(f"path {path}: {missing('event', event, events)}")
        first, last = events.index(start), events.index(end)
        if first >= last:
            raise FigureError(f"path {path}: {start} does not come before {end}")
        intervals = messages.intervals(first, last)
        return _of_intervals(f"{path}[{start} -> {end}]", path, intervals, messages)

    def _of_value(self, name: str) -> Sampled:
        from loopscope.analysis.value import read_samples
        from loopscope.timeline import UnknownTableError

        assert self.experiment is not None
        value = next(each for each in self.experiment.values if each.name == name)
        if value.field is None:
            raise FigureError(f"{name} counts events: it has no samples that could be drawn")
        try:
            repeat, ts, samples = read_samples(self.run, value)
        except UnknownTableError as error:
            raise FigureError(f"{name}: no {value.entity} was recorded") from error
        title = f"{name}: {value.field} of {value.entity}"
        table = _table(repeat, ts, samples)
        return Sampled(name, name.replace("_", " "), title, "events", value.unit, table)

    def _of_field(self, text: str, field: re.Match[str]) -> Sampled:
        table, name = f"{field['group']}.{field['event']}", field["field"]
        if table not in self.run.tables:
            known = [each.replace(".", ":", 1) for each in self.run.tables]
            raise FigureError(missing("events", table.replace(".", ":", 1), known))
        events = self.run.table(table)
        known = [each for each, kind in events.schema().items() if kind.is_numeric()]
        if name not in known:
            raise FigureError(f"{table}: {missing('number', name, known)}")
        if field["component"] is not None:
            events = events.filter(events.process == field["component"])
        chosen = events.filter(events[name].notnull())
        rows = chosen.select("repeat", "ts", value=chosen[name]).order_by("repeat", "ts", "value")
        found = rows.to_pyarrow()
        columns = (found[column].to_numpy() for column in ("repeat", "ts", "value"))
        unit = self._unit(table.replace(".", ":", 1), name)
        label = name.replace("_", " ").removesuffix(" ns")
        return Sampled(text, label, text, "events", unit, _table(*columns))

    def _unit(self, entity: str, field: str) -> str:
        """As the program says of its values, else as the field's name does."""
        from loopscope.report.samples import unit_of_name

        if field == "value":
            entities = self.run.entities
            told = entities.filter(entities.entity == entity, entities.unit.notnull())
            units = told.select("unit").limit(1).to_pyarrow()["unit"].to_pylist()
            if units:
                return str(units[0])
        return unit_of_name(field)


def chosen(
    sampled: Sampled, repeat: int | None, from_ns: int | None, until_ns: int | None
) -> Sampled:
    """Of one repeat, of a stretch of time. Raises `FigureError` where nothing is left."""
    table = sampled.table
    keep = np.ones(len(table), dtype=np.bool_)
    since = table["since"].to_numpy()
    if repeat is not None:
        keep &= table["repeat"].to_numpy() == repeat
    if from_ns is not None:
        keep &= since >= from_ns
    if until_ns is not None:
        keep &= since < until_ns
    if not keep.any():
        raise FigureError(f"{sampled.text}: nothing is left of it, in this time and repeat")
    return sampled if keep.all() else replace(sampled, table=table.filter(keep))


def _of_intervals(text: str, path: str, intervals: Intervals, messages: Messages) -> Sampled:
    """Every part of a path counts from the path's first message, so that figures stand together."""
    title = f"{path}: {intervals.first} → {intervals.last}"
    table = _table(
        intervals.repeat, intervals.start, intervals.length, intervals.err, origins(messages)
    )
    name = "response time" if text == path else "time of the hop"
    return Sampled(text, name, title, "messages", "ns", table)


def _table(
    repeat: npt.NDArray[np.int32],
    ts: npt.NDArray[np.int64],
    value: npt.NDArray[np.generic],
    err: npt.NDArray[np.int64] | None = None,
    origin: dict[int, int] | None = None,
) -> pa.Table:
    import pyarrow as pa

    if origin is None:
        origin = {int(each): int(ts[repeat == each].min()) for each in np.unique(repeat)}
    since = ts.copy()
    for each, start in origin.items():
        since[repeat == each] -= start
    columns = {"repeat": repeat, "since": since, "value": value}
    if err is not None:
        columns["clock_error"] = err
    return pa.table(columns)
