"""What a search for patterns has found in the messages of a path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from loopscope.analysis.document import INTERNAL, Document, keyed_by
from loopscope.analysis.findings.candidate import Kind
from loopscope.analysis.quantity_text import number

NONE_FOUND = "none found"
NOT_RECORDED = "no kernel events were recorded"


@dataclass(frozen=True)
class Number(Document):
    """A number that describes a finding."""

    name: str
    value: float
    unit: str
    """``ns``, or empty for plain numbers and shares."""


@dataclass(frozen=True)
class Activity(Document):
    """A thread or an interrupt whose activity goes with a finding."""

    what: str
    """``rt-hog of h2``, ``interrupt local_timer``."""
    cpus: tuple[int, ...]
    """The processors of the path's threads on which it was."""
    explained: float
    """The share of the variance of the times that goes with its time on them, 0 to 1."""


@dataclass(frozen=True)
class Finding(Document):
    """A pattern in the times of a path's messages."""

    kind: Kind
    repeat: int
    certain: bool
    """Whether the tests, which are approximate, leave noise less than one search in 10 000."""
    p: float
    """Probability that noise shows one as strong, all tests counted."""
    explained: float
    """The share of the variance of the times that it explains, 0 to 1."""
    evidence: Annotated[tuple[Number, ...], keyed_by("name")]
    text: str
    """In plain words."""
    activity: tuple[Activity, ...]
    """Kernel activity whose phase goes with it, that which explains most first."""
    without_activity: str | None
    """Why none is named, or None."""
    rows: Annotated[Any, INTERNAL]
    """Rows of the messages that were searched, in order of time."""
    fit: Annotated[Any, INTERNAL]
    """What it adds to the time of each of them, ns; the pattern that a figure draws."""


@dataclass(frozen=True)
class PathFindings(Document):
    """The findings of a path, the certain ones first, then by what they explain."""

    path: str
    messages: int
    """Messages that were searched, in all repeats."""
    lost: int
    """Messages that did not arrive, and are therefore in no finding."""
    unknown_error: int
    """Messages whose times have an unknown error; they are left out."""
    findings: tuple[Finding, ...]
    not_searched: tuple[str, ...]
    """Why repeats were not searched, or the path was not."""

    @property
    def certain(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.certain)


def lines(found: PathFindings) -> list[str]:
    """The findings in plain words, a line for each."""
    several = len({each.repeat for each in found.findings}) > 1
    told = []
    for place, each in enumerate(found.findings, start=1):
        repeat = f"repeat {each.repeat}: " if several else ""
        told.append(f"{found.path}: {place}. {repeat}{line(each)}")
    if not found.findings and found.messages:
        told.append(f"{found.path}: nothing found in {number(found.messages)} messages")
    told += [f"{found.path}: {reason}" for reason in found.not_searched]
    if found.messages and (left_out := _left_out(found)):
        told.append(f"{found.path}: {left_out}")
    return told


def line(finding: Finding) -> str:
    """`every 8.00 s some 3 messages are late (62 % of the variance): goes with rt-hog of h2`."""
    text = f"{finding.text} ({percent(finding.explained)} of the variance)"
    if finding.activity:
        text += f": goes with {activity_text(finding.activity[0])}"
    elif finding.without_activity == NONE_FOUND:
        text += ": no kernel activity goes with it"
    elif finding.without_activity:
        text += f": {finding.without_activity}"
    return text if finding.certain else f"perhaps {text}"


def activity_text(activity: Activity) -> str:
    on = f" on cpu{', cpu'.join(map(str, activity.cpus))}" if activity.cpus else ""
    return f"{activity.what}{on} ({percent(activity.explained)})"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "below 1 %"


def _left_out(found: PathFindings) -> str:
    parts = []
    if found.lost:
        parts.append(f"{number(found.lost)} lost messages")
    if found.unknown_error:
        parts.append(f"{number(found.unknown_error)} messages of unknown error")
    return f"{' and '.join(parts)} are left out" if parts else ""
