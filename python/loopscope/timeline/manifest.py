"""Manifest of a run and of the points of its sweep (`schema/run-directory.md`)."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopscope.files import write_whole
from loopscope.strict_json import from_json, to_json
from loopscope.timeline.table_error import NothingMeasuredError, RunError

if TYPE_CHECKING:
    from loopscope.experiment import Experiment

JUDGED_BY = "judged-by.json"
"""In a run's directory: the experiment by which it is judged, where that is another one."""
KILLED = "killed"
"""Status of a run whose controller was killed before it could note one."""


def read_manifest(path: Path) -> dict[str, Any]:
    """The run's manifest; empty where it has none.

    Where it is judged by another file than it was measured with, `experiment` is as that says and
    `judged_by` names the file.
    """
    file, judged = path / "manifest.json", path / JUDGED_BY
    if not file.exists():
        return {}
    manifest = read_json(file)
    if judged.exists():
        other = read_json(judged)
        manifest |= {"experiment": other["experiment"], "judged_by": other["file"]}
    if manifest.get("status") == "running" and not goes_on(path):
        manifest["status"] = KILLED
    return manifest


def read_specification(path: Path, manifest: Mapping[str, Any]) -> Experiment | None:
    """The experiment that a run's manifest describes; None where it describes none.

    Raises RunError where what it says is no experiment.
    """
    from loopscope.experiment import from_manifest

    given = manifest.get("experiment")
    try:
        return None if given is None else from_manifest(given)
    except (KeyError, ValueError) as error:
        raise RunError(f"{path / 'manifest.json'}: experiment: {error}") from error


def described(path: Path, manifest: Mapping[str, Any]) -> Experiment:
    """The experiment that a run's manifest describes. Raises RunError where there is none."""
    experiment = read_specification(path, manifest)
    if experiment is None:
        raise RunError(f"{path} has no manifest.json that describes its experiment")
    return experiment


def write_judged_by(path: Path, file: Path, experiment: Mapping[str, Any]) -> None:
    """Keeps in a run what it is judged by instead of what it was measured with."""
    document = {"version": 1, "file": str(file), "experiment": experiment}
    write_whole(path / JUDGED_BY, to_json(document, indent=2) + "\n")


def check_measured(path: Path) -> None:
    """Raises NothingMeasuredError where a run without files of hosts did not end well.

    The text says why it ended.
    """
    manifest = read_manifest(path)
    status = manifest.get("status")
    endings = {KILLED: "its controller was killed", "interrupted": "it was interrupted"}
    if status not in ("failed", *endings):
        return
    points = [each["name"] for each in manifest.get("experiment", {}).get("points", ())]
    errors = {name: read_point(path, manifest, name).get("error") for name in points}
    # Older runs have not written down why they failed.
    why = (
        endings.get(status)
        or manifest.get("error")
        or "\n".join(f"point {name}: {error}" for name, error in errors.items() if error)
        or "its manifest does not say why"
    )
    raise NothingMeasuredError(f"{path}: the run ended before anything was measured: {why}")


def run_id(path: Path, manifest: Mapping[str, Any]) -> str:
    """Id of a run: the one in its manifest, or else the directory's own name."""
    return str(manifest.get("run") or path.resolve().name)


def read_point(path: Path, manifest: Mapping[str, Any], point: str) -> dict[str, Any]:
    """The manifest of a point of the run's sweep; empty where it was not reached."""
    file = path / point / "point.json"
    if not file.exists():
        # Until there was a file for each point the manifest had them all.
        said: dict[str, Any] = manifest.get("points", {}).get(point, {})
        return said
    said = read_json(file)
    del said["version"]
    if said.get("status") == "running" and manifest.get("status") != "running":
        said["status"] = KILLED
    return said


def goes_on(path: Path) -> bool:
    """Whether somebody still writes into a run.

    Its controller, or agents that outlive it for as long as it takes to end the programs.
    """
    return any(map(_is_held, (path, *_repeats(path))))


def read_json(path: Path) -> dict[str, Any]:
    """An object that a file holds. Raises RunError."""
    try:
        document = from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise RunError(f"{path}: expected an object")
    return document


def _repeats(path: Path) -> Iterator[Path]:
    return (folder for folder in path.glob("*/[0-9]*") if folder.is_dir())


def _is_held(folder: Path) -> bool:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Else a file system without locks, where nobody can hold any.
        return error.errno == errno.EWOULDBLOCK
    finally:
        os.close(handle)
    return False
