"""Pipelines of steps: the keys of ``analyse``, and the documentation of every step."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import get_args

from pydantic import Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from . import formula, order
from .file_section import Section
from .place import Place
from .steps import (
    AsOf,
    Deadline,
    Derive,
    Export,
    Group,
    Histogram,
    Join,
    Merge,
    Name,
    Narrate,
    Options,
    Pair,
    PathOf,
    Plot,
    Python,
    Rename,
    Resample,
    Select,
    StatisticsOf,
    Top,
    Trim,
    Where,
    Window,
    description_of,
)
from .sweep_points import swept
from .values import JsonSchema
from .yaml_tree import Mapping, Scalar


class Step(Section):
    """One step: its name and its options."""

    select: Select | None = None
    where: Where | None = None
    trim: Trim | None = None
    rename: Rename | None = None
    derive: Derive | None = None
    pair: Pair | None = None
    path: PathOf | None = None
    window: Window | None = None
    resample: Resample | None = None
    group: Group | None = None
    top: Top | None = None
    histogram: Histogram | None = None
    statistics: StatisticsOf | None = None
    join: Join | None = None
    as_of: AsOf | None = Field(default=None, alias="as-of")
    merge: Merge | None = None
    deadline: Deadline | None = None
    narrate: Narrate | None = None
    plot: Plot | None = None
    export: Export | None = None
    python: Python | None = None

    @classmethod
    def check(cls, at: Place) -> None:
        if len(at.keys) != 1:
            at.report(f"this has {len(at.keys)} keys: write each step as an item of its own")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        made = handler.resolve_ref_schema(handler(schema))
        for name, options in steps().items():
            either = whole = {"$ref": made["properties"][name]["$ref"]}
            if options.short is not None:
                alone = dict(handler.resolve_ref_schema(whole)["properties"][options.short])
                alone.pop("description")
                either = alone if options.only else {"anyOf": [whole, alone]}
            made["properties"][name] = {**either, "description": description_of(options)}
        return {**made, "minProperties": 1, "maxProperties": 1}


class Pipeline(Section):
    """Steps one after the other, each on the table that the one before gives."""

    from_: Name | None = Field(
        default=None,
        alias="from",
        description="Pipeline or table of the run: GROUP.NAME of an event, paths.NAME, hops, hosts "
        "and others that `loopscope query RUN` lists. Left out where the first step is path.",
    )
    steps: list[Step] = Field(default=[], description="Each has one key: the step's name.")

    @classmethod
    def check(cls, at: Place) -> None:
        name = at.location[-1]
        given, steps = at.get("from"), at.elements("steps")
        begins = [i for i, step in enumerate(steps) if step.get("path") is not None]
        if given is None and begins[:1] != [0]:
            message = f"{name!r} has no table to begin with: give it from, such as hops"
            at.report(message, at_key=True)
        for i in begins:
            where = steps[i].get("path")
            if where is not None and (i > 0 or given is not None):
                where.report("path begins a pipeline: put it first and leave from out")


def check_pipelines(at: Place) -> None:
    """No pipelines take each other, and none uses what differs between the points of a sweep."""
    places: dict[str, Place] = {}
    after: dict[str, list[str]] = {}
    for name, pipeline in at.entries("analyse"):
        places[name] = pipeline
        given = [pipeline.get("from")]
        for step in pipeline.elements("steps"):
            for kind, options in step.entries():
                alone = kind == "merge" and not isinstance(options.tree, Mapping)
                named = options if alone else options.get("with")
                given += (named.elements() or [named]) if named is not None else []
        after[name] = [each.text for each in given if each is not None and each.text is not None]
    within = {name: [each for each in taken if each in after] for name, taken in after.items()}
    circle = order.cycle(within)
    if circle is not None:
        message = f"the pipelines take each other: {' from '.join([*circle, circle[0]])}"
        if len(circle) == 1:
            message = f"{circle[0]!r} takes itself: where a table of the run is meant, rename it"
        places[circle[0]].report(message, at_key=True)
    parameters = swept(at.root)
    given_pipelines = at.get("analyse")
    if given_pipelines is not None and parameters:
        _check_no_swept_parameter(given_pipelines, parameters)


def _check_no_swept_parameter(at: Place, parameters: Container[str | None]) -> None:
    if isinstance(at.tree, Scalar) and at.tree.parameter in parameters:
        at.report(
            f"${at.tree.parameter} is swept, and analyse is made of all points together: use the "
            f"column point_{at.tree.parameter}"
        )
    for inner in (*at.elements(), *(place for _, place in at.entries())):
        _check_no_swept_parameter(inner, parameters)


@dataclass(frozen=True)
class Option:
    """An option of a step, for people."""

    name: str
    what: str
    default: str | None
    """None: it must be given."""


def steps() -> dict[str, type[Options]]:
    """The options of every step by its name, in the order of the documentation."""
    found = {}
    for name, field in Step.model_fields.items():
        options = next(each for each in get_args(field.annotation) if each is not type(None))
        found[field.alias or name] = options
    return found


def options_of(step: type[Options]) -> Iterator[Option]:
    """The options of a step, in order."""
    for name, field in step.model_fields.items():
        default: str | None = None
        if not field.is_required():
            value = field.default
            none = value is None or value == [] or value == {}
            default = "" if none else ", ".join(map(str, value)) if isinstance(value, list) else ""
            default = default or ("" if none else str(value))
        yield Option(field.alias or name, field.description or "", default)


def documentation() -> str:
    """Every step and the functions of formulas, as the guide has them: Markdown tables."""
    parts = []
    for name, step in steps().items():
        lines = [f"### {name}", "", description_of(step), ""]
        if step.short is not None:
            alone = "is all there is" if step.only else "may stand alone"
            option = next(each for each in options_of(step) if each.name == step.short)
            lines += [f"`{name}: {option.name.upper()}`: `{option.name}` {alone}.", ""]
        lines += ["| option | | default |", "|---|---|---|"]
        for option in options_of(step):
            default = "*must be given*" if option.default is None else option.default
            lines.append(f"| `{option.name}` | {option.what} | {default} |")
        lines += ["", f"Takes {step.takes}. Gives {step.gives}.", ""]
        parts.append("\n".join(lines))
    lines = ["### Functions of formulas", "", "| function | in |", "|---|---|"]
    places = {"row": "any formula", "aggregate": "group, resample", "window": "window"}
    for function in formula.FUNCTIONS.values():
        uses = ["row"] if "row" in function.uses else function.uses
        lines.append(f"| {function.what} | {', '.join(places[use] for use in uses)} |")
    return "\n".join([*parts, *lines]) + "\n"
