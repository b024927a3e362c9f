"""A run as figures ask for it: its samples by what a person calls them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.datagrams import between_hosts, has_packets
from loopscope.analysis.recorded_kernels import NothingRecordedError
from loopscope.experiment.grammar import ExpressionError
from loopscope.experiment.statistic_names import Subject, parse_subject
from loopscope.report.path_samples import (
    AGE,
    PACKETS,
    Part,
    Sampled,
    ages_of,
    joins,
    list_of,
    packets_of,
    part_of,
    sample_table,
    sampled_of,
    several_ways,
    text_of,
)
from loopscope.report.samples import FigureError, missing
from loopscope.timeline.relation import NUMBERS, column_types, identifier, literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from loopscope.analysis import Results
    from loopscope.analysis.findings.result import PathFindings
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.messages import Messages
    from loopscope.experiment import Experiment, MessagePath
    from loopscope.report.clock_series import ClockDrawing
    from loopscope.report.marks import Mark
    from loopscope.report.plots import Drawn
    from loopscope.timeline import Run

_FIELD = re.compile(
    r"(?:(?P<component>[^/\s]+)/)?(?P<group>[^:/\s]+):(?P<event>[^.\s]+)\.(?P<field>\w+)"
)
_OF_EVERY_EVENT = frozenset(
    ("repeat", "ts", "err_ns", "counter", "host", "process", "pid", "tid", "cpu", "id", "seq")
)


class FigureSource:
    """A run or a point of it, opened and measured when a figure first needs that."""

    def __init__(self, path: Path, point: str | None = None) -> None:
        self.path = path
        self.point = point
        self._findings: dict[str, PathFindings] = {}

    @cached_property
    def run(self) -> Run:
        """Raises `RunError` for a sweep of which no point is chosen."""
        from loopscope.timeline import is_recorded, open_run, open_tables

        return open_tables(self.path) if is_recorded(self.path) else open_run(self.path, self.point)

    @cached_property
    def whole(self) -> Experiment | None:
        """The experiment, with all its points; None of a run that does not say what it is of."""
        from loopscope.timeline import read_manifest, read_specification

        return read_specification(self.path, read_manifest(self.path))

    @property
    def experiment(self) -> Experiment | None:
        """The experiment, at the chosen point if there is one."""
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
        """Raises `FigureError` of what is no run."""
        from loopscope.analysis import analyse
        from loopscope.timeline import is_recorded

        if is_recorded(self.path):
            raise FigureError(
                f"{self.path} is a recording or an import: draw samples of its fields, such as "
                f"`figure {self.path} scatter GROUP:NAME.FIELD`; --list shows them"
            )
        return analyse(self.run)

    @cached_property
    def clocks(self) -> tuple[ClockDrawing, ...]:
        from loopscope.report.clock_series import read_clock_drawings

        return read_clock_drawings(self.run, self.results)

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """Events during the run."""
        from loopscope.report.marks import read_marks

        return read_marks(self.run)

    @property
    def paths(self) -> dict[str, MessagePath]:
        """Message paths by name."""
        return {path.name: path for path in self.experiment.paths} if self.experiment else {}

    @property
    def wholes(self) -> list[str]:
        """Every path from end to end, and the age of data there.

        Of a branching one from each beginning to each end.
        """
        every = [(path, ends) for path in self.paths.values() for ends in path.ends]
        ages = [text_of(*each) + AGE for each in every if joins(*each)]
        return [*(text_of(*each) for each in every), *ages]

    @property
    def subjects(self) -> dict[str, str]:
        """Possible subjects of figures of samples, and a description of each."""
        found: dict[str, str] = {}
        run = self.points[0].run if self.swept else self.run
        for path in self.paths.values():
            for what, parts in (("path", path.ends), ("hop", path.hops)):
                for ends in parts:
                    found.setdefault(text_of(path, ends), f"time of a {what}")
            for ends in (*path.ends, *path.hops):
                if joins(path, ends):
                    found[text_of(path, ends) + AGE] = "age of the data at each use"
            for ends in between_hosts(path) if has_packets(run) else ():
                found[text_of(path, ends) + PACKETS] = "time of single packets"
        for value in self.experiment.values if self.experiment else ():
            if value.field is not None:
                found[value.name] = f"{value.field} of {value.entity}"
        for name in run.tables:
            for column, kind in column_types(run.relation(name)).items():
                if column not in _OF_EVERY_EVENT and kind in NUMBERS:
                    found[f"{name.replace('.', ':', 1)}.{column}"] = "a field of events"
        return found

    @cached_property
    def points(self) -> list[FigureSource]:
        """The points of a sweep that were run to their end. Raises `FigureError` where none was."""
        from loopscope.timeline import points_of

        found = [FigureSource(self.path, name) for name in points_of(self.path)]
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

    def messages(self, path: str) -> Messages | MeasuredDag:
        """Raises `FigureError` where the run has no such path."""
        if path not in self.paths:
            raise FigureError(missing("path", path, self.paths))
        graphs = self.results.graph_messages
        return graphs[path] if path in graphs else self.results.messages[path]

    def listed(self, path: str) -> Messages:
        """The messages of a path as those of a list of events, which causes are told of.

        Raises `FigureError` where several ways lead through it, and where the run has no such path.
        """
        self.messages(path)
        found = list_of(self.results, path)
        if found is None:
            raise FigureError(f"path {path}: {several_ways(path)}")
        return found

    def findings(self, path: str) -> PathFindings:
        """The patterns in a path's times. Raises `FigureError` where the run has no such path."""
        from loopscope.analysis.findings.read import branches, findings

        if path not in self._findings:
            messages = self.messages(path)
            listed = path in self.results.messages
            self._findings[path] = (
                findings(self.run, messages)  # type: ignore[arg-type]  # of lists
                if listed
                else branches(path)
            )
        return self._findings[path]

    def samples(self, text: str) -> Sampled:
        """The samples that `text` names.

        It is a path, `PATH[EVENT -> EVENT]`, with `.age` the age of the data there, with `.packets`
        the packets of a hop, a value, or a field of events as `group:name.field` or
        `component/group:name.field`.

        Raises `FigureError` where the run has no such thing, or nothing was seen of it.
        """
        values = {each.name: each for each in self.experiment.values} if self.experiment else {}
        part = _part_of(text)
        if part is not None and (part.part or part.name in self.paths):
            found = sampled_of(self._of_part(text, part))
        elif text in values:
            found = self._of_value(text)
        elif (of_events := _FIELD.fullmatch(text)) is not None:
            found = self._of_field(text, of_events)
        else:
            raise FigureError(missing("path, value or field of events", text, self.subjects))
        if not len(found.table):
            raise FigureError(f"{text}: the run has none of it")
        return found

    def part(self, text: str) -> tuple[MessagePath, tuple[int, int]]:
        """The path and the two of its events that `PATH` or `PATH[EVENT -> EVENT]` names.

        Raises `FigureError`.
        """
        part = _part_of(text)
        if part is None or part.stat:
            raise FigureError(missing("path", text, self.wholes))
        return self._ends(part)

    def _of_part(self, text: str, part: Subject) -> Part:
        path, ends = self._ends(part)
        try:
            if part.stat == PACKETS[1:]:
                return packets_of(self.run, self.results, path, ends)
            return (ages_of if part.stat else part_of)(self.results, path.name, ends)
        except NothingRecordedError as error:
            raise FigureError(str(error)) from error
        except ValueError as error:
            alike = [each for each in self.subjects if each.endswith(f".{part.stat}")]
            known = f"; there is: {', '.join(alike) or 'none'}" if part.stat else ""
            raise FigureError(f"{text}: {error}{known}") from error

    def _ends(self, part: Subject) -> tuple[MessagePath, tuple[int, int]]:
        name = part.name
        if name not in self.paths:
            raise FigureError(missing("path", name, self.paths))
        path = self.paths[name]
        if part.part is None:
            if len(path.ends) > 1:
                of = f".{part.stat}" if part.stat else ""
                parts = [ends for ends in path.ends if of != AGE or joins(path, ends)]
                parts = between_hosts(path) if of == PACKETS else parts
                known = ", ".join(f"'{text_of(path, ends)}{of}'" for ends in parts)
                raise FigureError(f"path {name} has several ends: name one of {known or 'none'}")
            return path, path.ends[0]
        events = [str(each) for each in path.events]
        start, end = part.part
        for event in part.part:
            if event not in events:
                raise FigureError(f"path {name}: {missing('event', event, events)}")
        return path, (events.index(start), events.index(end))

    def _of_value(self, name: str) -> Sampled:
        from loopscope.analysis.value import read_samples
        from loopscope.timeline import UnknownTableError

        assert self.experiment is not None
        value = next(each for each in self.experiment.values if each.name == name)
        if value.field is None:
            raise FigureError(f"{name} counts events: it has no samples that could be drawn")
        try:
            samples = read_samples(self.run, value)
        except UnknownTableError as error:
            raise FigureError(f"{name}: no {value.entity} was recorded") from error
        title = f"{name}: {value.field} of {value.entity}"
        table, origin = _from_first(samples.repeat, samples.ts, samples.x)
        return Sampled(name, name.replace("_", " "), title, "events", value.unit, table, origin)

    def _of_field(self, text: str, field: re.Match[str]) -> Sampled:
        table, name = f"{field['group']}.{field['event']}", field["field"]
        if table not in self.run.tables:
            known = [each.replace(".", ":", 1) for each in self.run.tables]
            raise FigureError(missing("events", table.replace(".", ":", 1), known))
        events = self.run.relation(table)
        known = [each for each, kind in column_types(events).items() if kind in NUMBERS]
        if name not in known:
            raise FigureError(f"{table}: {missing('number', name, known)}")
        if field["component"] is not None:
            events = events.filter(f"process = {literal(field['component'])}")
        values = events.project(f"repeat, ts, {identifier(name)} AS value")
        rows = values.filter("value IS NOT NULL").order("repeat, ts, value")
        found = rows.to_arrow_table()
        columns = (found[column].to_numpy() for column in ("repeat", "ts", "value"))
        unit = self._unit(table.replace(".", ":", 1), name)
        label = name.replace("_", " ").removesuffix(" ns")
        return Sampled(text, label, text, "events", unit, *_from_first(*columns))

    def _unit(self, entity: str, field: str) -> str:
        """Unit that the program gives of its values, else the one in the field's name."""
        from loopscope.report.samples import unit_of_name

        if field == "value":
            entities = self.run.relation("entities")
            described = entities.filter(f"entity = {literal(entity)} AND unit IS NOT NULL")
            if (first := described.project("unit").fetchone()) is not None:
                return str(first[0])
        return unit_of_name(field)


