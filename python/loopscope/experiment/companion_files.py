"""Files in the experiment file's folder: for programs, message tables, steps in Python."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from . import measures
from .problem import Problem, dotted, nearest
from .yaml_tree import (
    Location,
    Mapping,
    Mark,
    Scalar,
    Sequence,
    Tree,
    child,
    elements,
    entries,
    text_of,
)

# Programs with an older library read lines of 64 KiB, in which characters may be escaped.
_LONGEST = 48 * 1024


def put_in(root: Tree, file: str) -> tuple[Tree, list[Problem]]:
    """Each ``{file: NAME}`` in a component's ``with`` with the file's text added to its name."""
    problems: list[Problem] = []

    def filled(tree: Tree, path: Location) -> Tree:
        if isinstance(tree, Sequence):
            return Sequence(
                tree.mark, [filled(item, (*path, i)) for i, item in enumerate(tree.items)]
            )
        if not isinstance(tree, Mapping):
            return tree
        name = tree.items.get("file") if len(tree.items) == 1 else None
        if not isinstance(name, Scalar) or text_of(name) is None:
            items = {key: filled(item, (*path, key)) for key, item in tree.items.items()}
            return Mapping(tree.mark, items, tree.keys)
        text, reason = _read(file, name.text)
        if reason is None and len(text.encode()) > _LONGEST:
            reason = (
                f"{name.text!r} is longer than the {_LONGEST} bytes that a program can be given"
            )
        if reason is not None:
            place = (name.mark.line, name.mark.column, dotted((*path, "file")))
            problems.append(Problem(file, *place, reason))
        content = Scalar(name.mark, text, text, bad=reason is not None)
        keys = {"file": name.mark, "text": name.mark}
        return Mapping(tree.mark, {"file": name, "text": content}, keys)

    components = child(root, "components")
    if not isinstance(root, Mapping) or not isinstance(components, Mapping):
        return root, []
    made: dict[str, Tree] = {}
    for component, _, tree in entries(components):
        config = child(tree, "with")
        if isinstance(tree, Mapping) and config is not None:
            config = filled(config, ("components", component, "with"))
            tree = Mapping(tree.mark, {**tree.items, "with": config}, tree.keys)
        made[component] = tree
    components = Mapping(components.mark, made, components.keys)
    return Mapping(root.mark, {**root.items, "components": components}, root.keys), problems


def bare_names(root: Tree, file: str) -> list[Problem]:
    """Warnings of words of commands that name a file in this one's folder, and do not reach it."""
    problems = []
    folder = Path(file).parent
    for component, _, tree in entries(child(root, "components")):
        for i, word in enumerate(elements(child(tree, "run"))):
            name = text_of(word)
            if i == 0 or not name or name.startswith(("./", "../", "/", "-")):
                continue
            try:
                is_here = (folder / name).is_file()
            except (OSError, ValueError):
                continue
            if is_here:
                place = (word.mark.line, word.mark.column, dotted(("components", component, "run")))
                message = (
                    f"{name!r} is a file beside this one, but the component runs in a folder of "
                    f"its own: write ./{name} if the file is meant"
                )
                problems.append(Problem(file, *place, message, severity="warning"))
    return problems


def message_tables(
    root: Tree, file: str
) -> tuple[dict[str, tuple[measures.MessageType, ...]], list[Problem]]:
    """The types of every pattern of ``measure.patterns``, and what is wrong in their tables."""
    tables: dict[str, tuple[measures.MessageType, ...]] = {}
    problems: list[Problem] = []
    components = [name for name, _, _ in entries(child(root, "components"))]
    for name, _, pattern in entries(child(child(root, "measure"), "patterns")):
        given = child(pattern, "table")
        table = text_of(given)
        if given is None or not table:
            continue
        text, reason = _read(file, table)
        if reason is not None:
            mark: Mark = given.mark
            path = dotted(("measure", "patterns", name, "table"))
            problems.append(Problem(file, mark.line, mark.column, path, reason))
            continue
        tables[name], wrong = _types(text, str(Path(file).parent / table), components)
        problems += wrong
    return tables, problems


def modules(root: Tree, file: str) -> tuple[dict[str, str], list[Problem]]:
    """The texts of the Python files that steps of ``analyse`` call, and what is wrong with them."""
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    for pipeline, _, given in entries(child(root, "analyse")):
        for i, step in enumerate(elements(child(given, "steps"))):
            python = child(step, "python")
            call = python if isinstance(python, Scalar) else child(python, "call")
            named = text_of(call)
            if call is None or named is None or not re.fullmatch(r"\w+:\w+", named):
                continue
            module, _, function = named.partition(":")
            text, reason = _read(file, f"{module}.py")
            hint = None
            if reason is None:
                reason, hint = _not_callable(text, f"{module}.py", function)
            if reason is None:
                texts[module] = text
            else:
                path = dotted(("analyse", pipeline, "steps", i, "python"))
                problems.append(Problem(file, call.mark.line, call.mark.column, path, reason, hint))
    return texts, problems


def _not_callable(text: str, file: str, function: str) -> tuple[str | None, str | None]:
    """Why a file has no such function, if it has none, and the nearest that it has."""
    try:
        found = [each.name for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)]
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        return f"{file}, line {line}: {getattr(error, 'msg', None) or error}", None
    if function in found:
        return None, None
    return f"{file} has no function {function!r}", nearest(function, found)


def _types(
    text: str, file: str, components: list[str]
) -> tuple[tuple[measures.MessageType, ...], list[Problem]]:
    # The programs' own parser, so that what is right here is right there.
    from loopscope._native import read_messages

    read = json.loads(read_messages(text, file))
    problems = [Problem(file, p["line"], p["column"], "", p["message"]) for p in read["problems"]]
    types = []
    for row in read["types"]:
        producers, consumers = tuple(row["producers"]), tuple(row["consumers"])
        for each in dict.fromkeys((*producers, *consumers)):
            if each not in components:
                message = f"{row['name']!r}: the experiment has no component {each!r}"
                close = nearest(each, components)
                problems.append(Problem(file, row["line"], 1, "", message, close))
        types.append(
            measures.MessageType(
                name=row["name"],
                transport=row["transport"],
                size=row["size"],
                period_ns=row["period_ns"],
                target_ns=row["target_ns"],
                producers=producers,
                consumers=consumers,
            )
        )
    return tuple(types), problems


def _read(experiment: str, name: str) -> tuple[str, str | None]:
    """The text of a file in the experiment file's folder, or why it cannot be read."""
    try:
        return (Path(experiment).parent / name).read_text(encoding="utf-8-sig"), None
    except UnicodeDecodeError:
        return "", f"{name!r} is not UTF-8 text"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return "", f"cannot read {name!r}, which should be beside this file: {reason}"
