"""A program's launcher: a script of its name that runs it with the accelerating library."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from loopscope.cli.executable import find, obstacle

MARK = "# Made by `loopscope accelerate --install`"
"""A launcher's second line begins so. Nothing else is replaced or removed."""


class LauncherError(Exception):
    """A launcher that cannot be made or removed. The text says what to do."""


def default_folder() -> Path:
    """Where a user's own programs are."""
    return Path.home() / ".local" / "bin"


def install(name: str, folder: Path, library: Path, variables: Mapping[str, str]) -> Path:
    """Makes the launcher of a program, and returns the program's path.

    ``variables`` are those by which the library knows what is asked for.

    Raises:
        LauncherError: the program takes no library, or a file of another kind is in the way.
        ExecutableError: there is no such program.
        OSError: the file cannot be written.
    """
    folder = Path(os.path.abspath(folder))
    launcher = _launcher(name, folder)
    others = [each for each in os.get_exec_path() if Path(os.path.abspath(each)) != folder]
    program = Path(os.path.abspath(find(name, others)))
    if program == launcher:
        raise LauncherError(f"{program} would be its own launcher; name another folder by --in")
    if (found := obstacle(program)) is not None:
        raise LauncherError(f"{program} cannot be accelerated: {found.file} {found.why}")
    _check_is_ours(launcher)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "#!/bin/sh",
        f"{MARK}; remove it by: loopscope accelerate --remove {shlex.quote(name)}",
        f"library={shlex.quote(str(library))}",
        'if [ -r "$library" ]; then',
        '    export LD_PRELOAD="$library${LD_PRELOAD:+:$LD_PRELOAD}"',
        *(f"    export {key}={shlex.quote(value)}" for key, value in variables.items()),
        "fi",
        f'exec {shlex.quote(str(program))} "$@"',
    ]
    draft = launcher.with_name(f".{launcher.name}.unfinished")
    draft.write_bytes(os.fsencode("\n".join(lines) + "\n"))
    draft.chmod(0o755)
    draft.replace(launcher)
    return program


def remove(name: str, folder: Path) -> Path:
    """Removes the launcher of a program, and returns its path.

    Raises:
        LauncherError: there is none.
        OSError: the file cannot be removed.
    """
    launcher = _launcher(name, Path(os.path.abspath(folder)))
    if not launcher.exists():
        raise LauncherError(f"there is no launcher {launcher}")
    _check_is_ours(launcher)
    launcher.unlink()
    return launcher


def comes_first(name: str, folder: Path) -> bool:
    """Whether the launcher is what a shell finds by the program's name."""
    launcher = _launcher(name, Path(os.path.abspath(folder)))
    return os.path.abspath(find(launcher.name)) == str(launcher)


def _launcher(name: str, folder: Path) -> Path:
    return folder / Path(name).name


def _check_is_ours(launcher: Path) -> None:
    if not os.path.lexists(launcher):
        return
    is_file = launcher.is_file() and not launcher.is_symlink()
    start = launcher.read_bytes()[:1000] if is_file else b""
    if not start.partition(b"\n")[2].startswith(MARK.encode()):
        raise LauncherError(
            f"{launcher} is there and was not made by --install; name another folder by --in"
        )
