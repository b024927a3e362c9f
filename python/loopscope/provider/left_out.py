"""Entries of a host's folder that a run does not keep, such as links, each with the reason."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

# Parts of a path that begins with the host's name, and bytes of it.
DEEPEST = 32
LONGEST = 2048
# Entries that are named in a note, and those that are named in the manifest. Characters of a path
# in either.
SHOWN = 5
NAMED = 100
SHORT = 100
LONG = 1000

UNPRINTABLE = "its name has characters that cannot be printed"
TOO_LONG = "its path is too long"
LINK = "a symbolic link"
FIFO = "a named pipe"
DEVICE = "a device"
SOCKET = "a socket"
OTHER = "neither a file nor a folder"
_KINDS = {
    stat.S_IFLNK: LINK,
    stat.S_IFIFO: FIFO,
    stat.S_IFCHR: DEVICE,
    stat.S_IFBLK: DEVICE,
    stat.S_IFSOCK: SOCKET,
}


@dataclass
class LeftOut:
    """The entries of a host that are not kept.

    ``entries`` has the first `NAMED` of them by their escaped paths in the host's folder, each with
    the reason. The path of a folder ends with ``/``; it is one entry with all that is in it.
    """

    count: int = 0
    entries: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, why: str, folder: bool = False) -> None:
        """Counts an entry, and names it where there is room."""
        self.count += 1
        if len(self.entries) < NAMED:
            self.entries[_shortened(escaped(path) + ("/" if folder else ""), LONG)] = why

    def add_all(self, others: LeftOut) -> None:
        """Counts the entries of another account."""
        self.count += others.count
        for path, why in others.entries.items():
            if len(self.entries) < NAMED:
                self.entries[path] = why

    def note(self, host: str) -> str:
        """A line for people."""
        first = list(self.entries.items())[:SHOWN]
        shown = [f"{_shortened(path, SHORT)} ({why})" for path, why in first]
        more = f" and {self.count - len(shown)} more" if self.count > len(shown) else ""
        what = "1 entry is" if self.count == 1 else f"{self.count} entries are"
        return f"host {host}: {what} left out: {', '.join(shown)}{more}"

    def to_manifest(self) -> dict[str, object]:
        """The value of a host in the manifest's `left_out` (schema/run-directory.md)."""
        entries = [{"path": path, "why": why} for path, why in self.entries.items()]
        return {"count": self.count, "entries": entries}


def why_of_path(parts: Sequence[str]) -> str | None:
    """Why an entry is left out for its path, which begins with the host's name; None: it is not."""
    if not all(part.isprintable() for part in parts):
        return UNPRINTABLE
    if len(parts) > DEEPEST:
        return f"more than {DEEPEST - 1} folders deep"
    if len("/".join(parts).encode()) > LONGEST:
        return TOO_LONG
    return None


def why_of_kind(mode: int) -> str | None:
    """Why an entry is left out for its kind (``st_mode``); None for files and folders."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return _KINDS.get(stat.S_IFMT(mode), OTHER)


def escaped(path: str) -> str:
    r"""A path on one line, with bytes that are no UTF-8 (``surrogateescape``) as ``\xNN``."""
    return "".join(map(_escaped, path))


def _shortened(path: str, length: int) -> str:
    if len(path) <= length:
        return path
    half = length // 2
    return f"{path[:half]}…{path[-half:]}"


def _escaped(each: str) -> str:
    if each.isprintable():
        return each
    if "\udc80" <= each <= "\udcff":
        return f"\\x{ord(each) - 0xDC00:02x}"
    return each.encode("unicode_escape").decode()
