"""``loopscope check``: everything that is wrong with an experiment file; touches nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from loopscope.cli import exits
from loopscope.cli.experiment_file import overrides
from loopscope.strict_json import to_json

HELP = "Check an experiment or analysis file; touches nothing, exits 2 where something is wrong."


def check(
    file: Annotated[
        Path | None, typer.Argument(help="The experiment file.", show_default=False)
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="Set a parameter of the file."),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of experiment files.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the problems as JSON.")] = False,
) -> None:
    from loopscope.api.checking import check as find_problems
    from loopscope.api.programs import looked_up_on_hosts
    from loopscope.experiment import described, format_problem, json_schema

    if schema:
        typer.echo(to_json(json_schema(), indent=2))
        return
    if file is None:
        exits.end(exits.USAGE, "check: name the experiment file, or ask for --schema")
    problems, experiment = find_problems(file, overrides(param or []))
    paths = experiment.paths if experiment is not None else ()
    graphs = {path.name: lines for path in paths if (lines := described(path))}
    unchecked = looked_up_on_hosts(file, experiment) if experiment is not None else []
    errors = [problem for problem in problems if problem.severity == "error"]
    if as_json:
        found = [dataclasses.asdict(problem) for problem in problems]
        told = {"file": str(file), "ok": not errors, "problems": found, "graphs": graphs}
        typer.echo(to_json({**told, "unchecked": unchecked}))
    else:
        for problem in problems:
            typer.echo(format_problem(problem), err=True)
        if not errors:
            typer.echo(f"{file}: good")
            if unchecked:
                typer.echo(f"not checked, because only the hosts have them: {', '.join(unchecked)}")
            for name, lines in graphs.items():
                typer.echo("\n  ".join([f"path {name}:", *lines]))
        else:
            count = f"{len(errors)} problem" + ("s" if len(errors) > 1 else "")
            typer.echo(f"{file}: {count}", err=True)
    if errors:
        raise typer.Exit(exits.USAGE)
