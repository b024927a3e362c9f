"""``loopscope WORDS`` in a copy of a process that has imported the command line already.

Python's start and imports are half of what most commands take, and a test's commands are many.
`Machine.start`, commands of guides and `make soak` start the installed program itself.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Not gRPC, whose threads do not survive in a copy.
_IMPORTED = [
    "loopscope.cli",
    "loopscope.api.checking",
    "loopscope.pipeline",
    "loopscope.cli.results",
    "loopscope.control.causality",
    "loopscope.report.page",
    "loopscope.report.plots",
    "loopscope.pandas_import",
    "duckdb",
]
# What Python reads when it starts.
_OF_START = ("PYTHON", "LANG", "LC_", "LD_")

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(_IMPORTED)


def can_run(environment: Mapping[str, str]) -> bool:
    """Whether a new process would start as this one did."""

    def of_start(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: text for name, text in variables.items() if name.startswith(_OF_START)}

    return of_start(environment) == of_start(os.environ)


def run(
    program: Path,
    words: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    """Runs it to its end, as ``subprocess.run`` does."""
    argv = [str(program), *words]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _processes.Process(
            target=_command, args=(argv, str(directory), dict(environment), str(out), str(err))
        )
        process.start()
        process.join(timeout_s)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(argv, timeout_s)
        process.close()
        texts = [each.read_text(encoding="utf-8") for each in (out, err)]
    return subprocess.CompletedProcess(argv, code, *texts)


def _command(
    argv: list[str], directory: str, environment: dict[str, str], out: str, err: str
) -> None:
    for number, file in ((1, out), (2, err)):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, closefd=False)
    sys.stderr = open(2, "w", encoding=sys.stderr.encoding, buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    tempfile.tempdir = None
    sys.argv = argv
    from loopscope.cli import main

    main()
