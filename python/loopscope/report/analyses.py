"""The analyses of a run in its page: the beginning of each table and log, and the figures."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from html import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from loopscope.analysis.quantity import number
from loopscope.files import write_whole
from loopscope.report.samples import unit_of_name

if TYPE_CHECKING:
    import pyarrow as pa

_BEGIN, _END = "<!-- analyses -->", "<!-- end of the analyses -->"

_ROWS = 10
_LINES = 20
_FIGURE = 300 << 10
_FIGURES = 1 << 20
"""Bytes of a figure, and of all of them, up to which they are in the page itself."""


def section(folder: Path) -> str:
    """What the ``analysis/`` of a page's folder holds, as HTML between two marks."""
    return f"{_BEGIN}{''.join(_analyses(folder))}{_END}"


def fill(run: Path) -> None:
    """Puts what ``analysis/`` of a run holds into its ``report.html``, in place of what was there.

    A run without a page, or with one of another version, is left as it is. Raises OSError where the
    page cannot be written.
    """
    page = run / "report.html"
    if not page.exists():
        return
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        return
    write_whole(page, f"{before}{section(run)}{after}")


def _analyses(run: Path) -> Iterator[str]:
    room = _FIGURES
    for file in sorted(run.glob("analysis/[!.]*/graph.json")):
        try:
            analysis = json.loads(file.read_text(encoding="utf-8"))
            name, (html, room) = analysis["name"], _analysis(run, file, analysis, room)
        except (KeyError, TypeError, ValueError, AttributeError):
            name = file.parent.name
            html = f"<p>{_link(file, run)} is not a graph's definition.</p>"
        yield f"<section><h2>Analysis {escape(name)}</h2>{html}</section>"


def _analysis(run: Path, file: Path, analysis: Mapping[str, Any], room: int) -> tuple[str, int]:
    """What a graph made, and how much room its figures leave."""
    engine = ", ".join(f"{name} {version}" for name, version in analysis["engine"].items())
    text = ""
    for output in analysis["outputs"]:
        files = [file.parent / name for name in output["files"]]
        if output["problem"] is not None:
            html = f"<p>{escape(output['problem'])}</p>"
        elif not all(each.exists() for each in files):
            html = "<p>Its files are not all there; <code>loopscope report</code> makes them.</p>"
            files = [each for each in files if each.exists()]
        elif output["kind"] == "figure":
            html, room = _figure(output["name"], files, room)
        elif output["kind"] == "log":
            html = _log(files[0], output["rows"])
        else:
            html = _table(files[0], output)
        links = ", ".join(_link(each, run) for each in files)
        text += f'<h3>{escape(output["name"])}</h3>{html}<p class="note">{links}</p>'
    text += f'<p class="note">{_link(file, run)} has the graph; made by {escape(engine)}.</p>'
    return text, room


def _table(file: Path, output: Mapping[str, Any]) -> str:
    table = _first_rows(file)
    units = output.get("units")
    if units is None:  # Of an earlier version.
        units = {name: unit_of_name(name) for name in table.column_names}
    numeric = {
        name: output["columns"].get(name) in ("int64", "float64") for name in table.column_names
    }
    head = "".join(
        f"<th{_class(numeric[name])}>{escape(_heading(name, units.get(name)))}</th>"
        for name in table.column_names
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_class(numeric[name])}>{_cell(row[name])}</td>" for name in row)
        + "</tr>"
        for row in table.to_pylist()
    )
    more = _more(output["rows"] - len(table), "row")
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{more}"
    )


def _heading(name: str, unit: str | None) -> str:
    return f"{name} ({unit})" if unit else name


def _first_rows(file: Path) -> pa.Table:
    import pyarrow as pa

    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(file) as parquet:
            batches = list(islice(parquet.iter_batches(_ROWS), 1))
            return pa.Table.from_batches(batches, parquet.schema_arrow)
    if file.suffix == ".arrow":
        with pa.memory_map(str(file)) as source, pa.ipc.open_file(source) as arrow:
            batches = [arrow.get_batch(i) for i in range(min(1, arrow.num_record_batches))]
            return pa.Table.from_batches(batches, arrow.schema).slice(0, _ROWS)
    from pyarrow import csv

    with csv.open_csv(file) as reader:
        return pa.Table.from_batches(islice(reader, 1), reader.schema).slice(0, _ROWS)


def _log(file: Path, rows: int) -> str:
    with file.open(encoding="utf-8") as log:
        first = list(islice(log, _LINES))
    # Besides there is a line above each repeat's.
    shown = sum(line.startswith(" ") for line in first)
    return f"<pre>{escape(''.join(first))}</pre>{_more(rows - shown, 'line')}"


def _figure(name: str, files: list[Path], room: int) -> tuple[str, int]:
    """A figure as far as there is room for it, and how much room is left."""
    [drawing] = [file for file in files if file.suffix == ".svg"]
    size = drawing.stat().st_size
    if size > min(_FIGURE, room):
        return "<p>Too large for this page.</p>", room
    data = base64.b64encode(drawing.read_bytes()).decode()
    alt = escape(name, quote=True)
    return f'<img class="drawn" alt="{alt}" src="data:image/svg+xml;base64,{data}">', room - size


def _more(count: int, what: str) -> str:
    if count <= 0:
        return ""
    return f'<p class="note">… and {number(count)} {what}{"" if count == 1 else "s"} more</p>'


def _link(file: Path, run: Path) -> str:
    place = escape(quote(str(file.relative_to(run))))
    return f'<a href="{place}">{escape(file.name)}</a>'


def _class(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.9g}"
    return (
        number(value)
        if isinstance(value, int) and not isinstance(value, bool)
        else escape(str(value))
    )
