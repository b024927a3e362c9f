"""Loading an experiment file for a command: every mistake at once, then exit 2."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from loopscope.cli import exits
from loopscope.experiment import Experiment, ExperimentErrors, Problem, format_problem
from loopscope.strict_json import to_json


def overrides(params: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` options as a mapping; ends with exit 2 where one is not of that form."""
    values = {}
    for param in params:
        name, equals, value = param.partition("=")
        if not equals or not name:
            exits.end(exits.USAGE, f"--param {param}: expected NAME=VALUE, for example period=1ms")
        values[name] = value
    return values


def load_or_end(file: Path, params: list[str], as_json: bool = False) -> Experiment:
    """The experiment, or exit 2 with all that is wrong with its file.

    ``as_json``: on stdout too, as one object.
    """
    from loopscope.api.checking import load

    try:
        experiment = load(file, overrides(params))
    except ExperimentErrors as errors:
        _end(file, errors.problems, as_json)
    for problem in experiment.warnings:
        typer.echo(format_problem(problem), err=True)
    return experiment


def _end(file: Path, problems: Sequence[Problem], as_json: bool) -> NoReturn:
    for problem in problems:
        typer.echo(format_problem(problem), err=True)
    if as_json:
        found = [dataclasses.asdict(problem) for problem in problems]
        errors = sum(problem.severity == "error" for problem in problems)
        why = f"{file}: {errors} problem" + ("s" if errors > 1 else "")
        typer.echo(to_json({"verdict": None, "error": why, "problems": found}))
    raise typer.Exit(exits.USAGE)
