"""A finished run and a finished sweep, as notebooks and tests use them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from loopscope import timeline
from loopscope.timeline import RunError

if TYPE_CHECKING:
    import ibis

    from loopscope.analysis import Results, SweepResults, Verdict
    from loopscope.api.figure import Figure, Width
    from loopscope.report.figure_source import FigureSource
    from loopscope.report.verdict_rows import VerdictRow

Message = int | str | tuple[int | str, ...]
"""The key of a message; a tuple where it has several fields."""


@dataclass(frozen=True)
class RunPath:
    """A path of a run.

    Examples:
        >>> loop = ls.open_run("runs/pipeline/latest").paths["loop"]
        >>> loop.messages.count().to_pandas()
        200
        >>> slow = loop.messages.order_by(loop.messages.latency.desc()).limit(3)
        >>> slow.select("id", "latency", "latency_err").to_polars().columns
        ['id', 'latency', 'latency_err']
        >>> loop.hops.columns
        ('repeat', 'id', 'path', 'hop', 'start', 'duration', 'err_ns')
    """

    name: str
    messages: ibis.Table
    """One row per message: `id`, `ts_0`, `ts_1`, … at each event, and `latency` (ns).

    Each has its maximum error; null where the message was not seen.
    """
    hops: ibis.Table
    """One row per message and hop that it has made, as `Run.hops` has them."""


class Run(timeline.Run):
    """A finished run, or one point of a sweep. A notebook shows its verdicts, losses and clocks.

    `loopscope.open_run` and `loopscope.run` return it.

    Examples:
        >>> run = ls.open_run("runs/pipeline/latest")
        >>> run.experiment, str(run.verdict)
        ('synthetic', 'PASS')
        >>> for row in run.verdicts:
        ...     print(row.verdict, row.expectation)
        PASS loop.lost == 0
        PASS loop.p99 < 5ms
        >>> run.table("pipe.received").count().to_pandas()
        600
    """

    @property
    def directory(self) -> Path:
        """The run's directory."""
        return self.path

    @property
    def report(self) -> Path:
        """The page of the run; it is not there if nobody has made it."""
        return self.output / "report.html"

    @cached_property
    def paths(self) -> Mapping[str, RunPath]:
        """The paths of the experiment by name."""
        return {
            name: RunPath(name, table, timeline.hops_of({name: table}, self._scope))
            for name, table in self.path_tables.items()
        }

    @cached_property
    def results(self) -> Results:
        """Everything that the report says in numbers, computed from the tables at first use.

        Raises RunError where the run cannot be judged.
        """
        from loopscope.analysis import analyse

        return analyse(self)

    @property
    def verdict(self) -> Verdict | None:
        """PASS, FAIL or UNKNOWN: the worst of all; None where nothing was expected."""
        return self.results.verdict

    @property
    def verdicts(self) -> list[VerdictRow]:
        """The verdict of each expectation, with what was measured and the reason."""
        from loopscope.report.verdict_rows import verdict_rows

        return verdict_rows(self.results)

    def assert_passed(self) -> None:
        """Raises ExpectationsFailed or ExpectationsUnknown unless every verdict is PASS.

        The error names the expectations, their causes and the report. A run that states no
        expectation is UNKNOWN.

        Examples:
            >>> ls.open_run("runs/pipeline/latest").assert_passed()
        """
        from loopscope.api.judgement import assert_passed

        __tracebackhide__ = True
        assert_passed(str(self.output), [("", self.results)], self.report)

    def figure(
        self,
        kind: str,
        of: str | None = None,
        *,
        message: Message | None = None,
        repeat: int | None = None,
        begin: str | None = None,
        end: str | None = None,
        log: str | None = None,
        width: Width = "two",
    ) -> Figure:
        """A figure as `loopscope figure` draws it. `loopscope figure RUN --list` lists the kinds.

        Args:
            kind: Such as `waterfall` or `ccdf`, or the name of a figure of the experiment.
            of: A path, `PATH[EVENT -> EVENT]`, a value or `group:name.field`. It may be left out
                if only one suits the kind.
            message: The key of the message to draw, for `waterfall` and `timeline`.
            repeat: Only this repeat.
            begin: Leaves out what came before, such as `30s`.
            end: Leaves out what came after.
            log: Logarithmic axes: `x`, `y`, `x,y` or `none`.
            width: Columns of a page: `one` (3.5 in) or `two` (7.16 in).

        Raises FigureError where there is no such figure, MissingExtraError where Matplotlib is not
        installed.

        Examples:
            >>> ls.open_run("runs/pipeline/latest").figure("ccdf", "loop").name
            'ccdf-loop'
        """
        from loopscope.api.figure import figure_of

        choice = {"message": message, "repeat": repeat, "log": log, "width": width}
        return figure_of(self._source, kind, of, choice, begin, end)

    @cached_property
    def _source(self) -> FigureSource:
        from loopscope.report.figure_source import FigureSource

        source = FigureSource(self.path, None if self.output == self.path else self.point)
        source.run, source.results = self, self.results
        return source

    def _repr_html_(self) -> str:
        from loopscope.api.judgement import expectation_html, html_lines
        from loopscope.report.rows import clock_texts, loops_line, loss_line

        where = "" if self.output == self.path else f", {self.point}"
        try:
            results = self.results
        except RunError as error:
            return html_lines(f"{self.experiment} {self.id}{where}", str(error))
        lines = [
            f"events: {loss_line(results.loss)}",
            f"clock: {', '.join(clock_texts(results.clock.hosts))}",
            loops_line(results),
            *(f"problem: {problem}" for problem in results.problems),
            f"directory: {self.directory}",
        ]
        title = html_lines(f"{self.experiment} {self.id}{where}: {results.verdict or 'no verdict'}")
        return f"<b>{title}</b>{expectation_html(results)}{html_lines(*lines)}"

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.experiment}, {self.output}>"


