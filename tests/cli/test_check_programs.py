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


SSH = """\
name: remote
testbed: ssh
hosts: [h1]
send: ["bin/sent"]
components:
  a: {host: h1, run: /opt/only-there --fast}
  b: {host: h1, run: only-in-its-path}
  c: {host: h1, run: ./here}
  d: {host: h1, run: bin/sent}
  e: {host: h1, run: loopscope-host pipe sink}
  f: {host: h1, commands: {run: only-in-its-path once}}
phases: [{name: run, timeout: 1s}]
"""


def test_programs_that_only_hosts_have_are_not_looked_for_here(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("here", "bin/sent", "bin/stays"):
        (tmp_path / name).write_text("#!/bin/sh\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    file = tmp_path / "remote.yaml"
    file.write_text(SSH, "utf-8")
    remote = ["/opt/only-there (a)", "only-in-its-path (b, f)"]
    done = CliRunner().invoke(app, ["check", str(file), "--json"])
    told = json.loads(done.stdout)
    assert (done.exit_code, told["problems"], told["unchecked"]) == (0, [], remote)
    done = CliRunner().invoke(app, ["check", str(file)])
    assert f"not checked, because only the hosts have them: {', '.join(remote)}" in done.stdout
    # What is sent from here has to be here, and can be executed.
    (tmp_path / "here").unlink()
    (tmp_path / "bin/sent").chmod(0o644)
    done = CliRunner().invoke(app, ["check", str(file), "--json"])
    messages = [each["message"] for each in json.loads(done.stdout)["problems"]]
    assert done.exit_code == 2 and len(messages) == 2, messages
    assert "there is no program ./here" in messages[0] and "bin/sent cannot be" in messages[1]


def test_a_program_that_is_here_and_not_sent_is_doubtful(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("stays", "sent"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n", "utf-8")
    file = tmp_path / "remote.yaml"
    file.write_text(SSH.replace("/opt/only-there", "bin/stays").replace("./here", "x"), "utf-8")
    file.write_text(file.read_text("utf-8").replace("bin/sent}", "y}"), "utf-8")
    done = CliRunner().invoke(app, ["check", str(file), "--json"])
    problems = json.loads(done.stdout)["problems"]
    (problem,) = [each for each in problems if "bin/stays" in each["message"]]
    assert (problem["severity"], problem["path"]) == ("warning", "components.a.run")
    assert "is not sent to the hosts: write ./bin/stays, or name it in `send`" in problem["message"]


def test_an_event_that_the_program_does_not_have_is_doubtful(tmp_path: Path) -> None:
    code, (problem,) = check(tmp_path, "sh", "own/pipe:received", "own/pipe:recieved")
    assert (code, problem["severity"], problem["hint"]) == (0, "warning", "pipe:received")
    assert "own runs loopscope-host, which has no pipe:recieved" in problem["message"]
