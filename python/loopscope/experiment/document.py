"""From a file's text to a plan or the list of all its mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from . import explain, rules, source
from .model import ExperimentFile
from .params import Params
from .plan import Experiment
from .problem import ExperimentErrors, Problem
from .resolve import resolve


def load(path: str | Path, overrides: Mapping[str, str]) -> Experiment:
    """Reads a file. Raises ExperimentErrors with everything that is wrong in it."""
    text, problems = _read(path)
    experiment = None
    if text is not None:
        experiment, problems = from_text(text, str(path), overrides)
    if experiment is None:
        raise ExperimentErrors(problems)
    return experiment


def check(path: str | Path, overrides: Mapping[str, str]) -> list[Problem]:
    """Every mistake in a file, warnings among them."""
    text, problems = _read(path)
    return problems if text is None else from_text(text, str(path), overrides)[1]


def from_text(
    text: str, file: str, overrides: Mapping[str, str]
) -> tuple[Experiment | None, list[Problem]]:
    """The plan of a text, None where it holds an error, and its problems in the text's order."""
    root, problems = source.read(text, file, may_be_null=_is_configuration)
    if root is None:
        return None, problems
    params = Params(root, overrides, file)
    tree = params.substitute(root)
    problems += params.problems
    model = None
    try:
        model = ExperimentFile.model_validate(source.plain_value(tree), context=rules.names(tree))
    except ValidationError as error:
        problems += explain.problems(error, tree, file)
    problems += rules.problems(tree, file)
    problems += params.unused(root)
    problems = _in_order(problems)
    if model is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return resolve(model, rules.phase_order(tree), params.values(), problems), problems


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By place, each once: what an alias repeats is one mistake."""
    once: dict[tuple[int, int, str], Problem] = {}
    for problem in problems:
        once.setdefault((problem.line, problem.column, problem.message), problem)
    return [once[place] for place in sorted(once, key=lambda place: place[:2])]


def _is_configuration(path: source.Location) -> bool:
    return len(path) > 3 and path[0] == "components" and path[2] == "with"


def _read(path: str | Path) -> tuple[str | None, list[Problem]]:
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
