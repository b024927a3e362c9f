"""A component's folder with entries of every kind, of which only some are kept."""

from __future__ import annotations

import os
import socket
from contextlib import chdir
from pathlib import Path

KEPT = {"café", "data", "data2", "sub", "sub/kept", *("/".join("x" * n) for n in range(1, 29))}
"""Paths in the folder that are kept; ``data2`` is another name of the file ``data``."""
UNPRINTABLE = "its name has characters that cannot be printed"
LEFT_OUT = {
    "latest": "a symbolic link",
    "sub/up": "a symbolic link",
    "pipe": "a named pipe",
    "sock": "a socket",
    "a\\nb": UNPRINTABLE,
    "caf\\xe9": UNPRINTABLE,
    "tab\\t/": UNPRINTABLE,
    "/".join("x" * 29) + "/": "more than 31 folders deep",
}
"""The other entries by their escaped paths, and why they are left out."""


def make(files: Path, depth: int = 40) -> None:
    """Makes the folder at ``hosts/HOST/components/NAME/files``, with folders so deep in it."""
    (files / "sub").mkdir(parents=True)
    (files / "tab\t").mkdir()
    for name in ("data", "sub/kept", "a\nb", "tab\t/inside", "café"):
        (files / name).write_text("1")
    (files / "data2").hardlink_to(files / "data")
    (files / "latest").symlink_to("data")
    (files / "sub/up").symlink_to("/")
    os.mkfifo(files / "pipe")
    Path(os.fsdecode(bytes(files) + b"/caf\xe9")).write_text("1")
    with chdir(files), socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
    with chdir(files):
        for _ in range(depth):
            os.mkdir("x")
            os.chdir("x")
        Path("deepest").write_text("1")


def paths(files: Path) -> set[str]:
    """The paths of all that is in a folder."""
    return {str(path.relative_to(files)) for path in files.rglob("*")}