class Sweep(Mapping[str, Run]):
    """A finished sweep: its points by name, each a `Run`. A notebook shows a table of them.

    `loopscope.open_sweep` and `loopscope.run` return it. Points that failed are in
    ``results`` and not here.

    Examples:
        >>> sweep = ls.open_sweep("runs/sweep/latest")
        >>> list(sweep)
        ['delay=0ms', 'delay=10ms']
        >>> str(sweep.verdict), str(sweep["delay=10ms"].verdict)
        ('PASS', 'PASS')
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """The sweep's directory."""
        names = timeline.points_of(directory)
        opened = {name: open_point(directory, name) for name in names}
        self._runs = {name: run for name, run in opened.items() if not run.incomplete}

    def __getitem__(self, point: str) -> Run:
        return self._runs[point]

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def report(self) -> Path:
        """The page of the sweep; it is not there if nobody has made it."""
        return self.directory / "report.html"

    @cached_property
    def results(self) -> SweepResults:
        """The results of every point, computed from the tables at first use."""
        from loopscope.analysis import analyse_sweep

        return analyse_sweep(self.directory)

    @property
    def verdict(self) -> Verdict | None:
        """The worst verdict of all points; None where nothing was expected."""
        return self.results.verdict

    def assert_passed(self) -> None:
        """Raises ExpectationsFailed or ExpectationsUnknown unless every point is PASS."""
        from loopscope.api.judgement import ExpectationsFailed, assert_passed

        __tracebackhide__ = True
        judged = [(each.name, each.results) for each in self.results.points if each.results]
        if left := self.results.without:
            lines = [f"  FAIL     {each.name}: {each.error}" for each in left]
            raise ExpectationsFailed("\n".join([f"{self.directory}: points failed", *lines]))
        assert_passed(str(self.directory), judged, self.report)

    def figure(
        self,
        kind: str,
        of: str | None = None,
        *,
        against: str | None = None,
        begin: str | None = None,
        end: str | None = None,
        log: str | None = None,
        width: Width = "two",
    ) -> Figure:
        """A figure that compares the points: `mean-deviation`, or one of the experiment's own.

        ``against`` is the swept parameter on the horizontal axis; see `Run.figure` for the
        others.

        Raises FigureError and MissingExtraError.
        """
        from loopscope.api.figure import figure_of
        from loopscope.report.figure_source import FigureSource

        choice = {"message": None, "against": against, "log": log, "width": width}
        return figure_of(FigureSource(self.directory), kind, of, choice, begin, end)

    def _repr_html_(self) -> str:
        from loopscope.api.judgement import html_lines, html_table
        from loopscope.report.sweep_rows import columns, parameters, point_rows

        results = self.results
        rows = [
            (row.point.verdict or row.ending, *row.params, *(cell.text for cell in row.cells))
            for row in point_rows(results)
        ]
        headings = ("verdict", *parameters(results), *columns(results))
        title = html_lines(f"{results.experiment.name} {results.run}: {self.verdict}")
        return f"<b>{title}</b>{html_table(headings, rows)}{html_lines(str(self.directory))}"

    def __repr__(self) -> str:
        return f"<Sweep {self.directory}, {len(self)} points>"


def open_point(path: str | Path, point: str | None) -> Run:
    """A run or a point of a sweep. Raises RunError."""
    found = timeline.open_run(path, point)
    return Run(found.path, found.point, found.repeats, found.manifest, found.output)
