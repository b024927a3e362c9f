"""Single messages, updates and intervals that an expectation is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from loopscope.analysis.document import UNLESS_EMPTY, Document


@dataclass(frozen=True)
class CaseCounts(Document):
    """Numbers of cases of each kind.

    They hold at the maximum errors given and with the trace's dropped events.
    """

    met: int
    """At least so many were."""
    missed: int
    """At least so many were."""
    undecided: int
    """The rest."""
    beyond: int
    """Neither, and in none of the others: the run ended before they could be."""


@dataclass(frozen=True)
class Case(Document):
    """A case that decided a verdict."""

    repeat: int
    id: int | str
    """The message's key; of an interval the id of the event at its end."""
    at_ns: int
    """When it began; in results since the repeat's time zero, else global time."""
    lost: bool
    value_ns: int | None
    """None where it was lost or there is nothing to measure."""
    err_ns: int | None
    """Maximum error of the value; None where nothing bounds it."""
    undecided: bool
    """Else it was met or missed."""
    at_end: Annotated[bool, UNLESS_EMPTY] = False
    """Whether it is an age at the end of the run or of the window."""
