"""What became of the sockets of accelerated programs, as their library has written it down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopscope.strict_json import from_json


@dataclass(frozen=True)
class Explained:
    """The last line of each socket, in the order of their first ones (schema/run-directory.md)."""

    sockets: list[dict[str, Any]]
    unreadable: int
    """Lines that are none, such as one whose process was killed while it wrote."""

    @property
    def accelerated(self) -> int:
        """Sockets whose connection the stack had."""
        return sum(socket.get("accelerated") is True for socket in self.sockets)

    @property
    def open(self) -> int:
        """Sockets that were open when their process was killed: their bytes are not known."""
        return sum(socket.get("open") is True for socket in self.sockets)


def read(path: Path) -> Explained:
    """What has been written so far. Raises OSError."""
    sockets: dict[tuple[Any, Any], dict[str, Any]] = {}
    unreadable = 0
    for line in path.read_bytes().splitlines():
        try:
            socket = from_json(line)
        except ValueError:
            socket = None
        match socket:
            case {"process": int(process), "socket": int(number)}:
                sockets[process, number] = socket
            case _:
                unreadable += 1
    return Explained([*sockets.values()], unreadable)
