"""Sizes, fonts and the writing of figure files, whose bytes depend on their content alone.

Two widths, those of IEEE's columns. SVG keeps its text as text, PDF embeds TrueType (Type 42, never
Type 3), and large scatters are pictures within the vector file, so that it stays small.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

Format = Literal["svg", "pdf", "png"]
Width = Literal["one", "two"]
FORMATS: tuple[Format, ...] = ("svg", "pdf", "png")
WIDTHS: dict[Width, float] = {"one": 3.5, "two": 7.16}
"""Inches: one and two columns."""
RASTER_DPI = 300
"""Resolution of pictures within SVG and PDF, dots per inch."""
PNG_DPI = 200
STYLE: dict[str, Any] = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "loopscope",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "savefig.dpi": RASTER_DPI,
    "figure.constrained_layout.use": True,
}


def save(figure: Figure, stem: Path, formats: Sequence[Format] = FORMATS) -> tuple[Path, ...]:
    """Writes `<stem>.<format>` of each, without dates, so that the same run gives the same."""
    import matplotlib as mpl

    metadata: dict[Format, dict[str, None]] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None, "ModDate": None},
        "png": {"Software": None},
    }
    written = []
    # One layout for all: with an engine, or a placeholder for one, each format would compute it.
    with mpl.rc_context({**STYLE, "figure.constrained_layout.use": False}):
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
        for each in formats:
            file = stem.with_name(f"{stem.name}.{each}")
            dpi = PNG_DPI if each == "png" else RASTER_DPI
            figure.savefig(file, dpi=dpi, metadata=metadata[each])
            written.append(file)
    return tuple(written)


def write_csv(stem: Path, rows: Iterable[Sequence[str | int | float]]) -> Path:
    """`<stem>.csv`: the numbers that a figure shows, the heading with their units first."""
    file = stem.with_name(f"{stem.name}.csv")
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows(rows)
    return file


_LINE = 0.13
"""Height of a tick's number with some air, in inches."""


def logarithmic(axes: Axes, axis: XAxis | YAxis) -> None:
    """With plain numbers, and enough of them where the axis spans few decades."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    vertical = axis is axes.yaxis
    axes.set_yscale("log") if vertical else axes.set_xscale("log")
    low, high = axes.get_ylim() if vertical else axes.get_xlim()
    decades = math.log10(high / low)
    # Three numbers for each decade, one above the other, want their lines' height.
    room = axes.bbox.height / axes.figure.dpi if vertical else math.inf
    few = decades < 3.3 and 3 * decades * _LINE < room
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
