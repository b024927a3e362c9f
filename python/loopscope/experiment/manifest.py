"""A resolved experiment read back from a run's manifest (`schema/manifest.schema.json`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from loopscope.strict_json import to_json

from .plan import Experiment
from .problem import dotted


def from_manifest(manifest: Mapping[str, Any]) -> Experiment:
    """The experiment of a manifest. Raises ValueError where it is none."""
    try:
        return _adapter().validate_json(to_json(_current(manifest)))
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        place = dotted(first["loc"])
        more = f" (and {len(others)} more)" if others else ""
        raise ValueError(
            f"{place}: {first['msg']}{more}; it was written by another version of loopscope: run "
            "the experiment again"
        ) from error


def prepare() -> None:
    """Makes what reads manifests, which takes some time, before the first one is read."""
    _adapter()


def _current(manifest: Any) -> Any:
    """The manifest with its machines' addresses as lists; older versions have one, or null."""
    if not isinstance(manifest, Mapping):
        return manifest
    machines, points = manifest.get("machines"), manifest.get("points")
    current = dict(manifest)
    if isinstance(machines, Mapping):
        current["machines"] = {name: _machine(machine) for name, machine in machines.items()}
    if isinstance(points, list):
        current["points"] = [
            {**point, "experiment": _current(point.get("experiment"))}
            if isinstance(point, Mapping)
            else point
            for point in points
        ]
    return current


def _machine(machine: Any) -> Any:
    if not isinstance(machine, Mapping):
        return machine
    listed = {}
    for key in ("data", "clock"):
        addresses = machine.get(key)
        if addresses is None or isinstance(addresses, str):
            listed[key] = [addresses] if addresses else []
    return {**machine, **listed}


@cache
def _adapter() -> TypeAdapter[Experiment]:
    return TypeAdapter(Experiment)
