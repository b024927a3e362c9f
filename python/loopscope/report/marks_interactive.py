"""Marks on the page's figures: thin lines below the data, and what they say above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopscope.report.marks import LINK, NAMES, TRIGGER, caption_of
from loopscope.report.palette import MARKS

if TYPE_CHECKING:
    from loopscope.report.marks import Strokes

FORMS = {LINK: "dashed lines", TRIGGER: "dotted lines"}
_DASHES = {LINK: "dash", TRIGGER: "dot"}
_SYMBOLS = {LINK: "triangle-down", TRIGGER: "diamond"}
_TICK = 0.05
"""Of the plot's height."""


def add_strokes(
    data: list[dict[str, Any]],
    layout: dict[str, Any],
    strokes: Strokes,
    axes: tuple[str, str],
    free: str | None,
    legend: bool = True,
) -> None:
    """Adds marks to the plot with these `axes`. `free` is the name of a vertical axis that there is
    not yet, for the symbols that say what each mark is; None: lines alone."""
    x, y = axes
    for kind, each, ticks in strokes.kinds():
        dash = "solid" if ticks else _DASHES[kind]
        line = {"color": MARKS[kind], "width": 1, "dash": dash}
        shape = {"type": "line", "xref": x, "yref": f"{y} domain", "layer": "below", "line": line}
        shapes = layout.setdefault("shapes", [])
        for stroke in each:
            at = round(stroke.seconds, 6)
            shapes.append({**shape, "x0": at, "x1": at, "y0": 0, "y1": _TICK if ticks else 1})
        if free is None:
            continue
        layout[f"yaxis{free[1:]}"] = {
            "overlaying": y,
            "range": [0, 1],
            "visible": False,
            "fixedrange": True,
        }
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": NAMES[kind],
                "legendgroup": kind,
                "showlegend": legend,
                "x": [round(stroke.seconds, 6) for stroke in each],
                "y": [0 if ticks else 1] * len(each),
                "xaxis": x,
                "yaxis": free,
                "text": ["<br>".join(stroke.texts) for stroke in each],
                "cliponaxis": False,
                "marker": {"symbol": _SYMBOLS[kind], "size": 7, "color": MARKS[kind]},
                "hovertemplate": "%{text}<br>at %{x:.6f} s<extra></extra>",
            }
        )


def strokes_caption(*panels: Strokes) -> str:
    """A sentence; empty where there are no marks."""
    text = caption_of(panels, FORMS, named=False)
    return f" {text[0].upper()}{text[1:]}." if text else ""
