"""Measures some figures and prints their results as one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def measured(figures: Mapping[str, Callable[[], dict[str, Any]]], wanted: Sequence[str]) -> None:
    """`wanted`: all of them where it is empty."""
    results: dict[str, Any] = {}
    for figure in wanted or figures:
        print(f"  {figure} …", file=sys.stderr)
        results[figure] = figures[figure]()
    print(json.dumps(results))
