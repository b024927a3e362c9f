"""The analyses of a run in its page: the beginning of each table and log, and the figures."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from loopscope.analysis.quantity_text import number
from loopscope.files import write_whole
from loopscope.report.html import render
from loopscope.report.samples import unit_of_name

if TYPE_CHECKING:
    import pyarrow as pa

_BEGIN, _END = "<!-- analyses -->", "<!-- end of the analyses -->"

_ROWS = 10
_LINES = 20
_FIGURE = 300 << 10
_FIGURES = 1 << 20
"""Bytes of a figure, and of all of them, up to which they are in the page itself."""


def section(folder: Path) -> Markup:
    """The content of ``analysis/`` in a page's folder, as HTML between two marks."""
    return Markup(_BEGIN) + render("analyses.html", analyses=_analyses(folder)) + Markup(_END)


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


def _analyses(run: Path) -> Iterator[dict[str, Any]]:
    room = _FIGURES
    for file in sorted(run.glob("analysis/[!.]*/graph.json")):
        here = _link(file, run)
        try:
            analysis = json.loads(file.read_text(encoding="utf-8"))
            engine = ", ".join(f"{name} {version}" for name, version in analysis["engine"].items())
            outputs, room = _outputs(run, file, analysis["outputs"], room)
            made = {"name": analysis["name"], "engine": engine, "outputs": outputs, "file": here}
        except (KeyError, TypeError, ValueError, AttributeError):
            made = {"name": file.parent.name, "engine": None, "file": here}
        yield made


def _outputs(
    run: Path, graph: Path, outputs: Sequence[Mapping[str, Any]], room: int
) -> tuple[list[dict[str, Any]], int]:
    """Outputs of a pipeline, and the bytes that its figures leave of `room`."""
    made = []
    for output in outputs:
        files = [graph.parent / name for name in output["files"]]
        there = [each for each in files if each.exists()]
        content: dict[str, Any] = {}
        if output["problem"] is not None:
            content, there = {"note": output["problem"]}, files
        elif len(there) < len(files):
            pass
        elif output["kind"] == "figure":
            content, room = _figure(files, room)
        elif output["kind"] == "log":
            content = _log(files[0], output["rows"])
        else:
            content = _table(files[0], output)
        links = [_link(each, run) for each in there]
        made.append({"name": output["name"], "files": links, **content})
    return made, room


def _table(file: Path, output: Mapping[str, Any]) -> dict[str, Any]:
    table = _first_rows(file)
    units = output.get("units")
    if units is None:  # An earlier version wrote it.
        units = {name: unit_of_name(name) for name in table.column_names}
    columns = [
        (_heading(name, units.get(name)), output["columns"].get(name) in ("int64", "float64"))
        for name in table.column_names
    ]
    rows = [[_cell(value) for value in row.values()] for row in table.to_pylist()]
    return {"columns": columns, "rows": rows, "more": output["rows"] - len(table)}


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


def _log(file: Path, rows: int) -> dict[str, Any]:
    with file.open(encoding="utf-8") as log:
        first = list(islice(log, _LINES))
    # Besides there is a line above each repeat's.
    shown = sum(line.startswith(" ") for line in first)
    return {"log": "".join(first), "more": rows - shown}


def _figure(files: Sequence[Path], room: int) -> tuple[dict[str, Any], int]:
    """A figure as far as there is room for it, and how much room is left."""
    [drawing] = [file for file in files if file.suffix == ".svg"]
    size = drawing.stat().st_size
    if size > min(_FIGURE, room):
        return {"note": "Too large for this page."}, room
    return {"figure": base64.b64encode(drawing.read_bytes()).decode()}, room - size


def _link(file: Path, run: Path) -> dict[str, str]:
    return {"name": file.name, "place": quote(str(file.relative_to(run)))}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return str(value)
