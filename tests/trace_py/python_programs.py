"""Python programs that use ``loopscope_trace``, recorded by the installed ``loopscope record``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import loopscope_trace
import pyarrow.parquet as pq
import pytest

BIN = Path(sys.executable).parent


class Recorded:
    """What a program left: its output, its trace, its account of losses."""

    def __init__(self, directory: Path, stdout: str) -> None:
        self.directory = directory
        self.stdout = stdout
        self.loss = json.loads((directory / "loss.json").read_text())

    def rows(self, entity: str) -> list[dict[str, Any]]:
        """The entity's table, in the order of its instants."""
        path = self.directory / "timeline" / entity.replace(":", "/") / "part-0.parquet"
        return pq.read_table(path).to_pylist() if path.exists() else []

    def column(self, entity: str, name: str) -> list[Any]:
        return [row[name] for row in self.rows(entity)]

    def lines(self) -> list[str]:
        """The trace as babeltrace2 prints it."""
        if shutil.which("babeltrace2") is None:
            pytest.skip("SKIPPED LOUDLY: needs babeltrace2")
        done = subprocess.run(
            ["babeltrace2", self.directory / "trace"], capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    def counts(self) -> Counter[str]:
        """Records by entity, as babeltrace2 counts them."""
        found = (re.search(r" (\S+:\S+): \{", line) for line in self.lines())
        return Counter(match[1] for match in found if match)

    def sites(self) -> dict[str, tuple[str, int]]:
        """File and line of each entity's first class in the metadata."""
        metadata = (self.directory / "trace" / "metadata").read_text(errors="replace")
        pattern = r'event \{\s*name = "([^"]+)";[^}]*?model\.emf\.uri = "file:(.*?):(\d+)";'
        found: dict[str, tuple[str, int]] = {}
        for name, file, line in re.findall(pattern, metadata):
            found.setdefault(name, (file, int(line)))
        return found


class Programs:
    """Writes Python programs and runs them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.site = directory / "site"
        # The package alone, for interpreters that have nothing else of ours.
        shutil.copytree(Path(loopscope_trace.__file__).parent, self.site / "loopscope_trace")

    def write(self, source: str) -> Path:
        path = self.directory / "program.py"
        path.write_text(textwrap.dedent(source))
        return path

    def run(
        self,
        source: str,
        *,
        python: str = sys.executable,
        runtime: str | None = "",
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs it unrecorded; ``runtime`` is LOOPSCOPE_RUNTIME_DIR, None leaves it unset."""
        environment = {**os.environ, "PYTHONPATH": str(self.site)}
        environment.pop("LOOPSCOPE_RUNTIME_DIR", None)
        if runtime is not None:
            environment["LOOPSCOPE_RUNTIME_DIR"] = runtime
        done = subprocess.run(
            [python, "-W", "error", self.write(source)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def record(self, source: str, *, python: str = sys.executable) -> Recorded:
        """Runs it under ``loopscope record``; it has to end well, and nothing may be dropped."""
        out = self.directory / "out"
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.site),
            "LOOPSCOPE_STATE_DIR": str(self.directory / "state"),
        }
        command = [BIN / "loopscope", "record", "-o", out, "--", python, self.write(source)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        recorded = Recorded(out, done.stdout)
        assert recorded.loss["dropped"] == 0, recorded.loss
        assert recorded.loss["emitted"] == recorded.loss["recorded"]
        return recorded
