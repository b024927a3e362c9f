"""Any table as a figure: SVG, PDF, PNG, and the numbers that it shows as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loopscope.extras import MissingExtraError, readable_import_errors
from loopscope.report.samples import FigureError, missing, read_samples

if TYPE_CHECKING:
    import pyarrow as pa

    from loopscope.report.chart import Chart
    from loopscope.report.sample_charts import Detail

__all__ = ["KINDS", "FigureError", "Kind", "check", "draw"]


@dataclass(frozen=True)
class Kind:
    """A kind of figure: its description, and the columns that it takes of a table."""

    what: str
    needs: Mapping[str, str]
    """Columns that it must have: what each is."""
    takes: Mapping[str, str]
    """Columns that it may have."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options: texts."""


_ERR = {"err": "hard maximum error of it; null where unknown"}
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
    try:
        with readable_import_errors():
            from loopscope.report.canvas import FORMATS, WIDTHS, save, write_csv
            from loopscope.report.chart_file import file_figure
    except MissingExtraError as error:
        raise FigureError(str(error)) from None
    from loopscope.report.sample_charts import Detail

    for each in formats:
        if each not in FORMATS:
            raise FigureError(missing("format", each, FORMATS))
    if width not in WIDTHS:
        raise FigureError(missing("width", width, list(WIDTHS)))
    made = chart(kind, table, columns, Detail(size_of(width)))
    directory.mkdir(parents=True, exist_ok=True)
    figure = file_figure(replace(made, title=title or ""), WIDTHS[width])
    written = save(figure, directory / stem, formats) if formats else ()
    return (*written, write_csv(directory / stem, made.rows))


def chart(
    kind: str, table: pa.Table, columns: Mapping[str, str], detail: Detail | None = None
) -> Chart:
    """The chart that ``draw`` draws, for callers that add to it.

    ``columns`` may have the role ``key``: numbers of samples.
    """
    from loopscope.report.sample_charts import KINDS as CHARTS
    from loopscope.report.sample_charts import Detail

    check(kind, {role: name for role, name in columns.items() if role != "key"})
    detail = detail or Detail()
    known = KINDS[kind]
    taken = (*known.needs, *known.takes, "key")
    roles = {name: columns[name] for name in taken if name in columns}
    options = {name: columns[name] for name in known.options if name in columns}
    if options.get("log") == "none":
        options["log"] = ""
    samples = read_samples(table, roles, options, texts=kind in _OF_TEXTS)
    height = detail.size[1]
    return replace(CHARTS[kind](samples, options, detail), inches=(0, height))


def size_of(width: Literal["one", "two"]) -> tuple[float, float]:
    """Width and height of a figure with one pair of axes, in inches."""
    from loopscope.report.canvas import WIDTHS

    return WIDTHS[width], 2.4 if width == "one" else 3.0
