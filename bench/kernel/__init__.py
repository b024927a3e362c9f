"""Figures of recording what the kernel does: each by the function that measures it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from kernel import drain, loop, unmeasured, why


def _or_skipped(measure: Callable[[Path], dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The figure, or why it cannot be taken."""
    try:
        return measure(folder)
    except (OSError, RuntimeError, SubprocessError) as error:
        return {"skipped": str(error)[-500:]}


FIGURES = {
    "kernel-loop": partial(_or_skipped, loop.measure),
    "kernel-drain": partial(_or_skipped, drain.measure),
    "kernel-unmeasured": partial(_or_skipped, unmeasured.measure),
    "kernel-why": partial(_or_skipped, why.measure),
}
