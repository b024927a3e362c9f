"""Generates reference pages of the documentation site as Markdown.

They list the commands and the steps of analyses.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def _cell(text: str) -> str:
    """A text as the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """The lines of a table; none without rows."""
    if not rows:
        return []
    lines = [head, ("---",) * len(head), *rows]
    return ["", *("| " + " | ".join(line) + " |" for line in lines), ""]


def commands() -> str:
    """Every command of `loopscope`: usage, arguments and options with defaults and help."""
    import typer.main

    from loopscope.cli import app

    top = typer.main.get_command(app)
    lines = ["# Commands", "", _sentence(top.help), "", _sentence(top.epilog)]
    for path, command in _leaves("loopscope", top):
        lines += ["", f"## {path.removeprefix('loopscope ')}", "", *_command(path, command)]
    return "\n".join(lines) + "\n"


def _leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Path and object of every command that has no commands of its own."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, each in below.items():
        yield from _leaves(f"{path} {name}", each)


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _command(path: str, command: Any) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each for each in command.params if each.param_type_name == "option" and not each.hidden
    ]
    usage = [path, *(["[OPTIONS]"] if options else []), *(_placeholder(each) for each in arguments)]
    lines = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        code = paragraph.startswith("loopscope ")
        lines += ["```sh", paragraph, "```", ""] if code else [_sentence(paragraph), ""]
    lines += ["```text", " ".join(usage), "```"]
    rows = [(f"`{_name(each)}`", _cell(each.help or "")) for each in arguments]
    lines += _table(("argument", ""), rows)
    rows = [(_spellings(each), _default(each), _cell(each.help or "")) for each in options]
    return lines + _table(("option", "default", ""), rows)


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _placeholder(argument: Any) -> str:
    name = _name(argument)
    name += "…" if argument.nargs == -1 and not name.endswith("…") else ""
    return name if argument.required else f"[{name}]"


def _spellings(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} `{option.metavar or option.name.upper()}`"


def _default(option: Any) -> str:
    if option.required:
        return "*required*"
    value = option.default
    if option.is_flag or value is None or value in ((), [], "") or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def analysis_steps() -> str:
    """Every step of analyses and every function of formulas, as `analyse --steps` prints them."""
    command = [sys.executable, "-c", "from loopscope.cli import main; main()", "analyse", "--steps"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    # The text's headings are those of a chapter; here it is a page.
    return "# Steps of analyses\n\n" + done.stdout.replace("\n### ", "\n## ").replace(
        "### ", "## ", 1
    )
