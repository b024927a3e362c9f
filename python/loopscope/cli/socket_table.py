"""What became of the sockets of an accelerated program, as its library has written it down."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopscope import socket_lines
from loopscope.socket_lines import Explained
from loopscope.strict_json import to_json

_MOST = 200
"""Rows of the table, at most."""
_NAMES = (
    *("process", "protocol", "this end", "other end", "accelerated"),
    *("read by it", "written by it", "why the kernel has it"),
)
_RIGHT = (True, False, False, False, False, True, True, False)
"""Whether a column is aligned to the right."""


class Lines:
    """The file into which the library writes a line for each socket."""

    def __enter__(self) -> Lines:
        self._folder = Path(tempfile.mkdtemp(prefix="loopscope-explain-"))
        # A program that becomes another user, as servers do, goes on writing to it. Others cannot
        # know its name.
        self.path = self._folder / secrets.token_hex(16)
        self.path.touch()
        os.chmod(self.path, 0o622)
        os.chmod(self._folder, 0o711)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def read(self) -> Explained:
        """What has been written so far."""
        return socket_lines.read(self.path)


def json_of(explained: Explained, code: int) -> str:
    """The list as JSON, with the program's exit code."""
    return to_json(
        {"exit": code, "sockets": explained.sockets, "unreadable_lines": explained.unreadable}
    )


def table_of(explained: Explained, ended_by: str | None) -> Iterator[str]:
    """The lines of the list for a terminal.

    ``ended_by`` is the signal that has ended the program.
    """
    from loopscope.cli.text_table import text_table

    sockets = explained.sockets
    yield f"accelerated: {explained.accelerated} of {len(sockets)} sockets"
    if sockets:
        rows = [_row(socket) for socket in sockets[:_MOST]]
        yield from text_table(_NAMES, _RIGHT, rows)
    if len(sockets) > _MOST:
        yield f"… and {len(sockets) - _MOST} more; --json lists all"
    if explained.unreadable:
        yield f"{explained.unreadable} lines of the library cannot be read"
    if ended_by is not None:
        yield f"the program was ended by {ended_by}; sockets that were open then: {explained.open}"
    elif not sockets:
        yield "the program has made no socket of TCP or UDP, or the library was not loaded into it"


def _row(socket: dict[str, Any]) -> list[object]:
    accelerated = socket.get("accelerated") is True
    return [
        socket.get("process"),
        socket.get("protocol"),
        socket.get("local"),
        socket.get("peer"),
        "yes" if accelerated else "no",
        _share(socket.get("read_from_stack"), socket.get("received")),
        _share(socket.get("written_to_stack"), socket.get("written")),
        socket.get("why"),
    ]


def _share(stack: Any, everything: Any) -> str:
    """Bytes by the stack, of those in all, if the kernel counts them. Empty if there were none."""
    from loopscope.analysis.quantity_text import quantity

    if not isinstance(stack, int) or not (everything or stack):
        return ""
    if not isinstance(everything, int):
        return quantity(stack, "B")
    return f"{quantity(stack, 'B')} of {quantity(everything, 'B')}"