def _part_of(text: str) -> Subject | None:
    """A path or a part of it, the age of the data there or its packets; None of another text."""
    try:
        found = parse_subject(text)
    except ExpressionError:
        return None
    return found if found.stat in (None, AGE[1:], PACKETS[1:]) else None


def chosen(
    sampled: Sampled, repeat: int | None, from_ns: int | None, until_ns: int | None
) -> Sampled:
    """The samples of one repeat in a stretch of time. Raises `FigureError` if there are none."""
    table = sampled.table
    repeats, since = (table[name].to_numpy() for name in ("repeat", "since"))
    keep = _within(repeats, since, repeat, from_ns, until_ns)
    if not keep.any():
        raise FigureError(f"{sampled.text}: nothing is left of it, in this time and repeat")
    without = {
        what: each.chosen(_within(each.repeat, each.since, repeat, from_ns, until_ns))
        for what, each in sampled.without.items()
    }
    return replace(sampled, table=table.filter(keep), without=without)


def _within(
    repeats: npt.NDArray[np.int32],
    since: npt.NDArray[np.int64],
    repeat: int | None,
    from_ns: int | None,
    until_ns: int | None,
) -> npt.NDArray[np.bool_]:
    keep = np.ones(len(since), dtype=np.bool_)
    if repeat is not None:
        keep &= repeats == repeat
    if from_ns is not None:
        keep &= since >= from_ns
    if until_ns is not None:
        keep &= since < until_ns
    return keep


def _from_first(
    repeat: npt.NDArray[np.int32], ts: npt.NDArray[np.int64], value: npt.NDArray[np.generic]
) -> tuple[pa.Table, dict[int, int]]:
    """The samples since the first of each repeat, and when these were."""
    origin = {each: int(ts[repeat == each].min()) for each in np.unique(repeat).tolist()}
    since = ts.copy()
    for each, first in origin.items():
        since[repeat == each] -= first
    return sample_table(repeat, since, value), origin
