"""Whether an experiment's programs can be run and have the events that it names.

Programs of testbed ssh are looked up on its hosts. Here only those can be looked at that come from
here: loopscope's own, and files that are sent, which begin with `./` or match `send`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath

from loopscope.experiment import Component, Experiment, Problem, files_to_send, place_in
from loopscope.experiment.problem import Severity, dotted, nearest
from loopscope.testbed import TestbedError, host_binary

OWN = "loopscope-host"
Keys = tuple[str | int, ...]


def problems_of_programs(file: Path, experiment: Experiment) -> list[Problem]:
    """Programs that are not there or cannot be executed, and events that a program does not have.

    The latter are warnings; of scripts and their interpreters nothing is known, nor of programs
    that only a host has.
    """
    folder = file.absolute().parent
    remote = _remote_words(folder, experiment)
    programs = {
        each.name: None if each.argv[0] in remote else _find(each, each.argv[0], folder)
        for each in experiment.components
    }
    found = []
    for each in experiment.components:
        program = programs[each.name]
        if isinstance(program, str):
            found.append(_problem(file, ("components", each.name, "run"), program))
        for phase, words in each.commands.items():
            wrapped = None if words[0] in remote else _find(each, words[0], folder)
            if isinstance(wrapped, str):
                found.append(_problem(file, ("components", each.name, "commands", phase), wrapped))
            # Nobody knows which of its programs records an event.
            programs.pop(each.name, None)
    for word, names in remote.items():
        if "/" in word and not PurePosixPath(word).is_absolute() and (folder / word).is_file():
            what = f"{word} is not sent to the hosts: write ./{word}, or name it in `send`"
            found.append(_problem(file, ("components", names[0], "run"), what, None, "warning"))
    for component, entity, place in _events(experiment):
        runs = programs.get(component)
        known = _entities(runs) if isinstance(runs, Path) else frozenset[str]()
        if known and entity not in known:
            what = f"{component} runs {Path(str(runs)).name}, which has no {entity}"
            found.append(_problem(file, place, what, nearest(entity, known), "warning"))
    return list(dict.fromkeys(found))


def looked_up_on_hosts(file: Path, experiment: Experiment) -> list[str]:
    """The programs that only the hosts have, each with its components."""
    words = _remote_words(file.absolute().parent, experiment)
    return [f"{word} ({', '.join(names)})" for word, names in words.items()]


def _remote_words(folder: Path, experiment: Experiment) -> dict[str, list[str]]:
    """Programs that are looked up on hosts, each with the names of its components."""
    found: dict[str, list[str]] = {}
    if experiment.testbed != "ssh":
        return found
    # A file that is only checked has no folder yet.
    placed = replace(experiment, folder=str(folder))
    sent = {path.as_posix() for path in files_to_send(placed)}
    for each in experiment.components:
        words = [each.argv[0], *(words[0] for words in each.commands.values())]
        for word in dict.fromkeys(words):
            path = PurePosixPath(word)
            is_sent = "/" in word and path.as_posix() in sent
            is_to_be_sent = word.startswith("./") and ".." not in path.parts
            if word != OWN and not is_sent and not is_to_be_sent:
                found.setdefault(word, []).append(each.name)
    return found


def _find(component: Component, name: str, folder: Path) -> Path | str:
    """A program of a component, or what is wrong with it."""
    if name == OWN:
        try:
            return host_binary()
        except TestbedError as error:
            return str(error)
    if "/" in name:
        program = folder / name
        if not program.is_file():
            return f"there is no program {name}: {program} does not exist"
        if not os.access(program, os.X_OK):
            return f"{name} cannot be executed: chmod +x it, or name its interpreter"
        return program
    path = component.env.get("PATH", os.environ.get("PATH", os.defpath))
    own = _own()
    there = shutil.which(name, path=path if own is None else f"{path}:{own.parent}")
    if there is None:
        return f"there is no program {name} in PATH"
    return Path(there)


def _events(experiment: Experiment) -> Iterator[tuple[str, str, Keys]]:
    """Component, entity and place of each event that the experiment names."""
    for path in experiment.paths:
        for event in path.events:
            yield event.component, event.entity, ("measure", "paths", path.name)
    for number, expectation in enumerate(experiment.expectations):
        if expectation.event is not None:
            yield expectation.event.component, expectation.event.entity, ("expect", number)
    for value in experiment.values:
        if value.component is not None:
            yield value.component, value.entity, ("measure", "values", value.name)


@cache
def _entities(program: Path) -> frozenset[str]:
    """Empty where the program cannot be read, or records nothing by itself."""
    if (own := _own()) is None:
        return frozenset()
    command: Sequence[str | Path] = [own, "entities", "--json", "--", program.resolve()]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        return frozenset()
    return frozenset(f"{site['group']}:{site['name']}" for site in json.loads(done.stdout))


def _own() -> Path | None:
    """`loopscope-host`; None where it is not installed."""
    try:
        return host_binary()
    except TestbedError:
        return None


def _problem(
    file: Path,
    place: Keys,
    message: str,
    hint: str | None = None,
    severity: Severity = "error",
) -> Problem:
    return Problem(str(file), *place_in(file, place), dotted(place), message, hint, severity)
