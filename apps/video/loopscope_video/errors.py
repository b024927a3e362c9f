"""The errors that end a program of the loop, and what they say of names that are not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SettingsError(Exception):
    """A setting is unknown or has a value that it cannot have."""


class VideoError(Exception):
    """A program of the loop cannot go on; the text says why."""


def nearest(name: str, there: Iterable[str]) -> str:
    """Text that says which name may have been meant, or which ones there are."""
    names = list(there)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
