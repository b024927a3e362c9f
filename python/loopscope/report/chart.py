"""Description of a figure in terms of measurements: traces, bands, whiskers, bars on lanes.

A chart is described once. `chart_page` renders it for the page (Plotly), `chart_file` for papers
(Matplotlib). Coordinates are in the base units of the axes: renderers divide them by `Axis.scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loopscope.report.diagram import Diagram
from loopscope.report.marks import Strokes, caption_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from loopscope.report.axis import Axis

    Numbers = npt.NDArray[Any]
    """int64 or float64; NaN is a gap."""

Row: TypeAlias = "Sequence[str | int | float]"
Symbol = Literal["", "circle", "square", "diamond", "down", "up", "cross", "star", "x", "tick",
                 "dash"]  # fmt: skip
SYMBOLS: tuple[Symbol, ...] = ("circle", "square", "diamond", "down", "up", "cross", "star", "x")
"""One for each series, in turn."""
FEW = 2000
"""Up to so many points are vectors in a file; more are a picture within it."""


@dataclass(frozen=True)
class Hover:
    """Text that the page shows for the point under the pointer."""

    template: str
    """In Plotly's form: `%{x}` and `%{y}` as shown at the axes, `%{customdata}` of `details`."""
    details: Callable[[], Sequence[Any]] | None = None
    """One for each point."""


@dataclass(frozen=True)
class Trace:
    """Points, a line through them, or both."""

    x: Numbers
    y: Numbers
    colour: str
    label: str = ""
    """In the legend; each label is there once."""
    line: float = 0.0
    """Width in points; 0: points alone."""
    dash: int = 0
    """Index of solid, dashed, dotted, dash-dotted."""
    step: Literal["", "before", "after"] = ""
    """Where the line is a staircase: whether it rises before or after the distance to a point."""
    symbol: Symbol = ""
    """Empty: a line alone."""
    size: float = 3.0
    """Size of the symbol, in points."""
    opacity: float = 1.0
    hollow: npt.NDArray[np.bool_] | None = None
    """The points with an open symbol."""
    hollow_label: str = ""
    picture: bool = False
    """Whether a file has it as a picture, for it has many points."""
    hover: Hover | None = None
    right: bool = False
    """Whether it belongs to the axis at the right."""


@dataclass(frozen=True)
class Band:
    """The area between `low` and `high`, with a gap where one is NaN."""

    along: Numbers
    low: Numbers
    high: Numbers
    colour: str
    label: str = ""
    sideways: bool = False
    """Whether `along` is of the vertical axis and the others are of the horizontal one.

    It is a staircase then, on which each value holds from its place to the next.
    """


@dataclass(frozen=True)
class Whiskers:
    """Maximum errors around points; those that are NaN are not drawn."""

    x: Numbers
    y: Numbers
    half_width: Numbers
    colour: str
    sideways: bool = False
    shade: bool = False
    """Whether they are broad and translucent, without caps."""


@dataclass(frozen=True)
class Histogram:
    edges: Numbers
    counts: Numbers
    colour: str
    label: str = ""
    filled: bool = True


@dataclass(frozen=True)
class Bars:
    """Bars on lanes, of which the vertical axis has the names as categories."""

    lanes: Sequence[int]
    start: Numbers
    length: Numbers
    half_width: Numbers | None
    """Maximum error of the length, NaN where unknown; None: the bars show none."""
    colour: str
    label: str
    texts: Sequence[str]
    """Printed at the bars."""
    details: Sequence[str]
    """Maximum errors as text, or others, which the page shows under the pointer."""


@dataclass(frozen=True)
class Cells:
    """Numbers of samples in cells; cells without one have no colour."""

    x_edges: Numbers
    y_edges: Numbers
    counts: Numbers
    """Numbers of samples by column and row."""
    label: str


@dataclass(frozen=True)
class TopTicks:
    """Instants along the top."""

    x: Numbers
    colour: str
    label: str
    hover: str


@dataclass(frozen=True)
class Stripes:
    """Stretches of the horizontal axis, drawn as wide as can be seen however short they are."""

    ranges: Sequence[tuple[float, float]]
    colour: str


Layer = Trace | Band | Whiskers | Histogram | Bars | Cells | TopTicks | Stripes | Diagram


@dataclass(frozen=True)
class Panel:
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    title: str = ""
    note: str = ""
    """In small print above the right end."""
    right: Axis | None = None
    strokes: Strokes = field(default_factory=Strokes)
    """Events during the run. The horizontal axis is a time in ns then."""
    numbered: bool = True
    """Whether a file has the numbers of strokes above this panel."""
    shares: Literal["", "x", "xy"] = ""
    """Axes that are those of the first panel, too."""
    grid: bool = False
    """Whether a file has grid lines."""
    separators: tuple[float, ...] = ()
    """Lines across, between lanes."""

    def names_x(self, below: Sequence[Panel]) -> bool:
        """Whether the name of the horizontal axis is not that of one of the panels `below`."""
        return all(panel.x.label != self.x.label for panel in below)


@dataclass(frozen=True)
class Chart:
    panels: tuple[Panel, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    """Notes on what is shown, and on its uncertainty."""
    caption: str = ""
    """Text of the page below it, in place of the notes."""
    key: str = ""
    """Quantity in which the series differ, with its unit: the title of the legend."""
    rows: Iterable[Row] = ()
    """The lines of the CSV in base units, the heading first."""
    columns: tuple[int, int, int] = (1, 1, 1)
    """Panels side by side: on the page, in a file of two columns' width, of one column's."""
    ratios: tuple[int, ...] = ()
    """Widths of the columns; empty: all alike."""
    inches: tuple[float, float] = (0.0, 3.0)
    """Height of a file: of everything but the panels, and of each row of these."""
    pixels: int = 380
    """Height on the page."""
    width: int = 0
    """Pixels on the page; 0: as wide as that is."""
    description: str = ""
    """What it shows, for those who do not see it."""
    legend: Literal["", "above", "beside"] = ""
    """Empty: in the panel where there is room, above it on the page."""

    @property
    def subtitle(self) -> str:
        """The notes as one sentence, with the page's form of what happened meanwhile."""
        told = self.caption or f"{'; '.join(self.notes)}."
        strokes = caption_of([panel.strokes for panel in self.panels], PAGE_FORMS, named=False)
        return f"{told} {strokes[0].upper()}{strokes[1:]}." if strokes else told


PAGE_FORMS = {"link": "dashed lines", "trigger": "dotted lines"}
FILE_FORMS = {"link": "dashed", "trigger": "dotted"}
