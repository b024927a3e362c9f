"""An edited experiment file by which a run is judged that was measured with an earlier one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from loopscope import layout
from loopscope.cli import exits
from loopscope.cli.experiment_file import load_or_end
from loopscope.experiment import Experiment
from loopscope.experiment.measures import Scalar
from loopscope.timeline import JUDGED_BY, read_manifest, read_specification, write_judged_by


def judge_by(run: Path, file: Path | None) -> None:
    """Has the run judged from now on by what a file measures, expects, draws and analyses.

    None: by the experiment that was run.

    Ends with exit 2 where the file is wrong or of another sweep.
    """
    if file is None and not (run / JUDGED_BY).exists():
        return
    (run / JUDGED_BY).unlink(missing_ok=True)
    # Those of paths that are no more would stay; the others are written again.
    for repeat in run.glob("*/*"):
        for table in layout.path_tables(repeat).values():
            table.unlink()
    if file is None:
        return
    measured = read_specification(run, read_manifest(run))
    if measured is None:
        exits.end(exits.USAGE, f"{run} has no manifest.json that describes its experiment")
    edited = load_or_end(file, [])
    if params := _params(measured, edited):
        edited = load_or_end(file, params)
    write_judged_by(run, file, _judged(measured, edited, file).to_manifest())


def _params(measured: Experiment, edited: Experiment) -> list[str]:
    """The run's parameters, all values of those that it swept, where the file has others."""
    values = {name: {_text(value): None} for name, value in measured.params.items()}
    values |= {name: {} for point in measured.points for name in point.params}
    for point in measured.points:
        for name, value in point.params.items():
            values[name][_text(value)] = None
    own = {name: _text(value) for name, value in edited.params.items()}
    found = {name: ",".join(each) for name, each in values.items()}
    return [f"{name}={text}" for name, text in found.items() if own.get(name, text) != text]


def _text(value: Scalar) -> str:
    """The value as it would be written with ``--param``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _judged(measured: Experiment, edited: Experiment, file: Path) -> Experiment:
    """The experiment that was run, judged by the edited file."""
    points = {point.name: point.experiment for point in edited.points}
    lacking = [point.name for point in measured.points if point.name not in points]
    if lacking:
        exits.end(exits.USAGE, f"{file} has no point {lacking[0]}, which the run has")
    if edited.points and not measured.points:
        exits.end(exits.USAGE, f"{file} is of a sweep and the run is not")
    known = {each.name for each in measured.components}
    for path in edited.paths:
        for event in path.events:
            if event.component not in known:
                exits.end(
                    exits.USAGE,
                    f"{file}: the path {path.name} is of {event.component}, which is no component "
                    "of the run",
                )
    return replace(
        measured,
        paths=edited.paths,
        expectations=edited.expectations,
        subtract_cost=edited.subtract_cost,
        patterns=edited.patterns,
        values=edited.values,
        table=edited.table,
        figures=edited.figures,
        analyse=edited.analyse,
        points=tuple(
            replace(point, experiment=_judged(point.experiment, points[point.name], file))
            for point in measured.points
        ),
    )
