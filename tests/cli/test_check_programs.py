"""`check` looks at the programs: whether they are there, can be run, and have the events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopscope.cli import app

FILE = """\
name: programs
hosts: [h1]
components:
  a: {host: h1, run: PROGRAM}
  own: {host: h1, run: loopscope-host pipe sink}
phases: [{name: run, timeout: 1s}]
measure:
  paths: {loop: {events: [a/pipe:sent, own/pipe:received]}}
"""


def check(folder: Path, program: str, *replaced: str) -> tuple[int, list[dict[str, str]]]:
    file = folder / "programs.yaml"
    file.write_text(FILE.replace("PROGRAM", program).replace(*(replaced or ("", ""))), "utf-8")
    done = CliRunner().invoke(app, ["check", str(file), "--json"])
    return done.exit_code, json.loads(done.stdout)["problems"]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("./lop sensor", "there is no program ./lop"),
        ("./loop sensor", "./loop cannot be executed: chmod +x it, or name its interpreter"),
        ("no-such-program-anywhere", "there is no program no-such-program-anywhere in PATH"),
        (".", "there is no program . in PATH"),
    ],
)
def test_a_program_that_cannot_be_run_is_a_mistake(
    tmp_path: Path, program: str, message: str
) -> None:
    (tmp_path / "loop").write_text("#!/bin/sh\n", "utf-8")
    code, (problem,) = check(tmp_path, program)
    assert code == 2 and message in problem["message"], problem
    assert (problem["path"], problem["line"]) == ("components.a.run", 4)


def test_programs_that_can_be_run_are_good(tmp_path: Path) -> None:
    script = tmp_path / "loop"
    script.write_text("#!/bin/sh\n", "utf-8")
    script.chmod(0o755)
    # What a script, an interpreter or another program starts, nobody can read in it.
    for program in ("./loop", str(script), "sh -c true", "loopscope-host pipe source"):
        assert check(tmp_path, program) == (0, [])


def test_an_event_that_the_program_does_not_have_is_doubtful(tmp_path: Path) -> None:
    code, (problem,) = check(tmp_path, "sh", "own/pipe:received", "own/pipe:recieved")
    assert (code, problem["severity"], problem["hint"]) == (0, "warning", "pipe:received")
    assert "own runs loopscope-host, which has no pipe:recieved" in problem["message"]
