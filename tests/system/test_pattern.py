"""Message patterns in real namespaces: the guide's commands, and a run whose counts must agree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/message-tables.md").read_text()
FOLDER = ROOT / "docs/guide/message-tables"
TYPES = ("state", "image", "position")
RECEIVERS = {
    "state": ("control",),
    "image": ("control", "logger"),
    "position": ("control", "logger"),
}

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]


def files(repeat: Path, host: str, component: str) -> dict[str, Any]:
    """What a program says of itself, by type."""
    folder = repeat / "hosts" / host / "components" / component / "files"
    told = json.loads((folder / "result.json").read_text())
    return {each["type"]: each for each in told["types"]}


@pytest.mark.usefixtures("root")
def test_every_account_of_a_run_says_the_same(machine: Machine, results: Read) -> None:
    for file in FOLDER.iterdir():
        shutil.copy(file, machine.directory)
    done = machine.command("run", "motor.yaml", "--json", "-p", "duration=1s", "-p", "scale=2")
    assert done.stdout, done.stderr
    read = results(done)
    assert read["verdict"] in ("PASS", "FAIL"), read["problems"]
    assert not read["problems"]
    repeat = machine.directory / "runs/motor/latest/base/1"
    robot = files(repeat, "h1", "robot")
    said = {"control": files(repeat, "h2", "control"), "logger": files(repeat, "h3", "logger")}
    table = pq.read_table(repeat / "timeline/pattern/received/part-0.parquet").to_pylist()
    recorded = Counter((TYPES[row["message_type"]], row["process"]) for row in table)

    rows = read["patterns"]["traffic"]["rows"]
    assert [(row["type"], row["receiver"]) for row in rows] == [
        (name, receiver) for name in TYPES for receiver in RECEIVERS[name]
    ]
    for row in rows:
        name, receiver = row["type"], row["receiver"]
        # Two producers, each with the deadlines of a second.
        assert row["sent"] == robot[name]["sent"] == 2 * 1_000_000_000 / row["period_ns"]
        assert row["lost"] == said[receiver][name]["lost"] == 0
        assert row["count"] == said[receiver][name]["received"] == recorded[name, receiver]
        assert said[receiver][name]["duplicates"] == 0
        # From the intended time, which no sender is before.
        assert row["max_ns"] >= robot[name]["largest_late_ns"] - row["err_ns"]
        assert row["min_ns"] > -row["err_ns"]
        in_time = row["max_ns"] + row["err_ns"] <= row["target_ns"]
        assert (row["verdict"] == "PASS") == in_time


@pytest.mark.usefixtures("root")
def test_a_link_that_loses_packets_fails_the_receiver_behind_it(
    machine: Machine, results: Read
) -> None:
    for file in FOLDER.iterdir():
        shutil.copy(file, machine.directory)
    text = (machine.directory / "motor.yaml").read_text()
    machine.write("motor.yaml", text + "network:\n  h1 -> h3: {loss: 10%}\n")
    done = machine.command("run", "motor.yaml", "--json")
    assert done.returncode == 1, done.stderr
    read = results(done)
    rows = {(row["type"], row["receiver"]): row for row in read["patterns"]["traffic"]["rows"]}
    # There are 100 datagrams of two fragments each; TCP sends again what was lost.
    behind = rows.pop(("position", "logger"))
    assert behind["lost"] > 0
    assert (behind["verdict"], behind["count"]) == ("FAIL", behind["sent"] - behind["lost"])
    assert f"{behind['lost']} lost" in behind["reason"]
    assert [row["lost"] for row in rows.values()] == [0] * 4
    repeat = machine.directory / "runs/motor/latest/base/1"
    assert files(repeat, "h3", "logger")["position"]["lost"] == behind["lost"]


def test_the_guides_commands(machine: Machine) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    if os.geteuid() != 0:
        # Without root there are no namespaces: what is played on loopback is left.
        blocks = [blocks[0].replace("loopscope run", ": loopscope run"), blocks[1]]
    home = machine.directory
    shutil.copytree(FOLDER, home / "docs/guide/message-tables")
    done = subprocess.run(
        ["bash", "-c", "set -eu\n" + "".join(blocks)],
        cwd=home,
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # The page's table: the header and what is in its first two rows.
    table = re.search(r"^name,.*?(?=^```)", PAGE, re.MULTILINE | re.DOTALL)
    assert table
    assert (FOLDER / "motor.csv").read_text().endswith(table[0])
    sent = re.search(
        r"^position +udp-multicast +1500 B +20 ms +1 +(\d+)", done.stdout, re.MULTILINE
    )
    assert sent
    received = re.findall(
        r"^position +udp-multicast +1500 B +20 ms +1 +(\d+) +0 +0$", done.stdout, re.MULTILINE
    )
    assert received == [sent[1]] * 2 == ["100"] * 2
