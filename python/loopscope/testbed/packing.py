"""The command that packs a folder on a host, and what tar says of entries that it left out."""

from __future__ import annotations

import asyncio
import codecs
import re
import shlex

from loopscope.provider.left_out import SOCKET, LeftOut, escaped

# The lines of tar that are kept for people.
KEPT_LINES = 3
# GNU tar escapes names so. Others print them as they are.
_ESCAPES = re.compile(r"(?:\\(?:[0-7]{3}|[abfnrtv\\]))+")
_LEFT_OUT = re.compile(
    r"tar: (?P<name>.+): (?:Cannot \w+: (?P<why>Permission denied)|socket ignored)"
)
_LAST = "tar: Exiting with failure status due to previous errors"
# A component's own folder. All else in a host's folder are loopscope's own files.
_OF_COMPONENT = re.compile(r"components/[^/]+/files/.")


def command(folder: str, name: str) -> str:
    """A shell's command that prints an archive of ``folder/name``.

    GNU tar packs each name of a file that has several as a file of its own, as the local testbed
    keeps it.
    """
    return (
        "export LC_ALL=C; case $(tar --version 2>&1) in "
        "*GNU*) set -- --hard-dereference --quoting-style=escape;; *) set --;; esac; "
        f'exec tar "$@" -C {shlex.quote(folder)} -cf - {shlex.quote(name)}'
    )


class Messages:
    """What tar printed as errors while it packed the folder of host ``name``.

    ``left_out`` are the sockets and the files of components that it could not read, ``unread``
    loopscope's own files that it could not read, and ``others`` the last of all other lines.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.left_out = LeftOut()
        self.unread = LeftOut()
        self.others: list[str] = []
        self._failed = False

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Takes all lines of a stream."""
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line longer than the stream's limit
                self._other("a line that is too long")
                continue
            if not line:
                return
            self.take(line.decode(errors="surrogateescape").rstrip("\n"))

    def take(self, line: str) -> None:
        """Takes a line."""
        match = _LEFT_OUT.fullmatch(line)
        path = _plain(match["name"]) if match else ""
        if match is None or path.partition("/")[0] != self._name:
            if line != _LAST and line.strip():
                self._failed = self._failed or line.startswith("tar: ")
                self._other(escaped(line.strip())[:200])
            return
        path = path.partition("/")[2]
        if match["why"] is None:
            self.left_out.add(path, SOCKET)
        else:
            account = self.left_out if _OF_COMPONENT.match(path) else self.unread
            account.add(path, f"cannot be read: {match['why']}")

    def _other(self, text: str) -> None:
        self.others = [*self.others, text][-KEPT_LINES:]

    @property
    def explain_failure(self) -> bool:
        """Whether tar failed only because there are files that it could not read."""
        return not self._failed and (self.left_out.count > 0 or self.unread.count > 0)

    def unread_text(self, folder: str) -> str:
        """What of loopscope's own files in ``folder`` could not be read, and what to do."""
        path, why = next(iter(self.unread.entries.items()))
        more = f" and {self.unread.count - 1} more" if self.unread.count > 1 else ""
        place = f"{folder}/{self._name}"
        return (
            f"{f'{place}/{path}'.rstrip('/')}{more} {why}; to make it readable: "
            f"chmod -R u+rX {shlex.quote(place)}"
        )


def _plain(name: str) -> str:
    """A name as it is in the folder, of its escaped form."""

    def plain(match: re.Match[str]) -> str:
        found = codecs.escape_decode(match[0].encode())[0]
        assert isinstance(found, bytes)
        return found.decode(errors="surrogateescape")

    return _ESCAPES.sub(plain, name)
