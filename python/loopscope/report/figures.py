"""Any table as a figure: SVG, PDF, PNG, and the numbers that it shows as CSV."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loopscope.report.samples import FigureError, missing, read_samples

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from loopscope.report.sketches import Sketch

__all__ = ["KINDS", "FigureError", "Kind", "check", "draw"]


@dataclass(frozen=True)
class Kind:
    """What a kind of figure shows, and what it takes of a table."""

    what: str
    needs: Mapping[str, str]
    """Columns that it must have: what each is."""
    takes: Mapping[str, str]
    """Columns that it may have."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What else can be said: texts."""


_FEW_LABELS = 3
_TALL = 13
"""Characters to an inch of a figure's height, along the vertical axis."""
_ERR = {"err": "hard half-width of it; null where unknown"}
_SERIES = {"series": "a text or number: each has a colour of its own"}
_KEY = {"series_label": "the title of the legend, with its unit"}
_X = {"x_label": "what the axis shows, without the unit", "x_unit": "of the column, such as ns"}
_Y = {"y_label": "likewise", "y_unit": "likewise"}
_LOG = {"log": "axes with a logarithmic scale: x, y, x,y or none"}

KINDS: dict[str, Kind] = {
    "scatter": Kind(
        "each sample over time, or against another number",
        {"x": "instant or number", "y": "number"},
        {**_ERR, **_SERIES},
        {**_X, **_Y, **_LOG, **_KEY},
    ),
    "histogram": Kind(
        "how many samples were how large",
        {"x": "number"},
        {**_ERR, **_SERIES},
        {**_X, **_LOG, **_KEY, "y_label": "what is counted", "bins": "how many, from 1 to 1000"},
    ),
    "ccdf": Kind(
        "the share of samples at least so large, on logarithmic axes",
        {"x": "number"},
        {**_ERR, **_SERIES},
        {**_X, "y_label": "what shares are of", **_LOG, **_KEY},
    ),
    "mean-deviation": Kind(
        "mean and standard deviation of the samples at each x",
        {"x": "number, or text such as 10ms", "y": "number"},
        {**_ERR, **_SERIES, "deviation": "y is a mean already, and this its deviation"},
        {**_X, **_Y, **_LOG, **_KEY},
    ),
    "heatmap": Kind(
        "how many samples were where over time",
        {"x": "instant or number", "y": "number"},
        {**_ERR},
        {**_X, **_Y, **_LOG, "z_label": "what is counted"},
    ),
}
_OF_TEXTS = ("scatter", "mean-deviation")
"""Kinds whose x may be text."""


def check(kind: str, columns: Mapping[str, str]) -> None:
    """Raises `FigureError` where there is no such kind, or it does not take these columns."""
    if kind not in KINDS:
        raise FigureError(missing("kind of figure", kind, KINDS))
    known = KINDS[kind]
    every = {**known.needs, **known.takes, **known.options}
    for name in columns:
        if name not in every:
            raise FigureError(f"{kind}: {missing('column or option', name, every)}")
    for name, what in known.needs.items():
        if name not in columns:
            raise FigureError(f"{kind} needs {name}: the column of the {what}")
    log = columns.get("log", "none")
    if log != "none" and not set(log.split(",")) <= {"x", "y"}:
        raise FigureError(f"{kind}: log: {log} is neither x nor y nor x,y nor none")


