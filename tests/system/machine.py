"""The programs under test, with a ledger of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopscope.cli import app

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
# To build a program against the library that is tested.
PREFIX_FLAGS = {**os.environ, "PKG_CONFIG_PATH": str(BIN.parent / "lib" / "pkgconfig")}


@cache
def served() -> list[str | Path]:
    """The words before those of a command that is a fork of one process (`command_server.py`)."""
    program = Path(__file__).parent / "command_server.py"
    path = Path(tempfile.mkdtemp(prefix="lstest-")) / "socket"
    # It ends with its standard input, which this process has.
    server = subprocess.Popen(
        [BIN / "python", program, "server", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    _servers.append(server)
    assert server.stdout is not None
    assert server.stdout.readline() == b"serves\n"
    return [BIN / "python", "-I", "-S", program, "client", path]


_servers: list[subprocess.Popen[bytes]] = []


def preloaded(name: str, folder: Path) -> Path:
    """Builds tests/c/NAME.c as a library for LD_PRELOAD in a folder."""
    library, source = folder / f"{name}.so", ROOT / "tests" / "c" / f"{name}.c"
    strict = ("-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["cc", *strict, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def without_kernel(experiment: str) -> str:
    """The text of an experiment that records its programs alone, for tests that are about these."""
    trace = r"(?m)^(trace: \{user: \[[^]]*\])(?:, kernel: \[[^]]*\])?\}$"
    text, changed = re.subn(trace, r"\1, kernel: off}", experiment)
    assert changed == 1, experiment
    return text


class Machine:
    """The programs under test, with a ledger of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "LOOPSCOPE_STATE_DIR": str(directory / "state")}
        self.environment["PATH"] = f"{BIN}:{self.environment['PATH']}"

    def on_desk(self, *words: str | Path) -> list[str | Path]:
        """The words of a command that is run where ``loopscope`` runs."""
        return [*words]

    def command(
        self, *words: str | Path, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Runs ``loopscope WORDS`` to its end, as a fork of a process that has imported it."""
        return subprocess.run(
            self.on_desk(*served(), *words),
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def ask(self, verb: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Answers of ``loopscope VERB WORDS --json`` about a finished run, from this process.

        To start the program takes longer than most answers. What it prints for a terminal is of
        `command`.
        """
        given = [verb, *map(str, words), "--json"]
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(self.directory)
            done = CliRunner().invoke(app, given)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return subprocess.CompletedProcess(given, done.exit_code, done.stdout, done.stderr)

    def start(self, *words: str | Path, forks: bool = False) -> subprocess.Popen[str]:
        """Starts ``loopscope WORDS`` in a process group of its own, as a shell does.

        With ``forks`` as `command` does, and signals are passed on to it.
        """
        return subprocess.Popen(
            self.on_desk(*(served() if forks else [BIN / "loopscope"]), *words),
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def guide(
        self, *blocks: str, timeout_s: float = 300, forks: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Runs a guide's blocks of commands in the test's directory; each has to succeed.

        ``.venv`` there has to be that of the programs under test. With ``forks`` the commands
        ``loopscope`` are as `command` has them: not where the guide looks for their processes.
        """
        function = ""
        if forks:
            client = f'{shlex.join(map(str, served()))} "$@"'
            # In the background it is a process of its own, whose number the shell knows.
            function = f"loopscope() {{ [ $BASHPID = $$ ] || exec {client}; {client}; }}\n"
        (self.directory / ".venv").symlink_to(BIN.parent)
        done = subprocess.run(
            ["bash", "-c", "set -eu\n" + function + "".join(blocks)],
            cwd=self.directory,
            env={**self.environment, "VIRTUAL_ENV": "", "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def write(self, name: str, text: str) -> Path:
        """A file in the test's directory."""
        path = self.directory / name
        path.write_text(text)
        return path

    def tokens(self) -> list[str]:
        """What the names of everything begin with that this machine's runs make."""
        runs = (path.parent for path in self.directory.glob("runs/*/*/manifest.json"))
        return [run.name.rpartition("-")[2] for run in runs if not run.is_symlink()]

    def namespaces(self) -> list[str]:
        """The network namespaces of this machine's runs that exist now."""
        own = tuple(f"ls-{token}" for token in self.tokens())
        directory = Path("/run/netns")
        every = directory.iterdir() if directory.exists() else ()
        return sorted(path.name for path in every if path.name.startswith(own))

    def cgroups(self) -> list[Path]:
        """The cgroups of this machine's runs that exist now."""
        places = [
            line.split()[4]
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if " - cgroup2 " in line
        ]
        own = [f"ls-{token}" for token in self.tokens()]
        # Groups may go while they are looked for, which os.walk passes over.
        found = [
            Path(at, each) for place in places for at, below, _ in os.walk(place) for each in below
        ]
        return [path for path in found if path.name.startswith(tuple(own))]

    def leftovers(self) -> list[str]:
        """What runs of this ledger left: namespaces, processes, ledgers."""
        left = self.namespaces()
        for token in self.tokens():
            for place in (tempfile.gettempdir(), "/dev/shm"):
                left += map(str, Path(place).glob(f"*{token}*"))
        ledgers = self.directory / "state" / "ledger"
        runs = {path.stem for path in ledgers.glob("*.jsonl")} if ledgers.exists() else set()
        left += [f"ledger {run}" for run in sorted(runs)]
        left += [f"process {pid}: {command}" for pid, command in self.processes().items()]
        left += [f"cgroup {path}" for path in self.cgroups()]
        return left

    def guardians(self) -> list[int]:
        """Process ids of what would clean up if an agent of this ledger were killed."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:2] == [b"guardian"] and str(self.directory).encode() in words[2]:
                found.append(int(process.name))
        return found

    def processes(self) -> dict[int, str]:
        """Process id to command of everything that runs with this ledger."""
        found = {}
        mark = f"LOOPSCOPE_STATE_DIR={self.directory / 'state'}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environment = (process / "environ").read_bytes()
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
            if mark in environment.split(b"\0") and command:
                found[int(process.name)] = command
        return found
