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
        return _adapter().validate_json(to_json(manifest))
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
        place = dotted(first["loc"])
        more = f" (and {len(others)} more)" if others else ""
        raise ValueError(
            f"{place}: {first['msg']}{more}; it was written by another version of loopscope: run "
            "the experiment again"
        ) from error


@cache
def _adapter() -> TypeAdapter[Experiment]:
    return TypeAdapter(Experiment)
