"""The way from an experiment to its report: measure, time line, judge, analyses, page.

The command line calls it, and so can a notebook. Measuring is `loopscope.control`'s, judging
`loopscope.analysis`'s, which writes nothing; analyses are the experiment's graphs
(`loopscope.graph`), the page is `loopscope.report`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from loopscope import __version__, preparation
from loopscope.control import (
    BASE,
    Interruption,
    Progress,
    RunDirectory,
    RunFailed,
    RunInterrupted,
    SpareTime,
    mark_killed,
    settle,
)
from loopscope.control.collection import Collection, collected_later
from loopscope.extras import MissingExtraError, readable_import_errors
from loopscope.files import write_whole
from loopscope.timeline import (
    KILLED,
    Run,
    RunError,
    described,
    is_interrupt,
    open_run,
    points_of,
    read_manifest,
)

if TYPE_CHECKING:
    from loopscope.analysis import Results, SweepResults
    from loopscope.experiment import Experiment
    from loopscope.graph.stored_analyses import Made


Unwritten = list[str]
"""Files that could not be written, and why not."""


@dataclass
class Judged:
    """The outcome of a run. What of it could not be written is no reason not to say it."""

    results: Results | SweepResults
    folder: Path
    """Where the report and the results go."""
    analyses: Made | None = None
    """None: those of the whole run are not made for one of its points."""
    unwritten: Unwritten = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Parts that were left out because an optional package is not installed."""

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / "report.html"

    @property
    def problems(self) -> list[str]:
        """Outputs that could not be made or written, and why."""
        made = self.analyses
        of_analyses = [] if made is None else [*made.notes, *made.mistakes]
        return [*self.unwritten, *self.notes, *of_analyses]

    @property
    def whole(self) -> bool:
        """Whether everything was made and written."""
        return not self.unwritten and (self.analyses is None or self.analyses.whole)


def run(
    experiment: Experiment,
    source: bytes,
    runs: Path,
    progress: Progress,
    stop: bool = False,
    before_tables: Callable[[], None] = lambda: None,
) -> Judged:
    """Measures an experiment, or each point of its sweep, and judges it.

    The run goes into a new directory below ``runs``. ``source`` is the experiment file; ``stop``
    ends a sweep at the first point that fails. ``before_tables`` is called before the first table
    is made, maybe several times and in another thread.

    What judging needs is imported while hosts are made and while they are collected from.

    Raises RunFailed and RunInterrupted, which say where what was measured is; OSError where the
    run's directory cannot be made.
    """
    from loopscope.control import measure
    from loopscope.testbed import provider

    hosts = provider(experiment)
    directory = RunDirectory(runs, experiment, source, __version__)
    interruption = Interruption(progress)
    spare = SpareTime(preparation.steps(before_tables))
    try:
        with directory.being_made(progress):
            if not experiment.points:
                measure(experiment, hosts, directory, BASE, 0, progress, interruption, spare)
                before_tables()
                make_timelines(directory.path, BASE, progress)
            for number, point in enumerate(experiment.points, start=1):
                progress.point(f"point {number} of {len(experiment.points)}: {point.name}")
                with directory.point_being_made(point, progress, interruption):
                    measure(
                        point.experiment,
                        hosts,
                        directory,
                        point.name,
                        number,
                        progress,
                        interruption,
                        spare,
                    )
                    before_tables()
                    make_timelines(directory.path, point.name, progress)
                if stop and directory.failed_points:
                    break
            progress.point("")
    finally:
        spare.end()
    where = f"is in {directory.path}; to judge it: loopscope report {directory.path}"
    try:
        judged = judge(directory.path, None, progress)
        with _noted(judged.unwritten, directory.path):
            verdict = judged.results.verdict
            directory.describe(verdict=None if verdict is None else str(verdict))
        return judged
    except RunError as error:
        raise RunFailed(f"{error}\nwhat was measured {where}") from None
    except (KeyboardInterrupt, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_interrupt(error):
            raise
        raise RunInterrupted(f"all that was to be measured {where}") from None


def report(path: Path, point: str | None, progress: Progress) -> Judged:
    """Judges a run, or one point of it, from its streams.

    Raises RunError, RunFailed where its streams cannot be read, and OSError.
    """
    # Slow imports come before there is anything to interrupt: Ctrl-C that comes in the middle of
    # one may be lost in a library.
    import loopscope.report.page
    import loopscope.report.sweep_page  # noqa: F401
    from loopscope.graph.mistake import GraphError
    from loopscope.graph.stored_analyses import graphs_of

    with suppress(GraphError, OSError):
        if graphs_of(path):
            import loopscope.graph.execution  # noqa: F401

    if read_manifest(path).get("status") == KILLED:
        progress.note(f"{path}: its controller was killed; what was recorded until then is judged")
        for repeat in path.glob("*/[0-9]*"):
            collection = Collection()
            collection.leave_out(settle(repeat))
            collection.note_left_out(progress)
            collected_later(path, repeat, collection, [])
        mark_killed(path)
    points = points_of(path) if point is None else [point]
    for name in points:
        if point is None and name != BASE and open_run(path, name).incomplete:
            continue  # a point that failed is judged by nothing
        progress.point(name if len(points) > 1 else "")
        make_timelines(path, name, progress)
    progress.point("")
    return judge(path, point, progress)


def make_timelines(path: Path, point: str, progress: Progress) -> None:
    """Makes the time line of each repeat of a point. Raises RunFailed and RunError."""
    # It makes tables with Arrow.
    from loopscope.control import make_timeline

    opened = open_run(path, point)
    experiment = described(path, opened.manifest)
    for directory in opened.repeats.values():
        progress.stage("making the time line")
        make_timeline(experiment, directory, progress)


def judge(path: Path, point: str | None, progress: Progress) -> Judged:
    """Judges a run whose time line exists, or one point of it.

    Writes its path tables, results, analyses, page and figures.

    Raises RunError.
    """
    # Slow imports, which a run that fails before does without.
    from loopscope.analysis import Results, analyse, analyse_sweep, write_path_tables
    from loopscope.graph.stored_analyses import make_kept
    from loopscope.report import write_report, write_sweep
    from loopscope.report.plots import Recorder

    progress.stage("analysing")
    experiment = described(path, read_manifest(path))
    figures = Recorder(experiment)

    unwritten: Unwritten = []

    def see(of_point: Run, results: Results) -> None:
        with _noted(unwritten, of_point.path):
            write_path_tables(of_point, results)
        figures.see(of_point, results)

    if experiment.points and point is None:
        sweep = analyse_sweep(path, see)
        judged = Judged(sweep, path, unwritten=unwritten)
    else:
        opened = open_run(path, point)
        results = analyse(opened)
        see(opened, results)
        judged = Judged(results, opened.output, unwritten=unwritten)
    with _noted(unwritten, path):
        write_whole(judged.folder / "results.json", judged.results.to_json())
    if point is None:
        judged.analyses = make_kept(path, progress.stage)
    try:
        with _noted(unwritten, path), readable_import_errors():
            if isinstance(judged.results, Results):
                write_report(opened, judged.results, own=figures.drawn(None))
            else:
                write_sweep(path, judged.results, figures.drawn(judged.results))
    except MissingExtraError as error:
        # The page is written first.
        judged.notes.append(str(error))
    return judged


@contextmanager
def _noted(unwritten: Unwritten, folder: Path) -> Iterator[None]:
    """Takes down what cannot be written into a folder."""
    try:
        yield
    except OSError as error:
        place = error.filename or folder
        unwritten.append(f"cannot write {place}: {error.strerror or error}")
