"""Measures some figures and prints their results as one JSON object."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def measured(figures: Mapping[str, Callable[[], dict[str, Any]]], wanted: Sequence[str]) -> None:
    """`wanted`: all of them where it is empty."""
    results: dict[str, Any] = {}
    for figure in wanted or figures:
        print(f"  {figure} …", file=sys.stderr)
        results[figure] = figures[figure]()
    print(json.dumps(results))


def measured_in_folders(
    figures: Mapping[str, Callable[[Path], dict[str, Any]]], wanted: Sequence[str]
) -> None:
    """The same, each in an empty folder of its own, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as name:

        def within(figure: str) -> Callable[[], dict[str, Any]]:
            folder = Path(name) / figure
            folder.mkdir()
            return lambda: figures[figure](folder)

        measured({figure: within(figure) for figure in figures}, wanted)
