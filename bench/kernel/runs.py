"""`loopscope run` for these figures, with a limit of its time."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from subprocess import PIPE, Popen, run
from tempfile import TemporaryFile
from typing import Any

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
LIMIT_S = 180


def results_of(
    experiment: Path,
    *options: str,
    measured: AbstractContextManager[Any] | None = None,
    within: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The results of an experiment, which is run into `runs` next to its file.

    `measured` is entered when its measured phase begins, and left when that has ended; `within`
    are words that run a command. Raises RuntimeError where there are none.
    """
    words = [*bounded(LIMIT_S), *within, str(LOOPSCOPE), "run", str(experiment), *options]
    words += ["--runs", str(experiment.parent / "runs"), "--json"]
    said = []
    with (
        TemporaryFile("w+") as output,
        ExitStack() as phase,
        Popen(
            words,
            stdout=output,
            stderr=PIPE,
            text=True,
            cwd=experiment.parent,
            env={**os.environ, **(environment or {})},
        ) as process,
    ):
        assert process.stderr is not None
        for line in process.stderr:
            phase.close()
            said.append(line)
            if measured is not None and line.rstrip().endswith("(measured)"):
                phase.enter_context(measured)
        process.wait()
        output.seek(0)
        text = output.read()
    if not text:
        raise RuntimeError(f"loopscope run: exit code {process.returncode}: {''.join(said)}")
    results: dict[str, Any] = json.loads(text)
    return results


def bounded(seconds: float) -> list[str]:
    """Words that run a command and end it after so long."""
    return ["timeout", "--foreground", "--kill-after=30", f"{seconds:g}"]


def recorded(results: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's results say of the kernel's events. Raises RuntimeError where there are none."""
    kernel: dict[str, Any] = results["kernel"]
    if kernel["unrecorded"]:
        raise RuntimeError(str(kernel["unrecorded"]))
    return kernel


def compiled(source: str, folder: Path) -> Path:
    """A program of this folder's."""
    program = folder / source.removesuffix(".c")
    run(["cc", "-O2", Path(__file__).parent / source, "-o", program], check=True)
    return program
