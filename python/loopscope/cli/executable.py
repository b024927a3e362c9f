"""What executing a program means: the file that it is, and whether LD_PRELOAD works in it."""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NOT_EXECUTABLE = 126
NOT_FOUND = 127
"""Exit codes of shells for a program that cannot be executed, and for one that is not there."""

_SCRIPTS = 5
"""Scripts whose interpreters are scripts, at most: the kernel follows as many."""
_FIRST_LINE = 256
"""Bytes of a script's first line that the kernel reads."""
_INTERPRETER, _ELF_64 = 3, 2
"""PT_INTERP and ELFCLASS64 of elf(5)."""
_MACHINES = {"x86_64": 62, "aarch64": 183}
"""Numbers of kinds of processors in elf(5)."""


class ExecutableError(Exception):
    """A program that cannot be executed, with the exit code that a shell has for that."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Obstacle:
    """Why a library for LD_PRELOAD is not loaded into a program."""

    file: Path
    """What is executed: the program's file, or the interpreter of a script."""
    why: str
    breaks: bool = False
    """Whether the program does not start with it."""


def find(program: str, folders: Sequence[str] | None = None) -> Path:
    """The file that a shell would execute for a program's name or path.

    ``folders`` are those of PATH.

    Raises:
        ExecutableError: there is none, or it may not be executed.
    """
    if "/" in program:
        path = Path(program)
        if not path.exists():
            raise ExecutableError(f"{program}: there is no such file", NOT_FOUND)
        if not _is_executable(path):
            is_folder = path.is_dir()
            what = "is a directory" if is_folder else f"is not executable; try: chmod +x {program}"
            raise ExecutableError(f"{program} {what}", NOT_EXECUTABLE)
        return path
    folders = os.get_exec_path() if folders is None else folders
    # An empty name of a folder is the current one.
    places = [Path(folder or ".") / program for folder in folders]
    for place in places:
        if program and _is_executable(place):
            return place
    for place in places:
        if program and place.is_file():
            raise ExecutableError(f"{place} is not executable", NOT_EXECUTABLE)
    raise ExecutableError(f"{program}: there is no such program in PATH", NOT_FOUND)


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def cannot_execute(path: Path, error: OSError) -> ExecutableError:
    """What is said where the kernel does not execute a file that is there."""
    if error.errno == errno.ENOEXEC:
        why = "is neither a program of this machine nor a script that begins with #!"
        return ExecutableError(f"{path} {why}", NOT_EXECUTABLE)
    if error.errno == errno.ENOENT:
        asked = next(_interpreters(path), None) or "the loader that it asks for"
        return ExecutableError(f"{path}: {asked} is not there", NOT_FOUND)
    return ExecutableError(f"{path}: {error.strerror}", NOT_EXECUTABLE)


def obstacle(path: Path) -> Obstacle | None:
    """Why LD_PRELOAD does not work in the program that runs when a file is executed.

    A script is followed to its interpreter, also by ``/usr/bin/env``. None where nothing is known
    that stands against it; the file may be one that cannot be read.
    """
    *_, last = path, *_interpreters(path)
    # Any program may be the interpreter, and a set-uid script's bits count for nothing.
    try:
        return _rights(last) or _elf(last)
    except OSError:
        return None


def _interpreters(path: Path) -> Iterator[Path]:
    """The interpreter of a script, the interpreter of that one, and so on."""
    for _ in range(_SCRIPTS):
        try:
            with path.open("rb") as file:
                line = file.read(_FIRST_LINE).partition(b"\n")[0]
        except OSError:
            return
        if not line.startswith(b"#!"):
            return
        words = os.fsdecode(line[2:]).split()
        if not words:
            return
        path = Path(words[0])
        yield path
        if path.name == "env" and (named := _named_to_env(words[1:])):
            try:
                path = find(named)
            except ExecutableError:
                return
            yield path


def _named_to_env(words: list[str]) -> str | None:
    """The program that env(1) is asked for."""
    for word in words:
        if word in ("-S", "--split-string") or ("=" in word and not word.startswith("-")):
            continue
        word = word.removeprefix("-S").removeprefix("--split-string=")
        return None if word.startswith("-") else word
    return None


def _rights(path: Path) -> Obstacle | None:
    """A program that gets other rights than those of its user: the loader ignores LD_PRELOAD."""
    found = path.stat()
    mode = found.st_mode
    ignored = "so the loader takes no library from LD_PRELOAD"
    if mode & stat.S_ISUID and found.st_uid != os.getuid():
        return Obstacle(path, f"has the rights of its owner (set-uid), {ignored}")
    if mode & stat.S_ISGID and mode & stat.S_IXGRP and found.st_gid != os.getgid():
        return Obstacle(path, f"has the rights of its group (set-gid), {ignored}")
    # What root gets by them it has already.
    if os.getuid() != 0 and "security.capability" in os.listxattr(path):
        return Obstacle(path, f"has capabilities of its own, {ignored}")
    return None


def _elf(path: Path) -> Obstacle | None:
    with path.open("rb") as file:
        start = file.read(64)
        if len(start) < 64 or not start.startswith(b"\x7fELF"):
            return None
        order = "<" if start[5] == 1 else ">"
        (machine,) = struct.unpack_from(f"{order}H", start, 18)
        own = _MACHINES.get(os.uname().machine, machine)
        if start[4] != _ELF_64 or machine != own or (order == "<") != (sys.byteorder == "little"):
            why = "is for another kind of processor than the library, or has 32 bits"
            return Obstacle(path, why)
        (at,) = struct.unpack_from(f"{order}Q", start, 32)
        size, count = struct.unpack_from(f"{order}HH", start, 54)
        for number in range(count):
            file.seek(at + number * size)
            header = file.read(56)
            if len(header) < 56:
                return None
            (kind,) = struct.unpack_from(f"{order}I", header)
            if kind != _INTERPRETER:
                continue
            offset, length = (struct.unpack_from(f"{order}Q", header, at)[0] for at in (8, 32))
            file.seek(offset)
            loader = os.fsdecode(file.read(min(length, 4096)).rstrip(b"\0"))
            if Path(loader).name.startswith("ld-linux"):
                return None
            why = f"has another C library than glibc ({loader})"
            return Obstacle(path, why, breaks=True)
    return Obstacle(path, "is statically linked, so no library can be loaded into it")
