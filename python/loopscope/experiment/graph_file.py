"""A file of pipelines for ``loopscope analyse``: as under ``analyse`` of an experiment file.

Mistakes are reported as those of an experiment file are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from . import checks, companion_files, document, plan, values, yaml_tree
from .file_section import Section
from .pipelines import Pipeline, check_pipelines
from .place import Place
from .problem import ExperimentErrors, Problem
from .resolve import graph


class GraphFile(Section):
    """Pipelines of steps that make tables and figures of runs."""

    description: Annotated[str, values.Text()] = Field(
        default="", description="What it is for, in a sentence."
    )
    analyse: dict[Annotated[str, values.Name("a pipeline", 64)], Pipeline] = Field(
        min_length=1, description="Pipelines by name."
    )

    @classmethod
    def check(cls, at: Place) -> None:
        check_pipelines(at)


def load_graph(path: str | Path) -> plan.Graph:
    """Reads a file of pipelines. Raises ExperimentErrors with everything that is wrong in it."""
    made, problems = read_graph(path)
    if made is None:
        raise ExperimentErrors(problems)
    return made


def is_graph(path: str | Path) -> bool:
    """Whether a file is of pipelines, not an experiment."""
    text, _ = document.read(path)
    root = None
    if text is not None:
        root, _ = yaml_tree.read(text, str(path), may_be_null=lambda path: True)
    return (
        isinstance(root, yaml_tree.Mapping) and root.items.keys() <= GraphFile.model_fields.keys()
    )


def read_graph(path: str | Path) -> tuple[plan.Graph | None, list[Problem]]:
    """A file of pipelines, None where it holds a mistake, and its mistakes in order."""
    file = str(path)
    text, problems = document.read(path)
    root = None
    if text is not None:
        root, problems = yaml_tree.read(text, file, may_be_null=lambda path: False)
    if root is None:
        return None, problems
    if isinstance(root, yaml_tree.Mapping) and {"hosts", "components"} <= root.items.keys():
        message = (
            "this is an experiment, whose analyse: goes with its runs: leave --graph out, or give "
            "a file of pipelines"
        )
        return None, [Problem(file, 1, 1, "", message)]
    read, wrong = checks.validated(GraphFile, root, file, values.Names())
    problems += wrong
    modules, wrong = companion_files.modules(root, file)
    problems += wrong
    if problems or read is None:
        return None, sorted(problems, key=lambda found: (found.line, found.column))
    return graph(read.analyse, modules), []
