"""A run ends when nothing is under way any more, and nothing else is on its links."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from machine import PREFIX_FLAGS, ROOT, Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]
Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

DELAYED = """
trace: {kernel: off}
network: {h1 -> h2: {delay: 20ms}}
expect: [loop.lost == 0, loop.count == 200, loop < 60s after 100ms]
drain: 5s  # a busy machine may hold up the router for longer than the default allows for
"""


def own_loop(machine: Machine, more: str) -> None:
    """The loop of the guide: a receiver that is ended by SIGTERM."""
    guide = ROOT / "docs/guide/own-loop"
    shutil.copy(guide / "loop.c", machine.directory)
    compile_it = "cc -std=c99 -o loop loop.c $(pkg-config --cflags --libs loopscope)"
    subprocess.run(compile_it, shell=True, check=True, cwd=machine.directory, env=PREFIX_FLAGS)
    text = (guide / "own.yaml").read_text().replace(" 5000 1000,", " 5000 200,")
    machine.write("own.yaml", text[: text.index("expect:")] + more)


def test_what_a_slow_link_holds_at_the_end_arrives(machine: Machine, results: Read) -> None:
    own_loop(machine, DELAYED)
    done = machine.command("run", "own.yaml", "--json")
    read = results(done)
    verdicts = {each["text"]: each["verdict"] for each in read["expectations"]}
    assert set(verdicts.values()) == {"PASS"}, verdicts
    assert "waiting 5s for messages on their way" in done.stderr
    (run,) = (machine.directory / "runs/own").glob("2*")
    # No question about an address was on the link: it would have held up the first messages.
    (file,) = (run / "base/1/timeline/link/enqueued").glob("*.parquet")
    sizes = pq.read_table(file)["size"].to_pylist()
    assert 42 not in sizes and sizes.count(46) == 200
    assert json.loads((run / "manifest.json").read_text())["neighbours"] == "permanent"
    # A user who may read the run may read all of it.
    readers = run.stat().st_mode & 0o044
    closed = [path for path in run.rglob("*") if path.stat().st_mode & 0o044 != readers]
    assert not closed, closed
