"""Draws the newest result of `stm-puts` into a file: ``draw_puts.py FILE.png``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from loopscope.report.canvas import STYLE, WIDTHS, logarithmic, save

RESULTS = Path(__file__).resolve().parents[1] / "results"
LINES = {"tcp": "a message and an answer over TCP", "stm": "a put to another host's channel"}


def newest() -> dict[str, Any]:
    """The kinds of the newest result that has them."""
    for file in sorted(RESULTS.glob("*.json"), reverse=True):
        found = json.loads(file.read_text(encoding="utf-8")).get("stm", {}).get("stm-puts", {})
        if "kinds" in found:
            kinds: dict[str, Any] = found["kinds"]
            return kinds
    raise SystemExit("no result has stm-puts: bench/run.py stm-puts")


def main(file: Path) -> None:
    kinds = newest()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTHS["one"], 2.4))
        axes = figure.subplots()
        for by, label in LINES.items():
            points = sorted(
                (int(kind.rsplit("-", 1)[1]), each["mb_per_s"])
                for kind, each in kinds.items()
                if f"-{by}-" in kind
            )
            sizes, rates = zip(*points, strict=True)
            spread = [
                [rate["median"] - rate["min"] for rate in rates],
                [rate["max"] - rate["median"] for rate in rates],
            ]
            medians = [rate["median"] for rate in rates]
            axes.errorbar(sizes, medians, spread, label=label, marker=".", linewidth=1, capsize=2)
        axes.set(
            xlabel="bytes of an item", ylabel="MB/s", title="One after the other, by their size"
        )
        logarithmic(axes, axes.xaxis)
        logarithmic(axes, axes.yaxis)
        axes.grid(True)
        axes.legend()
    save(figure, file.with_suffix(""), ["png"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
