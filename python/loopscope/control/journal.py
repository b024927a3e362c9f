"""The journal of a repeat: what happened when, for who looks at a run from elsewhere or later.

`journal.jsonl` has stages, phases, components, notes and the failure; `output.jsonl` has the lines
that components printed, those of all hosts together. The format is schema/run-directory.md's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from loopscope.control.instant import PrintedLine
from loopscope.control.progress import Progress
from loopscope.strict_json import from_json, to_json

JOURNAL = "journal.jsonl"
OUTPUT = "output.jsonl"


class Journal:
    """Progress that is passed on, and written down in a repeat's directory.

    What the disk has no room for is lost, which is noted once; the logs of the hosts have every
    line.
    """

    def __init__(self, progress: Progress, directory: Path) -> None:
        """Raises OSError where the files cannot be made."""
        self._progress = progress
        self._files: dict[str, IO[str]] = {}
        self._unwritten: dict[str, list[str]] = {JOURNAL: [], OUTPUT: []}
        for name in (JOURNAL, OUTPUT):
            self._files[name] = (directory / name).open("w", encoding="utf-8")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._files):
            self._write(name)
        for file in self._files.values():
            with suppress(OSError):  # noted when it was written
                file.close()
        self._files = {}

    def _note_down(self, name: str, entry: dict[str, Any], *, soon: bool = False) -> None:
        """Writes an entry; ``soon``: at the next turn of the event loop, with others of its kind.

        Hundreds of components change their state at the same time.
        """
        if name not in self._files:
            return
        lines = self._unwritten[name]
        lines.append(to_json({"at_s": round(time.time(), 6), **entry}) + "\n")
        if not soon:
            self._write(name)
        elif len(lines) == 1:
            asyncio.get_running_loop().call_soon(self._write, name)

    def _write(self, name: str) -> None:
        file, lines = self._files.get(name), self._unwritten[name]
        if file is None or not lines:
            return
        text = "".join(lines)
        lines.clear()
        try:
            # Whole lines, at once: somebody may follow them.
            file.write(text)
            file.flush()
        except OSError as error:
            del self._files[name]
            with suppress(OSError):
                file.close()
            self._progress.note(f"{name} of the run lacks what follows: {error.strerror}")

    def point(self, text: str) -> None:
        """Passed on."""
        self._progress.point(text)

    def stage(self, text: str) -> None:
        """Written down."""
        self._note_down(JOURNAL, {"stage": text})
        self._progress.stage(text)

    def amount(self, done: int, total: int) -> None:
        """Passed on."""
        self._progress.amount(done, total)

    def phase(self, name: str, timeout_s: float, measured: bool) -> None:
        """Written down."""
        self._note_down(JOURNAL, {"phase": name, "timeout_s": timeout_s, "measured": measured})
        self._progress.phase(name, timeout_s, measured)

    def output(self, host: str, component: str, line: PrintedLine, stderr: bool) -> None:
        """Written down."""
        at = line.at
        entry = {
            "host": host,
            "component": component,
            "stderr": stderr,
            "global_ns": at.middle_ns,
            "within_ns": at.within_ns,
            "text": line.text,
        }
        self._note_down(OUTPUT, entry, soon=True)
        self._progress.output(host, component, line, stderr)

    def component(self, host: str, component: str, status: str) -> None:
        """Written down."""
        entry = {"host": host, "component": component, "status": status}
        self._note_down(JOURNAL, entry, soon=True)
        self._progress.component(host, component, status)

    def note(self, text: str) -> None:
        """Written down."""
        self._note_down(JOURNAL, {"note": text})
        self._progress.note(text)

    def failure(self, text: str) -> None:
        """Written down."""
        self._note_down(JOURNAL, {"failure": text})
        self._progress.failure(text)


def entries(file: Path, offset: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """The entries of a journal's file from ``offset`` on, each with where the next one begins.

    A line that is not finished is left out, and so is one that is damaged. Raises OSError.
    """
    with file.open("rb") as lines:
        lines.seek(offset)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                entry = from_json(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry, offset
