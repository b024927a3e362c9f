"""Boxes and arrows: a layer of a chart, and how the page and files draw it.

Coordinates are the page's pixels; y grows downwards. Colours of text are left to the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = tuple[float, float]
Json = dict[str, Any]
LINE, TEXT, SMALL = 16.0, 12.0, 11.0
"""Pixels: of a line of text, and its letters in boxes and at arrows."""
POINTS = 6.5 / SMALL
"""Points in a file to a pixel."""
TOP = 24
"""Pixels above it on the page, for the figure's buttons."""
_HEAD = 7.0


@dataclass(frozen=True)
class Box:
    centre: Place
    width: float
    height: float
    lines: tuple[str, ...]
    colour: str
    is_round: bool
    told: str
    """What the page shows under the pointer."""


@dataclass(frozen=True)
class Arrow:
    corners: tuple[Place, ...]
    is_curved: bool
    """Whether every second stretch, from one corner to the next, is a curve."""
    colour: str
    dashed: bool
    text: str
    text_at: Place
    """The left end of the line that the text stands on."""


@dataclass(frozen=True)
class Diagram:
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    scale: float = 1.0
    """Pixels of the page to one of the coordinates."""


def page_drawing(diagram: Diagram, x: str, y: str) -> tuple[list[Json], list[Json]]:
    """Plotly's shapes and traces on these axes."""
    axes = {"xref": x, "yref": y}
    shapes: list[Json] = []
    for arrow in diagram.arrows:
        line = {"color": arrow.colour, "width": 1.2, "dash": "dot" if arrow.dashed else "solid"}
        shapes.append({**axes, "type": "path", "path": _path(arrow), "line": line})
        head = " L ".join(f"{across:.1f},{up:.1f}" for across, up in _head(arrow.corners))
        filled = {"fillcolor": arrow.colour, "line": {"width": 0}}
        shapes.append({**axes, "type": "path", "path": f"M {head} Z", **filled})
    for box in diagram.boxes:
        line = {"color": box.colour, "width": 1.6}
        outline = {"type": "path", "path": _outline(box), "line": line}
        shapes.append({**axes, **outline, "fillcolor": box.colour + "28"})
    names = _texts([box.centre for box in diagram.boxes], ["<br>".join(map(_plain, box.lines))
                   for box in diagram.boxes], TEXT * diagram.scale, "middle center")  # fmt: skip
    told = [_plain(box.told).replace("\n", "<br>") for box in diagram.boxes]
    names |= {"customdata": told, "hovertemplate": "%{customdata}<extra></extra>"}
    rates = _texts([arrow.text_at for arrow in diagram.arrows],
                   [_plain(arrow.text) for arrow in diagram.arrows], SMALL * diagram.scale,
                   "top right")  # fmt: skip
    rates |= {"hoverinfo": "skip"}
    return shapes, [names, rates]


def _texts(places: Sequence[Place], texts: list[str], size: float, position: str) -> Json:
    return {
        "type": "scatter",
        "mode": "text",
        "x": [round(across, 1) for across, _ in places],
        "y": [round(up, 1) for _, up in places],
        "text": texts,
        "textposition": position,
        "textfont": {"size": round(size, 1)},
        "cliponaxis": False,
    }


def _plain(text: str) -> str:
    """Text that Plotly, which reads some HTML in texts, shows as it is."""
    return escape(text, quote=False)


def _path(arrow: Arrow) -> str:
    """The way of an arrow without its head, as SVG writes paths."""
    (across, up), *rest = _stretches(arrow)
    text = f"M {across:.1f},{up:.1f}"
    before = across
    for place, (across, up) in enumerate(rest):
        if arrow.is_curved and place % 2 == 1:
            middle, level = (before + across) / 2, rest[place - 1][1]
            text += f" C {middle:.1f},{level:.1f} {middle:.1f},{up:.1f} {across:.1f},{up:.1f}"
        else:
            text += f" L {across:.1f},{up:.1f}"
        before = across
    return text


def _stretches(arrow: Arrow) -> tuple[Place, ...]:
    *others, (across, up) = arrow.corners
    return (*others, (across - _HEAD, up))


def _head(corners: Sequence[Place]) -> tuple[Place, ...]:
    across, up = corners[-1]
    return (across, up), (across - _HEAD - 1, up - _HEAD / 2), (across - _HEAD - 1, up + _HEAD / 2)


def _outline(box: Box) -> str:
    (across, up), half, tall = box.centre, box.width / 2, box.height / 2
    left, right, top, bottom = across - half, across + half, up - tall, up + tall
    r = min(tall, 14.0) if box.is_round else 2.0
    return (
        f"M {left + r:.1f},{top:.1f} L {right - r:.1f},{top:.1f} "
        f"Q {right:.1f},{top:.1f} {right:.1f},{top + r:.1f} L {right:.1f},{bottom - r:.1f} "
        f"Q {right:.1f},{bottom:.1f} {right - r:.1f},{bottom:.1f} L {left + r:.1f},{bottom:.1f} "
        f"Q {left:.1f},{bottom:.1f} {left:.1f},{bottom - r:.1f} L {left:.1f},{top + r:.1f} "
        f"Q {left:.1f},{top:.1f} {left + r:.1f},{top:.1f} Z"
    )


def file_width(diagram: Diagram) -> float:
    """Inches that it needs in a file."""
    ends = [box.centre[0] + box.width / 2 for box in diagram.boxes]
    ends += [x for arrow in diagram.arrows for x, _ in arrow.corners]
    return (max(ends) + 10) * POINTS / 72


def draw_in_file(axes: Axes, diagram: Diagram, width: float) -> None:
    """On axes of Matplotlib that are the whole figure, of this width in inches, from the left."""
    from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
    from matplotlib.path import Path

    axes.set_axis_off()
    axes.set_position((0, 0, 1, 1))
    axes.set_in_layout(False)
    axes.set_xlim(0, width * 72 / POINTS)
    for arrow in diagram.arrows:
        (start, *rest), codes = _stretches(arrow), [Path.MOVETO]
        places, before = [start], start[0]
        for at, (across, up) in enumerate(rest):
            if arrow.is_curved and at % 2 == 1:
                middle = (before + across) / 2
                places += [(middle, rest[at - 1][1]), (middle, up), (across, up)]
                codes += [Path.CURVE4] * 3
            else:
                places.append((across, up))
                codes.append(Path.LINETO)
            before = across
        axes.add_patch(
            PathPatch(Path(places, codes), fill=False, edgecolor=arrow.colour, linewidth=0.8,
                      linestyle=":" if arrow.dashed else "-", capstyle="butt")
        )  # fmt: skip
        axes.add_patch(Polygon(_head(arrow.corners), facecolor=arrow.colour, linewidth=0))
        across, up = arrow.text_at
        axes.annotate(arrow.text, (across, up), (1, 1), textcoords="offset points", va="bottom",
                      fontsize=SMALL * POINTS, parse_math=False)  # fmt: skip
    for box in diagram.boxes:
        (across, up), half, tall = box.centre, box.width / 2, box.height / 2
        style = f"round,pad=0,rounding_size={min(tall, 14.0) if box.is_round else 2.0}"
        for fill, edge in ((box.colour + "28", "none"), ("none", box.colour)):
            axes.add_patch(
                FancyBboxPatch((across - half, up - tall), box.width, box.height, boxstyle=style,
                               facecolor=fill, edgecolor=edge, linewidth=1.0)
            )  # fmt: skip
        axes.text(across, up, "\n".join(box.lines), ha="center", va="center",
                  fontsize=TEXT * POINTS, parse_math=False)  # fmt: skip
