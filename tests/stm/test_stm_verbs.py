"""`loopscope stm`: list, top, remove and serve."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopscope import stm
from loopscope.cli import app

LOOPSCOPE = Path(sys.executable).parent / "loopscope"


def run(*words: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["stm", *map(str, words)])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def test_create_makes_a_channel_that_programs_find(socket: Path) -> None:
    words = ["create", "frames", "--item", "5kB", "--capacity", "3", "--full", "drop"]
    words += ["--lifespan", "100ms", "--socket", socket]
    assert run(*words) == "channel frames: 3 items of up to 5kB\n"
    assert run(*words) == "channel frames: 3 items of up to 5kB\n"
    channel = stm.Service(socket).open("frames", puts=True)
    assert (channel.capacity, channel.item_bytes) == (3, 5056)
    with channel.output() as output:
        for time in range(5):
            output.put(time, bytes(5000), timeout=0)
    # Another lifespan is another channel.
    told = run(*words[:-4], "--socket", socket, code=2)
    assert "lifespan_us" in told
    for wrong, said in {
        "--item=5": "--item: ",
        "--full=wait": "full is to be 'refuse' or 'drop', and not 'wait'",
        "--orphans=lose": "orphans are to be 'keep' or 'discard', and not 'lose'",
        "--lifespan=2h": "lifespan is to be a microsecond to an hour",
        "--item=5GB": "",
        "--capacity=0": "",
    }.items():
        assert said in run("create", "more", "--item=1kB", wrong, "--socket", socket, code=2)


def test_the_channels_are_listed(socket: Path) -> None:
    assert run("list", "--socket", socket) == "there are no channels\n"
    assert json.loads(run("list", "--socket", socket, "--json")) == []
    channel = stm.Service(socket).create("frames", item_bytes=5000, capacity=3, full="drop")
    out, into = channel.output(), channel.input(lossy=True)
    for number in range(4):
        out.put(number, b"x" * 1200)
    held = into.get(1)
    into.consume_until(1)
    table = run("list", "--socket", socket)
    own = f"{Path('/proc/self/comm').read_text().strip()} ({os.getpid()})"
    names, _, row = table.splitlines()
    assert re.split(r"  +", names.strip()) == [
        "channel", "items", "bytes", "lost", "gets", "puts", "oldest item",
    ]  # fmt: skip
    cells = re.split(r"  +", row.strip())
    assert cells[:6] == ["frames", "3 of 3", "3.6 kB", "1", own, own]
    assert re.fullmatch(rf"time 1, put [\d.]+ \w?s ago, held by {re.escape(own)}", cells[6])
    held.release()
    (listed,) = json.loads(run("list", "--socket", socket, "--json"))
    assert (listed["items"], listed["put"], listed["collected"], listed["dropped"]) == (2, 4, 2, 1)
    assert listed["oldest"]["wanted_by"] == [os.getpid()] and listed["oldest"]["time"] == 2
    assert (
        run("remove", "frames", "--socket", socket) == "the service has forgotten channel frames\n"
    )
    assert "there is no channel frames" in run("remove", "frames", "--socket", socket, code=2)


def test_top_shows_rates(socket: Path) -> None:
    channel = stm.Service(socket).create("scans", item_bytes=8, orphans="discard")
    command = [LOOPSCOPE, "stm", "top", "--socket", socket, "--every", "200ms", "--json"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top,
        channel.output() as out,
    ):
        assert top.stdout is not None
        (first,) = json.loads(top.stdout.readline())
        assert first["rates"] is None
        for number in range(50):
            out.put(number, b"")
        # The first looks may be of before the puts.
        looks = (json.loads(line)[0]["rates"] for line in top.stdout)
        rates = next(rates for rates in looks if rates["put"])
        assert 0 < rates["put"] <= 50 / 0.2 and rates["collected"] == rates["put"]
        top.send_signal(signal.SIGINT)
        assert top.wait(timeout=30) == 130
    looks = run("top", "--socket", socket, "--every", "10ms", "--count", "3").split("\n\n")
    assert len(looks) == 3
    assert "put/s" in looks[0] and "put/s" in looks[2] and re.search(r" 0\.0 ", looks[2])
    assert "--every: " in run("top", "--socket", socket, "--every", "3 apples", code=2)
    assert "a time between" in run("top", "--socket", socket, "--every", "0s", code=2)


def test_where_no_service_is(tmp_path: Path, socket: Path) -> None:
    nobody = tmp_path / "nobody"
    assert "start one by `loopscope stm serve`" in run("list", "--socket", nobody, code=2)
    again = subprocess.run(
        [LOOPSCOPE, "stm", "serve", "--socket", socket], capture_output=True, text=True, timeout=60
    )
    assert again.returncode != 0 and "is at" in again.stderr and "already" in again.stderr
    assert run("list", "--socket", socket) == "there are no channels\n"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_service_ends_and_leaves_nothing(tmp_path: Path, ending: signal.Signals) -> None:
    environment = os.environ | {"LOOPSCOPE_STM": str(tmp_path / "own/socket")}
    command = [LOOPSCOPE, "stm", "serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == f"serving channels at {tmp_path}/own/socket\n"
        channel = stm.Service(tmp_path / "own/socket").create("frames", item_bytes=8)
        service.send_signal(ending)
        assert service.wait(timeout=30) == 0
    assert list(tmp_path.iterdir()) == []
    # Those that use a channel go on.
    channel.output().put(1, b"one")
    assert bytes(channel.input().get(1)) == b"one"
