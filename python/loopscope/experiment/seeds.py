"""Seeds of what is drawn by chance, for each repeat of an experiment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

DEFAULT: Final = 1
"""Seed of a load program that is given none (the default of its option ``--seed``)."""
_DRAWS: Final = (
    ("pace", "send"),
    ("pattern", "produce"),
    ("ettcp", "send"),
    ("burn",),
    ("stall",),
)
"""The programs of loopscope-host that have the setting ``seed``."""


def takes_default(argv: Sequence[str]) -> bool:
    """Whether a command is a load program of loopscope's that gives no seed.

    Only those count that draw by chance; the seed would be in the command line.
    """
    if any(word == "--seed" or word.startswith("--seed=") for word in argv):
        return False
    programs = (i for i, word in enumerate(argv) if word.rsplit("/", 1)[-1] == "loopscope-host")
    return any(
        tuple(argv[i + 1 : i + 1 + len(words)]) == words for i in programs for words in _DRAWS
    )


def of_repeat(seed: int, repeat: int) -> int:
    """The seed of a repeat (from 1) that follows from the file's.

    The first has the file's own, the others a hash of it below 2⁶³.
    """
    if repeat == 1:
        return seed
    digest = hashlib.sha256(f"{seed} repeat {repeat}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def is_given(config: Mapping[str, Any]) -> bool:
    """Whether a component's configuration has a seed."""
    return type(config.get("seed")) is int
