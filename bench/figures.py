"""Measures some figures and prints their results as one JSON object."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

ROUNDS = "LOOPSCOPE_BENCH_ROUNDS"


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


def in_turns(
    figure: str, rounds: int, kinds: Mapping[str, Callable[[], Mapping[str, float]]]
) -> dict[str, Any]:
    """`values` of each kind by name, in rounds that take the kinds in turn; which were `skipped`.

    There are as many `rounds` as given, or as the environment says.
    """
    rounds = int(os.environ.get(ROUNDS, rounds))
    values: dict[str, dict[str, list[float]]] = {kind: {} for kind in kinds}
    skipped: dict[str, str] = {}
    for turn, (kind, once) in product(range(1, rounds + 1), kinds.items()):
        if kind in skipped:
            continue
        print(f"  {figure}, round {turn} of {rounds}: {kind}", file=sys.stderr, flush=True)
        try:
            for name, value in once().items():
                values[kind].setdefault(name, []).append(value)
        except (OSError, RuntimeError, SubprocessError) as error:
            skipped[kind] = str(error)[-300:]
    kept = {kind: each for kind, each in values.items() if each}
    return {"rounds": rounds, "values": kept, "skipped": skipped}
