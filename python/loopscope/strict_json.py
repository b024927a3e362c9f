"""JSON text as every reader takes it: without NaN and Infinity, for which JSON has no form."""

from __future__ import annotations

import json
import math
from typing import Any

# `json.dumps` makes one for each text.
_ENCODER = json.JSONEncoder(allow_nan=False)


def to_json(value: Any, **layout: Any) -> str:
    """The value as JSON text; `layout` are options of `json.dumps`.

    Raises ValueError where a number is not finite.
    """
    if not layout:
        return _ENCODER.encode(value)
    return json.dumps(value, allow_nan=False, **layout)


def from_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_json_or_null(value: Any, **layout: Any) -> tuple[str, int]:
    """The value as JSON text, null for each number that is not finite, and how many these are."""
    try:
        return to_json(value, **layout), 0
    except ValueError:
        made, count = _with_null(value)
        return to_json(made, **layout), count


def _with_null(value: Any) -> tuple[Any, int]:
    if isinstance(value, float) and not math.isfinite(value):
        return None, 1
    if isinstance(value, dict):
        values, count = _with_null(list(value.values()))
        return dict(zip(value, values, strict=True)), count
    if not isinstance(value, list | tuple):
        return value, 0
    made = [_with_null(each) for each in value]
    return [each for each, _ in made], sum(count for _, count in made)
