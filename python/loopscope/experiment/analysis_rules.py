"""What the pipelines of ``analyse`` must be together; what their tables hold is not known here."""

from __future__ import annotations

from typing import Final

from . import order
from .source import Location, Mapping, Mark, Scalar, Sequence, Tree, child, elements, entries
from .source import text_of as text
from .sweep import swept
from .values import Names, Report


def _one_step_each(root: Tree, known: Names, report: Report) -> None:
    for pipeline, _, i, step in _steps(root):
        if isinstance(step, Mapping) and len(step.items) != 1:
            place: Location = ("analyse", pipeline, "steps", i)
            message = f"this has {len(step.items)} keys: write each step as an item of its own"
            report(step.mark, place, message)


def _begin(root: Tree, known: Names, report: Report) -> None:
    for name, mark, pipeline in entries(child(root, "analyse")):
        given = child(pipeline, "from")
        place: Location = ("analyse", name)
        steps = elements(child(pipeline, "steps"))
        at = [i for i, step in enumerate(steps) if child(step, "path") is not None]
        if isinstance(pipeline, Mapping) and given is None and at[:1] != [0]:
            report(mark, place, f"{name!r} has no table to begin with: give it from, such as hops")
        for i in at:
            if i > 0 or given is not None:
                where = child(steps[i], "path")
                message = "path begins a pipeline: put it first and leave from out"
                report(where.mark if where else mark, (*place, "steps", i, "path"), message)


def _no_cycle(root: Tree, known: Names, report: Report) -> None:
    marks: dict[str, Mark] = {}
    after: dict[str, list[str]] = {}
    for name, mark, pipeline in entries(child(root, "analyse")):
        marks[name] = mark
        given: list[Tree | None] = [child(pipeline, "from")]
        for step in elements(child(pipeline, "steps")):
            for kind, _, options in entries(step):
                alone = kind == "merge" and not isinstance(options, Mapping)
                named = options if alone else child(options, "with")
                given += elements(named) if isinstance(named, Sequence) else [named]
        after[name] = [taken for taken in map(text, given) if taken is not None]
    known_names = set(after)
    within = {
        name: [each for each in names if each in known_names] for name, names in after.items()
    }
    circle = order.cycle(within)
    if circle is not None:
        message = f"the pipelines take each other: {' from '.join([*circle, circle[0]])}"
        if len(circle) == 1:
            message = f"{circle[0]!r} takes itself: where a table of the run is meant, rename it"
        report(marks[circle[0]], ("analyse", circle[0]), message)


def _no_swept_parameter(root: Tree, known: Names, report: Report) -> None:
    parameters = swept(root)

    def look(tree: Tree, place: Location) -> None:
        if isinstance(tree, Scalar) and tree.parameter in parameters:
            message = (
                f"${tree.parameter} is swept, and analyse is made of all points together: use the "
                f"column point_{tree.parameter}"
            )
            report(tree.mark, place, message)
        for i, item in enumerate(elements(tree)):
            look(item, (*place, i))
        for key, _, item in entries(tree):
            look(item, (*place, key))

    given = child(root, "analyse")
    if given is not None and parameters:
        look(given, ("analyse",))


def _options(root: Tree, known: Names, report: Report) -> None:
    for pipeline, mark, i, step in _steps(root):
        place: Location = ("analyse", pipeline, "steps", i)
        window, python = child(step, "window"), child(step, "python")
        if child(window, "rows") is not None and child(window, "time") is not None:
            message = "a window is of so many rows or of so much time: give one of the two"
            report(window.mark if window else mark, (*place, "window"), message)
        if child(python, "by") is not None and child(python, "columns") is None:
            message = "by is for batches: give columns, or leave it out"
            report(python.mark if python else mark, (*place, "python", "by"), message)


def _steps(root: Tree) -> list[tuple[str, Mark, int, Tree]]:
    return [
        (name, mark, i, step)
        for name, mark, pipeline in entries(child(root, "analyse"))
        for i, step in enumerate(elements(child(pipeline, "steps")))
    ]


RULES: Final = (_one_step_each, _begin, _no_cycle, _no_swept_parameter, _options)
