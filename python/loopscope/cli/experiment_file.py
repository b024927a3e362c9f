"""Loading an experiment file for a command: every mistake at once, then exit 2."""

from __future__ import annotations

from pathlib import Path

import typer

from loopscope.cli import exits
from loopscope.experiment import Experiment, ExperimentErrors, Problem, format_problem, load


def overrides(params: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` options as a mapping; ends with exit 2 where one is not of that form."""
    values = {}
    for param in params:
        name, equals, value = param.partition("=")
        if not equals or not name:
            exits.end(exits.USAGE, f"--param {param}: expected NAME=VALUE, for example period=1ms")
        values[name] = value
    return values


def load_or_end(file: Path, params: list[str]) -> Experiment:
    """The experiment, or exit 2 with all that is wrong with its file."""
    try:
        experiment = load(file, overrides(params))
    except ExperimentErrors as errors:
        for problem in errors.problems:
            typer.echo(format_problem(problem), err=True)
        raise typer.Exit(exits.USAGE) from None
    for problem in experiment.warnings:
        typer.echo(format_problem(problem), err=True)
    if mistakes := problems_of_graph(file, experiment):
        for problem in mistakes:
            typer.echo(format_problem(problem), err=True)
        raise typer.Exit(exits.USAGE)
    return experiment


def problems_of_graph(file: Path, experiment: Experiment) -> list[Problem]:
    """What is wrong with an experiment's analyses, as far as it shows before there is a run."""
    if not experiment.analyse.pipelines:
        return []
    from loopscope.cli.analyse import problems
    from loopscope.graph.make import check_before

    return problems(file, check_before(experiment.analyse, experiment))
