"""Mistakes in an experiment file: where they are, what is wrong, and the nearest right spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    """One mistake.

    ``line`` and ``column`` count from 1. ``path`` is dotted (``phases[2].timeout``), empty for
    the file as a whole. Both are 0 where there is no file: the experiment was built in Python, and
    ``file`` names it. ``hint`` is the nearest right spelling, to be offered as a question.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str | None = None
    severity: Severity = "error"


class ExperimentErrors(Exception):
    """Every mistake that a file holds, in the file's order; warnings are among them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(format_problem(problem) for problem in self.problems))


def format_problem(problem: Problem) -> str:
    """The problem in one line: ``FILE:LINE:COLUMN: message (did you mean …?)``.

    Without a file the dotted path stands for the place.
    """
    warning = "warning: " if problem.severity == "warning" else ""
    hint = f" (did you mean {problem.hint}?)" if problem.hint else ""
    place = f"{problem.file}:{problem.line}:{problem.column}"
    if not problem.line:
        place = ": ".join(filter(None, (problem.file, problem.path)))
    text = f"{place}: {warning}{problem.message}{hint}"
    return " ".join(text.splitlines())


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate whose spelling is nearest, or None where none is near."""
    names = sorted(set(candidates) - {word})
    for name in names:
        if name.lower() == word.lower():
            return name
    # Short words (h1, ms, on) differ by half of themselves with one slip.
    cutoff = 0.5 if len(word) <= 4 else 0.6
    found = difflib.get_close_matches(word, names, n=1, cutoff=cutoff)
    return found[0] if found else None


def dotted(path: Iterable[str | int]) -> str:
    """A path of keys and indexes in one text: ``phases[2].timeout``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
