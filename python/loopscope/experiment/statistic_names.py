"""Names of what was measured, as they are written in ``expect``, ``table`` and ``figures``.

``PATH.STAT``, ``PATH[EVENT -> EVENT].STAT``, ``EVENT.STAT``, or the name of a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, get_args

from .grammar import ExpressionError, Unreadable, parse
from .measures import RATE, Stat

CLOCK: Final = "realtime"
COUNTS: Final = ("count", "sent", "received", "lost", "duplicates", "superseded")
SPELLINGS: Final[dict[str, Stat]] = {**{stat: stat for stat in get_args(Stat)}, "p99.9": "p999"}
"""Statistics by what a person may write."""


@dataclass(frozen=True)
class Subject:
    """Subject of a statement or of a table's column, as written.

    ``part`` are two events of the path ``name``; ``before`` says that ``inside`` its brackets they
    are joined by that word. ``clock`` is what follows the name of a host's clock, which is then
    ``stat``.
    """

    name: str
    part: tuple[str, str] | None
    stat: str | None
    before: bool = False
    inside: str | None = None
    clock: str | None = None


def subject_of(text: str, tree: Any) -> Subject:
    """The subject of a syntax tree (`lark.Tree`) of this text. Raises ExpressionError."""
    name, *rest = tree.children
    part = next((each for each in rest if not hasattr(each, "type")), None)
    found = {each.type: str(each)[1:] for each in rest if hasattr(each, "type")}
    inside = None
    outside = text[tree.meta.start_pos : tree.meta.end_pos]
    if part is not None:
        inside = text[part.meta.start_pos + 1 : part.meta.end_pos - 1]
        outside = outside.replace(inside, "", 1)
    if outside.split() != [outside]:
        raise ExpressionError(f"{outside!r} has a space in it: write {''.join(outside.split())}")
    return Subject(
        name=str(name),
        part=None if part is None else (str(part.children[0]), str(part.children[2])),
        stat=found.get("STATISTIC"),
        before=part is not None and part.children[1].type == "BEFORE",
        inside=inside,
        clock=found.get("CLOCK_PART"),
    )


def parse_subject(text: str) -> Subject:
    """The name of something measured. Raises ExpressionError."""
    form = "PATH.STAT, PATH[EVENT -> EVENT].STAT or the name of a value"
    try:
        found = subject_of(text, parse("subject", text, "statistic"))
    except Unreadable as error:
        raise ExpressionError(error.located(f"{text!r} is not {form}")) from None
    if found.before or found.clock is not None:
        raise ExpressionError(f"{text!r} is not {form}")
    return found


def spelled(stat: str) -> Stat | None:
    """The statistic of this spelling, None where there is none."""
    return SPELLINGS.get(stat)


def is_event(name: str) -> bool:
    """Whether this is written as an event, ``component/group:name``, and not as a path."""
    return "/" in name


def unit(stat: str) -> str:
    """Unit of a statistic; empty: it counts."""
    return "" if stat in COUNTS else "Hz" if stat == RATE else "ns"
