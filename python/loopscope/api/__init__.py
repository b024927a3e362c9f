"""loopscope in Python: check and run experiments, open runs, list them.

The package `loopscope` has these names too and imports them at first use.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopscope.api.experiment import Experiment
from loopscope.api.finished import Run, RunPath, Sweep, open_point
from loopscope.experiment import ExperimentErrors, Problem, format_problem
from loopscope.extras import MissingExtraError, readable_import_errors

if TYPE_CHECKING:
    import pandas as pd

    from loopscope.control import Progress

__all__ = [
    "Experiment",
    "ExperimentErrors",
    "MissingExtraError",
    "Problem",
    "Run",
    "RunPath",
    "Sweep",
    "check",
    "open_run",
    "open_sweep",
    "run",
    "runs",
]


def run(
    experiment: str | Path | Experiment,
    params: Mapping[str, Any] | None = None,
    *,
    folder: str | Path = "runs",
    stop: bool = False,
    progress: Progress | None = None,
) -> Run | Sweep:
    """Runs an experiment, judges it, and returns the run; of a sweep all its points.

    It does what `loopscope run` does: it needs the extra `testbed`, makes a directory
    below ``folder``, and writes the report there. A FAIL is no error here:
    `Run.assert_passed` makes it one. A doubtful key of the experiment, and a file that could not be
    made or written, is a Python warning.

    Args:
        experiment: An experiment file, or an `Experiment` built in Python.
        params: Values of the experiment's parameters. A parameter that is swept in a grid takes a
            list.
        folder: Where run directories are made.
        stop: Ends a sweep at the first point that fails.
        progress: Receives what happens; nobody by default.

    Raises:
        ExperimentErrors: The experiment has mistakes.
        RunFailed: The run itself failed; the text says where what was measured is.
        RunInterrupted: The run was interrupted.
        MissingExtraError: The extra `testbed` is not installed.

    Examples:
        >>> run = ls.run("experiments/pipeline.yaml", params={"count": 100})  # doctest: +SKIP
        >>> run.assert_passed()  # doctest: +SKIP
    """
    from loopscope import pipeline
    from loopscope.analysis import Results
    from loopscope.control import Silent

    if isinstance(experiment, Experiment):
        plan, source = experiment.plan(_texts(params)), experiment.to_yaml().encode()
    else:
        from loopscope.api.checking import load

        plan, source = load(Path(experiment), _texts(params)), Path(experiment).read_bytes()
    with readable_import_errors():
        judged = pipeline.run(plan, source, Path(folder), progress or Silent(), stop)
    for problem in (*map(format_problem, plan.warnings), *judged.problems):
        warnings.warn(problem, stacklevel=2)
    if not isinstance(judged.results, Results):
        sweep = open_sweep(judged.folder)
        sweep.results = judged.results
        return sweep
    opened = open_run(judged.folder)
    opened.results = judged.results
    return opened


def check(
    experiment: str | Path | Experiment, params: Mapping[str, Any] | None = None
) -> list[Problem]:
    """The mistakes and warnings of an experiment, as `loopscope check` finds them.

    Empty for a good one. It runs nothing.

    Args:
        experiment: An experiment or analysis file, or an `Experiment` built in Python.
        params: Values of the experiment's parameters.

    Examples:
        >>> ls.check("experiments/pipeline.yaml")
        []
        >>> [problem] = ls.check("experiments/pipeline.yaml", params={"count": "many"})
        >>> problem.path, problem.severity, problem.message
        ('params.count', 'error', '-p count=many: should be a number (the file has 10000)')
    """
    if isinstance(experiment, Experiment):
        return experiment.problems(_texts(params))
    from loopscope.api import checking

    return checking.check(Path(experiment), _texts(params))[0]


def open_run(path: str | Path, point: str | None = None) -> Run:
    """Opens a run directory; `runs/<experiment>/latest` will do.

    Args:
        path: The run directory.
        point: The point of a sweep, such as `delay=10ms`. It may be left out if there is only one.

    Raises RunError where ``path`` is not a run directory or the point is not in it.

    Examples:
        >>> ls.open_run("runs/pipeline/latest").hosts.count().to_pandas()
        3
    """
    return open_point(path, point)


def open_sweep(path: str | Path) -> Sweep:
    """Opens the run directory of a sweep. Raises RunError where ``path`` is not a run directory.

    Examples:
        >>> len(ls.open_sweep("runs/sweep/latest"))
        2
    """
    return Sweep(Path(path).resolve())


def runs(folder: str | Path = "runs") -> pd.DataFrame:
    """A table of the runs below a folder, the oldest first.

    Columns: `experiment`, `id`, `start` (UTC), `state` (complete, failed, interrupted, killed,
    running or unreadable), `verdict` (None where there is none), `points` (1 without a sweep) and
    `directory`.

    Raises RunError where there is no such folder.

    Examples:
        >>> table = ls.runs()
        >>> list(table.columns)
        ['experiment', 'id', 'start', 'state', 'verdict', 'points', 'directory']
        >>> table[table.experiment == "synthetic"].points.tolist()
        [1, 2]
    """
    from dataclasses import asdict, fields

    import pandas as pd

    from loopscope.timeline import ListedRun, list_runs

    rows = [asdict(each) for each in list_runs(Path(folder))]
    table = pd.DataFrame(rows, columns=[each.name for each in fields(ListedRun)])
    table["start"] = pd.to_datetime(table["start"], utc=True)
    return table


def _texts(params: Mapping[str, Any] | None) -> dict[str, str]:
    """The parameters as `-p` takes them."""
    return {name: _text(value) for name, value in (params or {}).items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value)
