"""Machines as people name them on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopscope.cli import exits
from loopscope.cli.experiment_file import load_or_end

if TYPE_CHECKING:
    from loopscope.experiment import Machine

# As the rule of `address` in experiment files has it.
DESTINATION = re.compile(r"[\w.:%@\[\]][\w.:%@\[\]-]*", re.ASCII)


def machines(named: Sequence[str], option: str) -> dict[str, Machine]:
    """The machines that ``option`` names, files and hosts, by the names of hosts."""
    from loopscope.experiment import Machine

    found: dict[str, Machine] = {}
    for name in named:
        if Path(name).is_file():
            experiment = load_or_end(Path(name), [])
            if experiment.testbed != "ssh":
                problem = f"its testbed is {experiment.testbed}, and only ssh has machines"
                exits.end(exits.USAGE, f"{option} {name}: {problem}")
            found.update({host: experiment.machines[host] for host in experiment.hosts})
        elif DESTINATION.fullmatch(name):
            found[name] = Machine(name)
        else:
            exits.end(exits.USAGE, f"{option} {name}: this is no file and no name of a machine")
    return found
