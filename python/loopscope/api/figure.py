"""A figure of a run: shown by a notebook, drawn by Matplotlib, saved as files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loopscope.extras import readable_import_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

    from loopscope.report.catalogue import Choice, Wanted
    from loopscope.report.figure_source import FigureSource

Format = Literal["svg", "pdf", "png"]
Width = Literal["one", "two"]


class Figure:
    """A figure of a run, as `loopscope figure` draws it. A notebook shows it as SVG.

    Examples:
        >>> figure = ls.open_run("runs/pipeline/latest").figure("waterfall", message=12)
        >>> figure.name
        'waterfall-loop'
        >>> float(figure.matplotlib.get_size_inches()[0])
        7.16
        >>> [file.name for file in figure.save("paper", formats=["pdf"])]
        ['waterfall-loop.pdf', 'waterfall-loop.csv']
    """

    def __init__(self, source: FigureSource, wanted: Wanted, choice: Choice) -> None:
        from loopscope.report.catalogue import chart_of

        self._source, self._wanted, self._choice = source, wanted, choice
        self._chart = chart_of(source, wanted, choice)

    @property
    def name(self) -> str:
        """The name of its files, without a suffix."""
        return self._wanted.stem

    @property
    def rows(self) -> list[Sequence[str | int | float]]:
        """The numbers that the figure shows, the heading with their units first."""
        return list(self._chart.rows)

    @cached_property
    def matplotlib(self) -> MatplotlibFigure:
        """The Matplotlib figure, to be changed or saved in other ways."""
        from loopscope.report.canvas import WIDTHS
        from loopscope.report.chart_file import file_figure

        return file_figure(self._chart, WIDTHS[self._choice.width])

    def save(
        self,
        folder: str | Path | None = None,
        *,
        formats: Sequence[Format] = ("svg", "pdf", "png"),
    ) -> tuple[Path, ...]:
        """Writes the figure in each format and its numbers as CSV; returns the files.

        Args:
            folder: Where the files go. Default: `figures` of the run.
            formats: Some of `svg`, `pdf` and `png`.

        Raises FigureError for an unknown format, OSError where a file cannot be written.
        """
        from dataclasses import replace

        from loopscope.report.canvas import FORMATS
        from loopscope.report.catalogue import draw, figures_of
        from loopscope.report.samples import FigureError, missing

        for each in formats:
            if each not in FORMATS:
                raise FigureError(missing("format", each, FORMATS))
        place = figures_of(self._source) if folder is None else Path(folder)
        return draw(self._source, self._wanted, place, replace(self._choice, formats=formats))

    def _repr_svg_(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return self.save(folder, formats=["svg"])[0].read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Figure {self.name} of {self._source.path}>"


def figure_of(
    source: FigureSource, kind: str, of: str | None, choice: dict[str, Any], begin: str | None,
    end: str | None,
) -> Figure:  # fmt: skip
    """The one figure of this kind, of what ``of`` names; of all that suits it, if that is one.

    Raises FigureError, and MissingExtraError where Matplotlib is not installed.
    """
    with readable_import_errors():
        # Draws: where it is missing this says so, and not what is called later.
        import loopscope.report.chart_file  # noqa: F401
        from loopscope.report.catalogue import Choice, duration_ns, parse
    from loopscope.report.samples import FigureError

    message = choice.pop("message")
    if message is not None and not isinstance(message, str):
        fields = message if isinstance(message, tuple) else (message,)
        message = ", ".join(map(str, fields))
    chosen = Choice(
        message=message,
        from_ns=duration_ns("begin", begin),
        until_ns=duration_ns("end", end),
        **choice,
    )
    found = parse(source, [kind] if of is None else [kind, of], chosen)
    if len(found) > 1:
        known = ", ".join(repr(each.of) for each in found)
        raise FigureError(f"{kind}: name what it is to be of: {known}")
    return Figure(source, found[0], chosen)
