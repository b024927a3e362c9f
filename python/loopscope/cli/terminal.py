"""Progress on a person's terminal: a live line where there is one, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, TimeRemainingColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from loopscope.control.instant import PrintedLine

_UNITS = ((1_000, "kB"), (1_000_000, "MB"), (1_000_000_000, "GB"))

# How the status of a component begins that does nothing.
_AT_REST = ("ended", "not started")


@contextmanager
def amount_progress(
    what: str, amount: ProgressColumn
) -> Generator[Callable[[int, int], None], None, None]:
    """Shows how much of something is done, as `amount` has it: to be told of that and of all."""
    console = Console(stderr=True)
    with Progress(
        "{task.description}",
        BarColumn(),
        amount,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(what)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)


class TerminalProgress:
    """Shows a run's progress on stderr. Use as a context manager."""

    def __init__(self, verbose: bool, plain: bool = True) -> None:
        """``plain``: whether stages are told where there is no terminal."""
        self._console = Console(stderr=True, highlight=False)
        self._verbose = verbose
        self._plain = plain
        self._text = ""
        self._point = ""
        self._limit: float | None = None
        self._amount = ""
        self._began = 0.0
        self._spinner = Spinner("dots")
        self._components: dict[tuple[str, str], str] = {}
        self._live: Live | None = None

    def __enter__(self) -> TerminalProgress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._view, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def _print(self, text: str, style: str | None = None) -> None:
        # A file or a pipe has no width.
        wraps = self._console.is_terminal
        self._console.print(text, style=style, markup=False, soft_wrap=not wraps)

    def point(self, text: str) -> None:
        """A point of a sweep begins; the live line goes on naming it."""
        self._point = f"{text}: " if text else ""
        if text and self._live is None and self._plain:
            self._print(text)

    def stage(self, text: str) -> None:
        """A new stage begins."""
        if all(status.startswith(_AT_REST) for status in self._components.values()):
            self._components.clear()
        self._show(text, None)

    def amount(self, done: int, total: int) -> None:
        """Takes note of the bytes that are done, of those that the stage reads."""
        unit, name = max((each for each in _UNITS if each[0] <= total), default=_UNITS[0])
        self._amount = f"  {done / unit:.1f} of {total / unit:.1f} {name}"

    def phase(self, name: str, timeout_s: float, measured: bool) -> None:
        """A phase of the experiment begins."""
        self._show(f"phase {name}" + (" (measured)" if measured else ""), timeout_s)

    def output(self, host: str, component: str, line: PrintedLine, stderr: bool) -> None:
        """A component's line; shown where the person asked for them."""
        if self._verbose:
            mark = "!" if stderr else "|"
            text = f"{component}@{host} {mark} {line.text}"
            self._print(text, "dim")

    def component(self, host: str, component: str, status: str) -> None:
        """What a component does now; shown on a terminal, below the stage."""
        self._components[host, component] = status

    def note(self, text: str) -> None:
        """Something that a person should know."""
        self._print(text, "yellow")

    def failure(self, text: str) -> None:
        """The run has failed: its cause, before anything is collected."""
        self._console.print(f"loopscope: {text}", style="red", markup=False, soft_wrap=True)

    def _show(self, text: str, limit: float | None) -> None:
        self._text, self._limit, self._began = text, limit, time.monotonic()
        self._amount = ""
        if self._live is None and self._plain:
            self._print(text)

    def _view(self) -> Group:
        """The stage, and below it each component, as far as the terminal has room."""
        # A row for the stage, one for what is left out, one for the cursor.
        room = max(self._console.height - 3, 0)
        shown = list(self._components.items())
        if len(shown) > room:
            shown.sort(key=lambda each: each[1].startswith(_AT_REST))
        rows = Table.grid(padding=(0, 2))
        for (host, component), status in shown[:room]:
            rows.add_row(f"  {host}", component, Text(status), style="dim")
        left_out = len(shown) - room
        more = [Text(f"  and {left_out} components more", style="dim")] if left_out > 0 else []
        return Group(self._line(), *([rows] if shown else []), *more)

    def _line(self) -> Spinner:
        elapsed = time.monotonic() - self._began
        limit = f" of at most {self._limit:g} s" if self._limit else ""
        seconds = f"  {elapsed:.0f} s{limit}" if elapsed >= 1 else ""
        self._spinner.update(text=Text(f"{self._point}{self._text}{self._amount}{seconds}"))
        return self._spinner
