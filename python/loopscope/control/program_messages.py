"""The messages of programs that record nothing themselves, told from the kernel's events.

``trace.messages`` of the experiment says what is a message; its events get tables as those have
that programs record.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from loopscope.control.found_messages import FINDERS, READS, SENDS, Content, Found
from loopscope.control.told_events import Kernel, Stamp, kernels, write_events
from loopscope.experiment import Experiment
from loopscope.experiment.event_values import TOLD
from loopscope.experiment.plan import ProgramMessages

_SENT, _RECEIVED = TOLD["messages"]


def write_messages(
    experiment: Experiment, repeat: Path, made: Path, out: Path, summary: dict[str, Any]
) -> None:
    """Writes the tables of a repeat's ``trace.messages`` into ``out``.

    ``made`` is the folder with its time line. How many there are, and may be missing on each
    kernel, goes into the summary as ``told``, what is wrong to its problems. Raises OSError
    where a table cannot be written.
    """
    if not experiment.messages:
        return
    there = kernels(experiment, repeat, made)
    to_port = [(each.protocol, each.port) for each in experiment.messages if not each.from_port]
    for messages in experiment.messages:
        recorded = [kernel for kernel in there if kernel.has(messages.protocol)]
        # The kernel has the number of the kind to a port where a message is of two kinds.
        elsewhere = [port for protocol, port in to_port if protocol == messages.protocol]
        tables = [kernel.tables for kernel in recorded]
        found = FINDERS[messages.protocol](tables, messages, elsewhere)
        told = _Told(messages, recorded, found, [])
        told.check()
        rows = {_SENT: found.sent, _RECEIVED: found.read}
        events = {name: told.write(out, name, of_event) for name, of_event in rows.items()}
        summary["told"][messages.name] = events
        summary["problems"] += told.problems


@dataclass
class _Told:
    """What was found of some messages."""

    messages: ProgramMessages
    kernels: list[Kernel]
    """Those of which it was recorded."""
    found: Found
    problems: list[dict[str, str]]

    def check(self) -> None:
        """Forgets what was read where events of that were lost; notes what is not known."""
        found, protocol = self.found, self.messages.protocol
        for kernel in self.kernels:
            if lost := _lost_reads(kernel, protocol):
                # A connection's reads may be on another kernel than its calls.
                here = {kernel.name} if protocol == "udp" else {each.name for each in self.kernels}
                kept = [each for each in found.read if each[0].kernel not in here]
                found.unknown += len(found.read) - len(kept)
                found.read = kept
                what = f"{lost} of the kernel's events were lost, so it is not known which "
                self._problem(kernel, what + "messages programs read")
        if found.unknown:
            what = f"of {found.unknown} messages it is not known who read them"
            self._problem(self.kernels[0], what)
        for kernel in self.kernels:
            if kernel.name in found.lost:
                what = "where they begin on a connection is not known from some point on: the "
                self._problem(kernel, what + "length of one was written in two calls, or is none")

    def write(self, out: Path, name: str, seen: list[tuple[Stamp, Content]]) -> dict[str, Any]:
        """Writes the table of an event; how many there are, and may be missing on each kernel."""
        rows: list[dict[str, Any]] = []
        missing: dict[str, int | None] = {}
        for kernel in self.kernels:
            of_kernel = [each for each in seen if each[0].kernel == kernel.name]
            added, short, together, others = _rows(of_kernel, self.messages, kernel.threads)
            rows += added
            numberless = short + together
            if short:
                self._problem(kernel, f"{short} that were {name} are too short to have a number")
            if together:
                what = f"the numbers of {together} that were {name} are not known: a call sent "
                self._problem(kernel, what + "several together (UDP_SEGMENT)")
            # The others are of programs that are none of the run's, unless it was lost who started
            # them.
            others = others if kernel.threads_lost() else 0
            most = numberless + others + self._unseen(kernel, name)
            missing[kernel.name] = None if self.found.lost or kernel.losses.uncounted else most
        write_events(out, self.messages.name, name, rows, bytes=pa.uint32())
        return {"events": len(rows), "missing": missing}

    def _unseen(self, kernel: Kernel, name: str) -> int:
        """The most messages on a kernel of which no event tells."""
        protocol = self.messages.protocol
        if name == _SENT:
            return _lost_sends(kernel, protocol)
        # What was sent on a connection tells what was read.
        senders = self.kernels if protocol == "tcp" else []
        lost = _lost_reads(kernel, protocol) + sum(_lost_sends(each, protocol) for each in senders)
        return lost + self.found.unknown

    def _problem(self, kernel: Kernel, what: str) -> None:
        place = {"host": kernel.name, "file": f"messages {self.messages.name}"}
        self.problems.append({**place, "what": what})


def _rows(
    seen: list[tuple[Stamp, Content]],
    messages: ProgramMessages,
    threads: dict[int, tuple[str, str]],
) -> tuple[list[dict[str, Any]], int, int, int]:
    """The rows of the events of some threads' components.

    And how many messages of these are too short to have a number, how many have an unknown one
    because a call sent several, and how many messages are of other threads.
    """
    number = messages.number or {"width": 8, "order": "little"}
    mine = [(*each, *threads[each[0].tid]) for each in seen if each[0].tid in threads]
    rows = [
        {
            **stamp._asdict(),
            "host": host,
            "process": component,
            "id": _number(content.word, number["width"], number["order"]),
            "bytes": content.bytes,
        }
        for stamp, content, host, component in mine
        if content.word_bytes >= number["width"] and content.messages == 1
    ]
    contents = [content for _, content, *_ in mine]
    together = sum(each.messages for each in contents if each.messages > 1)
    short = sum(each.messages == 1 for each in contents) - len(rows)
    others = sum(content.messages for _, content in seen) - short - together - len(rows)
    return rows, short, together, others


def _number(word: int, width: int, order: Literal["little", "big"]) -> int:
    """The number in the first bytes of a word; one of eight bytes is a signed one."""
    return int.from_bytes(word.to_bytes(8, "little")[:width], order, signed=width == 8)


def _lost_sends(kernel: Kernel, protocol: str) -> int:
    """The most events that were lost of those that tell what programs send."""
    return kernel.losses.of(protocol, *SENDS)


def _lost_reads(kernel: Kernel, protocol: str) -> int:
    """The most events that were lost of those that tell what programs read."""
    return sum(kernel.losses.of(kind, *events) for kind, events in READS[protocol].items())
