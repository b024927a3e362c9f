"""Traces of other tools from a run's hosts, recorded by components or added afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopscope import _native
from loopscope.control.failure import RunFailed
from loopscope.experiment import Experiment
from loopscope.strict_json import from_json, to_json

IMPORT_VERSION = 1

ForeignSource = dict[str, Any]
"""Foreign trace as ``_native.build_run`` takes it."""


class CannotAdd(Exception):
    """A trace cannot be added to a run. The text says why."""


def sources(experiment: Experiment, repeat: Path) -> list[ForeignSource]:
    """The foreign traces of a repeat, those of its components first."""
    found = [
        _source(
            repeat, each.host, each.name, f"components/{each.name}/files/{trace.path}", trace.clock
        )
        for each in experiment.components
        for trace in each.traces
    ]
    for folder in sorted((repeat / "hosts").glob("*/imports/*")):
        file = folder / "import.json"
        if folder.name.startswith("."):
            continue
        try:
            given = from_json(file.read_text(encoding="utf-8"))
            if given["version"] != IMPORT_VERSION:
                raise ValueError(f"version {given['version']} is not known")
            name = f"imports/{folder.name}/{given['trace']}"
            found.append(_source(repeat, folder.parts[-3], folder.name, name, given["clock"]))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise RunFailed(f"{file}: does not describe an import: {error}") from None
    return found


def add(repeat: Path, trace: Path, host: str, name: str, clock: str | None) -> Path:
    """Copies a trace into a repeat, and returns its folder there.

    Tables are made of it with the others. Raises CannotAdd, and OSError where it cannot be copied.
    """
    hosts = sorted(each.name for each in (repeat / "hosts").iterdir() if each.is_dir())
    if host not in hosts:
        raise CannotAdd(f"the run has no host {host!r}; it has: {', '.join(hosts)}")
    folder = repeat / "hosts" / host / "imports" / name
    if folder.exists():
        raise CannotAdd(
            f"{folder} is there already: give this one another name with --name, or remove that"
        )
    kept = "trace" if trace.is_dir() else trace.name
    source = _source(repeat, host, name, f"imports/{name}/{kept}", clock)
    try:
        _native.check_foreign(repeat, source, trace)
    except ValueError as error:
        raise CannotAdd(str(error)) from None
    partial = folder.with_name(f".{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        if trace.is_dir():
            shutil.copytree(trace, partial / kept)
        else:
            shutil.copy2(trace, partial / kept)
        about = {
            "version": IMPORT_VERSION,
            "trace": kept,
            "from": str(trace.resolve()),
            "clock": clock,
        }
        (partial / "import.json").write_text(to_json(about, indent=2) + "\n", encoding="utf-8")
        partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _source(repeat: Path, host: str, process: str, file: str, clock: str | None) -> ForeignSource:
    directory = repeat / "hosts" / host
    boot = _read(directory / "env.json").get("kernel", {}).get("boot_id")
    return {
        "host": host,
        "process": process,
        "file": file,
        "clock": clock,
        "boot": boot.replace("-", "") if boot else None,
        "processes": dict(_processes(directory)),
    }


def _processes(host: Path) -> Iterator[tuple[int, str]]:
    """Number and component of the processes that are known."""
    for process in _read(host / "loss.json").get("processes", ()):
        yield process["pid"], process["process"]
    for file in sorted(host.glob("components/*/exit.json")):
        yield _read(file)["pid"], file.parent.name


def _read(file: Path) -> dict[str, Any]:
    """A document that the agent wrote; empty where it came to none."""
    try:
        document = from_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunFailed(f"{file}: {error}") from None
    return document if isinstance(document, dict) else {}
