"""Marks on figure files: thin lines behind the data, with numbers above the axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.report.marks import LINK, TRIGGER
from loopscope.report.palette import MARKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loopscope.report.marks import Strokes

_DASHES = {LINK: "--", TRIGGER: ":"}
FORMS = {LINK: "dashed", TRIGGER: "dotted"}
_TICK = 0.05
"""Of the axes' height."""
_NEAR = 0.02
"""Of the axis: numbers that are nearer stand together."""


def draw_strokes(axes: Axes, strokes: Strokes, scale: float = 1.0, numbers: bool = True) -> None:
    """`scale`: seconds of the axis's unit. The range of the axis must not change afterwards where
    numbers are drawn."""
    if not strokes:
        return
    low, high = axes.get_xlim()
    for kind, each, ticks in strokes.kinds():
        axes.vlines(
            [stroke.seconds / scale for stroke in each],
            0,
            _TICK if ticks else 1,
            colors=MARKS[kind],
            linestyles="-" if ticks else _DASHES[kind],
            linewidth=0.8,
            zorder=0.5,
            transform=axes.get_xaxis_transform(),
        )
    axes.set_xlim(
        min(low, *(each.seconds / scale for each in strokes.every)),
        max(high, *(each.seconds / scale for each in strokes.every)),
    )
    if numbers and strokes.every[0].number is not None:
        _number(axes, strokes, scale)


def _number(axes: Axes, strokes: Strokes, scale: float) -> None:
    """As ticks at the top, above which Matplotlib puts the title."""
    low, high = axes.get_xlim()
    groups: list[tuple[float, list[str]]] = []
    for stroke in strokes.every:
        at = stroke.seconds / scale
        if groups and at - groups[-1][0] < _NEAR * (high - low):
            groups[-1][1].append(str(stroke.number))
        else:
            groups.append((at, [str(stroke.number)]))
    top = axes.secondary_xaxis("top")
    top.set_ticks([at for at, _ in groups], labels=[",".join(texts) for _, texts in groups])
    top.tick_params(length=0, pad=1, labelsize=6.5, labelcolor="0.35")
    top.spines["top"].set_visible(False)
