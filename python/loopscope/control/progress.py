"""Messages of a run while it goes on."""

from __future__ import annotations

from typing import Protocol

from loopscope.control.instant import PrintedLine


class Progress(Protocol):
    """Receives a run's progress. Every method returns at once."""

    def point(self, text: str) -> None:
        """A point of a sweep begins, and what is told next is about it; empty: the last is done."""

    def stage(self, text: str) -> None:
        """A new stage of the run begins; ``text`` is for people."""

    def amount(self, done: int, total: int) -> None:
        """Takes note of the bytes that are done, of those that the stage reads.

        It is called some ten times a second. What it raises ends the stage.
        """

    def phase(self, name: str, timeout_s: float, measured: bool) -> None:
        """A phase of the experiment begins."""

    def output(self, host: str, component: str, line: PrintedLine, stderr: bool) -> None:
        """A component printed a line."""

    def component(self, host: str, component: str, status: str) -> None:
        """What a component does now, for people."""

    def note(self, text: str) -> None:
        """Something that a person should know, though the run goes on."""

    def failure(self, text: str) -> None:
        """The run has failed just now; what was measured is still to be collected."""


class Silent:
    """Progress that nobody sees."""

    def point(self, text: str) -> None:
        """Ignored."""

    def stage(self, text: str) -> None:
        """Ignored."""

    def amount(self, done: int, total: int) -> None:
        """Ignored."""

    def phase(self, name: str, timeout_s: float, measured: bool) -> None:
        """Ignored."""

    def output(self, host: str, component: str, line: PrintedLine, stderr: bool) -> None:
        """Ignored."""

    def component(self, host: str, component: str, status: str) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""

    def failure(self, text: str) -> None:
        """Ignored."""
