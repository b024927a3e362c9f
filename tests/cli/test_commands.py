"""Each command is the same alone as among all of them, and needs no other one's module."""

import json
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from loopscope.cli.commands import COMMANDS, application


def commands(*words: str) -> dict[str, Any]:
    found: Any = typer.main.get_command(application(words, own_process=False))
    return dict(found.commands)


def described(command: Any) -> Any:
    below = getattr(command, "commands", {})
    params = [(each.name, each.opts, each.help, each.required) for each in command.params]
    more = {name: described(each) for name, each in below.items()}
    return command.help, command.context_settings, params, more


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_the_same_alone(name: str) -> None:
    alone = commands(name, "--help")
    assert list(alone) == [name]
    assert described(alone[name]) == described(commands()[name])


@pytest.mark.parametrize("words", [(), ("--help",), ("rnu",), ("--version", "run"), ("",)])
def test_all_commands_are_there_where_none_is_named(words: tuple[str, ...]) -> None:
    assert list(commands(*words)) == list(COMMANDS)


def test_a_command_imports_no_other_ones_module() -> None:
    code = """
import json, sys
import loopscope.cli
sys.argv = ["loopscope", "status", "--help"]
try:
    loopscope.cli.main()
finally:
    print("\\n" + json.dumps([name for name in sys.modules if name.startswith("loopscope.cli.")]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported = {name.rpartition(".")[2] for name in json.loads(done.stdout.splitlines()[-1])}
    assert {each.module for each in COMMANDS.values()} & imported == {"status"}