def draw(
    kind: str,
    table: pa.Table,
    directory: Path,
    stem: str,
    *,
    columns: Mapping[str, str],
    title: str | None = None,
    formats: Sequence[Literal["svg", "pdf", "png"]] = ("svg", "pdf", "png"),
    width: Literal["one", "two"] = "one",
) -> tuple[Path, ...]:
    """Draws ``table`` and returns the files: ``<stem>.<format>`` of each format, ``<stem>.csv``.

    ``columns`` has the names of columns by the roles that the kind takes (`KINDS`), and its
    options. A column's unit is told by the option ``<role>_unit``, else by the metadata ``unit`` of
    its field, else by its name (``_ns``, ``_us``, ``_ms``, ``_s``, ``_ppm``, ``_hz``, ``_bytes``,
    ``_bps``; ``ts``, ``latency``, ``duration`` and ``hop_0`` are in ns). Instants (timestamps,
    ``ts``, ``start``, ``end``) are drawn from the first on. Rows without a number are left out, and
    the figure says how many. The same table gives the same bytes.

    Raises `FigureError` for a kind, column or option that there is not and where there is nothing
    to draw, `OSError` where the files cannot be written.
    """
    from loopscope.report.canvas import FORMATS, WIDTHS, save, write_csv

    for each in formats:
        if each not in FORMATS:
            raise FigureError(missing("format", each, FORMATS))
    if width not in WIDTHS:
        raise FigureError(missing("width", width, list(WIDTHS)))
    made = sketch(kind, table, columns, width)
    directory.mkdir(parents=True, exist_ok=True)
    figure = compose(made, title, size_of(width))
    written = save(figure, directory / stem, formats) if formats else ()
    return (*written, write_csv(directory / stem, [made.heading, *made.rows]))


def sketch(
    kind: str, table: pa.Table, columns: Mapping[str, str], width: Literal["one", "two"]
) -> Sketch:
    """What ``draw`` draws, for those who want more in it."""
    from loopscope.report.sketches import KINDS as SKETCHES

    check(kind, columns)
    known = KINDS[kind]
    roles = {name: columns[name] for name in (*known.needs, *known.takes) if name in columns}
    options = {name: columns[name] for name in known.options if name in columns}
    if options.get("log") == "none":
        options["log"] = ""
    samples = read_samples(table, roles, options, texts=kind in _OF_TEXTS)
    return SKETCHES[kind](samples, options, size_of(width))


def size_of(width: Literal["one", "two"]) -> tuple[float, float]:
    """Of a figure with one pair of axes, in inches."""
    from loopscope.report.canvas import WIDTHS

    return WIDTHS[width], 2.4 if width == "one" else 3.0


def compose(sketch: Sketch, title: str | None, size: tuple[float, float]) -> Figure:
    """The whole figure: axes with their units, the key, the title and the notes above."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from loopscope.report.canvas import STYLE

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size)
        axes = figure.subplots()
        paint(axes, sketch, size[1])
        caption(axes, title, sketch.notes, size[0])
    return figure


def paint(axes: Axes, sketch: Sketch, height: float) -> None:
    """Draws into axes of a figure of this height, and names these."""
    from loopscope.report.canvas import logarithmic

    sketch.paint(axes)
    for axis, shown in ((axes.xaxis, sketch.x), (axes.yaxis, sketch.y)):
        if shown.logarithmic:
            logarithmic(axes, axis)
        if shown.categories:
            axis.set_ticks(range(len(shown.categories)), labels=list(shown.categories))
    axes.set_xlabel(sketch.x.label)
    axes.set_ylabel(textwrap.fill(sketch.y.label, round(_TALL * height)))
    axes.grid(True)
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        # Beside the axes it covers no curve.
        beside = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)}
        many = beside if len(labels) > _FEW_LABELS else {}
        axes.legend(title=sketch.key or None, title_fontsize=7, **many)


def caption(axes: Axes, title: str | None, notes: Sequence[str], width: float) -> None:
    """Above the axes, within the figure's width: the title, then the notes in small print."""
    lines = textwrap.wrap("; ".join(notes), round((width - 0.9) * 18))
    if lines:
        axes.set_title("\n".join(lines), fontsize=7, color="0.35", linespacing=1.3)
    if title:
        whole = textwrap.fill(title, round(width * 13))
        axes.figure.suptitle(whole, fontsize=8, x=0.01, ha="left", fontweight="bold")
