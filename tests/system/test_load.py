"""docs/guide/load.md, command by command, and load as a part of experiments."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/load.md").read_text()

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]


def blocks(language: str) -> list[str]:
    """The page's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def run_guide(home: Path, environment: dict[str, str]) -> str:
    """What the guide's commands say."""
    (home / ".venv").symlink_to(Path(sys.executable).parents[1])
    script = "set -eu\n" + "".join(blocks("sh"))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=home,
        env={**environment, "VIRTUAL_ENV": "", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_guides_commands(machine: Machine) -> None:
    if subprocess.run(["findmnt", "-t", "tmpfs", "-T", machine.directory]).returncode == 0:
        pytest.skip(f"SKIPPED LOUDLY: {machine.directory} is a tmpfs, and burn --disk needs a disk")
    said = run_guide(machine.directory, machine.environment)
    assert "receiver: all 67108864 B of content compared, all right" in said
    received = json.loads((machine.directory / "received.json").read_text())
    assert received["total"]["arrivals"]["packets"] > 0
    assert said.count("burning\n") == 4
    assert re.search(r"^disk: .* MB/s written, .* fsync", said, re.MULTILINE)
    assert re.search(r"^compile: \d+ processes", said, re.MULTILINE)
    assert "stall: 3 of 5.000 ms, 0 skipped, by an ordinary thread" in said
    # Nothing else is left of files that had no names.
    left = {path.name for path in machine.directory.iterdir()}
    assert left <= {".venv", "state", "received.txt", "received.json"}


EXPERIMENT = """name: loaded
testbed: local
hosts: [h1, h2]
components:
  source: {{host: h1, run: loopscope-host pipe source, with: {{to: sink, count: 200, period: 5ms}}}}
  sink:   {{host: h2, run: loopscope-host pipe sink}}
  early:  {{host: h1, run: loopscope-host burn --cpu-share 5%, ready: {{line: burning}}}}
  udp:    {{host: h2, run: loopscope-host ettcp send,
            with: {{to: udp-end, protocol: udp, rate: 2Mbit}}}}
  udp-end: {{host: h1, run: loopscope-host ettcp receive, with: {{protocol: udp}}}}
{components}
phases:
{phases}
trace: {{user: ["pipe:*", "stall:*", "ettcp:second", "burn:*"], kernel: off}}
measure:
  paths:
    loop: {{key: id, events: [source/pipe:sent, sink/pipe:received]}}
expect:
  - loop.count == 200
  - loop.lost == 0
"""


@pytest.mark.usefixtures("root")
def test_load_goes_on_behind_the_phases(machine: Machine, results: Read) -> None:
    (shown,) = blocks("yaml")
    components, phases = shown.split("phases:\n")
    # As the guide shows it, with a loop of some seconds.
    text = EXPERIMENT.format(components=components.removeprefix("components:\n"), phases=phases)
    done = machine.command("run", machine.write("loaded.yaml", text), "--json")
    assert done.stdout, done.stderr
    read = results(done)
    assert (done.returncode, read["verdict"]) == (0, "PASS"), done.stderr
    repeat = machine.directory / "runs/loaded/latest/base/1"

    def result(host: str, component: str) -> dict[str, Any]:
        folder = repeat / "hosts" / host / "components" / component / "files"
        parsed: dict[str, Any] = json.loads((folder / "result.json").read_text())
        return parsed

    # Two hundred messages, 5 ms apart, take a second. Each load was there for most of it, and not
    # only until its phase was done.
    for host, name in [("h1", "load"), ("h1", "early")]:
        assert result(host, name)["wall_s"] > 0.5
    sent, received = result("h1", "bulk"), result("h2", "bulk-end")
    assert sent["total"]["real_s"] > 0.5
    assert sent["receiver"]["bytes"] == received["total"]["bytes"] == sent["total"]["bytes"]
    assert received["total"]["wrong_at_byte"] is None
    arrivals = result("h1", "udp-end")["total"]["arrivals"]
    assert arrivals["packets"] + arrivals["lost"] == result("h2", "udp")["total"]["calls"]
    # What was planted is on the time line.
    stalls = result("h2", "cause")
    assert stalls["policy"] == "fifo"
    taken = [stall for stall in stalls["stalls"] if stall["taken"]]
    table = pq.read_table(repeat / "timeline/stall/stall/part-0.parquet")
    assert table["id"].to_pylist() == [stall["id"] for stall in taken]
    assert len(taken) >= 1
    durations = table["duration"].to_pylist()
    for duration, stall in zip(durations, taken, strict=True):
        assert 0 < duration <= stall["taken"]["end_ns"] - stall["taken"]["begin_ns"]
    # The last one may be cut off by the end of the run.
    assert all(duration > 4_900_000 for duration in durations[:-1])
