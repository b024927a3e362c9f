"""Reading of an experiment file: from its text to a plan or the list of all its mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from . import checks, companion_files, yaml_tree
from .model import ExperimentFile
from .model_phases import phase_order
from .params import Params
from .plan import Experiment, Graph, Point
from .problem import ExperimentErrors, Problem
from .resolve import resolve
from .sweep_points import Setting, expand


def load(path: str | Path, overrides: Mapping[str, str] | None = None) -> Experiment:
    """The plan of an experiment file; ``overrides`` replace parameters, as text.

    Raises ExperimentErrors with every mistake at once. What is only doubtful is in the plan's
    ``warnings``.
    """
    text, problems = read(path)
    if text is None:
        raise ExperimentErrors(problems)
    return load_text(text, path, overrides)


def load_text(
    text: str, path: str | Path, overrides: Mapping[str, str] | None = None
) -> Experiment:
    """The plan of an experiment file with this text, in the folder of ``path`` with what it names.

    Raises ExperimentErrors.
    """
    experiment, problems = from_text(text, str(path), overrides or {})
    if experiment is None:
        raise ExperimentErrors(problems)
    folder = str(Path(path).absolute().parent)
    points = (
        replace(point, experiment=replace(point.experiment, folder=folder))
        for point in experiment.points
    )
    return replace(experiment, folder=folder, points=tuple(points))


def check(path: str | Path, overrides: Mapping[str, str] | None = None) -> list[Problem]:
    """Every mistake in an experiment file, in its order, warnings among them."""
    text, problems = read(path)
    return problems if text is None else from_text(text, str(path), overrides or {})[1]


def from_text(
    text: str, file: str, overrides: Mapping[str, str]
) -> tuple[Experiment | None, list[Problem]]:
    """The plan, None where it holds an error, and its problems in the text's order.

    Every point of a sweep is resolved, and so is the file with its parameters as they stand.
    """
    root, problems = yaml_tree.read(text, file, may_be_null=_is_configuration)
    if root is None:
        return None, problems
    sweep = expand(root, overrides, file)
    problems += sweep.problems
    experiment, found = _resolved(root, file, sweep.others, {})
    problems += found
    points: list[Point] = []
    of_points: dict[Problem, list[str]] = {}
    for setting in sweep.settings:
        of_point, here = _resolved(root, file, sweep.others, setting.values)
        for problem in here:
            if problem not in found:
                of_points.setdefault(problem, []).append(setting.name)
        if of_point is not None:
            points.append(_point(setting, of_point))
    problems += [_at_points(problem, names) for problem, names in of_points.items()]
    problems = _in_order(problems, file)
    if experiment is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return replace(experiment, points=tuple(points), warnings=tuple(problems)), problems


def _resolved(
    root: yaml_tree.Tree,
    file: str,
    overrides: Mapping[str, str],
    point: Mapping[str, yaml_tree.Scalar],
) -> tuple[Experiment | None, list[Problem]]:
    """The plan with a point's parameters, None where it holds an error, and what is wrong."""
    params = Params(root, overrides, file, point)
    tree = params.substitute(root)
    problems = list(params.problems)
    tree, unreadable = companion_files.put_in(tree, file)
    problems += unreadable
    model, wrong = checks.validated(ExperimentFile, tree, file)
    problems += wrong
    problems += companion_files.bare_names(tree, file)
    tables, wrong = companion_files.message_tables(tree, file)
    problems += wrong
    modules, wrong = companion_files.modules(tree, file)
    problems += wrong
    problems += params.unused(root)
    if model is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    order = phase_order(tree)
    return resolve(model, order, params.values(), tables, modules, ()), problems


def _point(setting: Setting, experiment: Experiment) -> Point:
    params = {name: experiment.params[name] for name in setting.values}
    return Point(setting.name, params, replace(experiment, table=(), figures=(), analyse=Graph()))


def _at_points(problem: Problem, names: Sequence[str]) -> Problem:
    """A problem that the file has at some points only."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return replace(problem, message=f"at the point {names[0]}{more}: {problem.message}")


def _in_order(problems: list[Problem], file: str) -> list[Problem]:
    """The problems in the order of their places, each once: an alias repeats none.

    Other files' come last.
    """
    files = list(dict.fromkeys([file, *(problem.file for problem in problems)]))
    once: dict[tuple[int, int, int, str], Problem] = {}
    for problem in problems:
        place = (files.index(problem.file), problem.line, problem.column, problem.message)
        once.setdefault(place, problem)
    return [once[place] for place in sorted(once, key=lambda place: place[:3])]


def place_in(path: str | Path, keys: Sequence[str | int]) -> tuple[int, int]:
    """Line and column of what keys lead to in a file, as far as they do.

    The file's beginning where it cannot be read.
    """
    text, _ = read(path)
    tree = None
    if text is not None:
        tree, _ = yaml_tree.read(text, str(path), may_be_null=lambda path: True)
    if tree is None:
        return 1, 1
    mark = tree.mark
    for key in keys:
        found = yaml_tree.child(tree, key)
        if found is None:
            break
        tree, mark = found, found.mark
    return mark.line, mark.column


def _is_configuration(path: yaml_tree.Location) -> bool:
    return len(path) > 3 and path[0] == "components" and path[2] == "with"


def read(path: str | Path) -> tuple[str | None, list[Problem]]:
    """A file's text, None where it cannot be read."""
    file = str(path)
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return None, [Problem(file, 1, 1, "", f"cannot read the file: {reason}")]
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        return None, [Problem(file, line, column, "", "the file is not UTF-8 text")]
