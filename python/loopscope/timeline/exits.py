"""Endings of a run's components, from their `exit.json`."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopscope.timeline.manifest import read_json


@dataclass(frozen=True)
class Exit:
    """One component's end; `code` or `signal` is None."""

    repeat: int
    host: str
    component: str
    code: int | None
    signal: int | None
    asked: str | None
    """The last that it was asked to end by: `end`, `SIGTERM`, `SIGKILL`. None: nothing."""
    pid: int | None = None
    """The number of its first process; None: it is not known."""

    @property
    def how(self) -> str:
        """`exit status 3` or `killed by SIGSEGV (11)`."""
        if self.signal is None:
            return f"exit status {self.code}"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:
            name = "signal"
        return f"killed by {name} ({self.signal})"

    @property
    def by_what_was_asked(self) -> bool:
        """Whether the signal that it was sent ended it."""
        return self.signal is not None and self.asked in self.how.replace("(", " ").split()


def read_exit(file: Path, repeat: int) -> Exit:
    """Raises RunError."""
    said: dict[str, Any] = read_json(file)
    component = file.parent
    asked = said.get("asked", "SIGTERM" if said.get("stopped_by_us") else None)
    host = component.parent.parent.name
    how = said.get("code"), said.get("signal")
    return Exit(repeat, host, component.name, *how, asked, said.get("pid"))
