"""Everything that can be found wrong with an experiment before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from loopscope.api.programs import problems_of_programs
from loopscope.experiment import (
    Experiment,
    ExperimentErrors,
    Problem,
    from_text,
    is_graph,
    load_text,
    read_graph,
)
from loopscope.experiment.document import read


def load(file: Path, overrides: Mapping[str, str], text: str | None = None) -> Experiment:
    """The plan of an experiment file, whose analyses are checked too.

    ``text`` is the file's where there is no file.

    Raises ExperimentErrors.
    """
    if text is None:
        text, problems = read(file)
        if text is None:
            raise ExperimentErrors(problems)
    experiment = load_text(text, file, overrides)
    if mistakes := problems_of_analyses(file, experiment):
        raise ExperimentErrors([*experiment.warnings, *mistakes])
    return experiment


def check(
    file: Path, overrides: Mapping[str, str], text: str | None = None
) -> tuple[list[Problem], Experiment | None]:
    """The problems of an experiment or analysis file, warnings among them, and the plan.

    The plan is None where a problem is an error or the file is an analysis file. ``text`` is the
    file's where there is no file.
    """
    if text is None:
        if is_graph(file):
            return _problems_of_graph_file(file), None
        text, problems = read(file)
        if text is None:
            return problems, None
    experiment, problems = from_text(text, str(file), overrides)
    if experiment is not None:
        problems += problems_of_analyses(file, experiment)
        problems += problems_of_programs(file, experiment)
    return problems, experiment


def problems_of_analyses(file: Path, experiment: Experiment) -> list[Problem]:
    """Problems of an experiment's analyses that show before there is a run."""
    if not experiment.analyse.pipelines:
        return []
    from loopscope.graph.execution import check_before
    from loopscope.graph.stored_analyses import placed

    return placed(file, check_before(experiment.analyse, experiment))


def _problems_of_graph_file(file: Path) -> list[Problem]:
    from loopscope.graph.execution import check_before
    from loopscope.graph.stored_analyses import placed

    graph, found = read_graph(file)
    return found if graph is None else placed(file, check_before(graph, None))
