"""The findings of a path of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings.activity import Activities
from loopscope.analysis.findings.result import (
    NONE_FOUND,
    NOT_RECORDED,
    Activity,
    Finding,
    Number,
    PathFindings,
)
from loopscope.analysis.findings.series import SEARCHES, Series
from loopscope.analysis.findings.stepwise import search
from loopscope.analysis.quantity_text import UNKNOWN_NS, number
from loopscope.analysis.recorded_kernels import has_events

if TYPE_CHECKING:
    from loopscope.analysis.findings.series import Floats
    from loopscope.analysis.messages import Messages, Rows
    from loopscope.timeline import Run

LEAST_MESSAGES = 200
"""Fewer messages of a repeat show no pattern that would be certain."""


def findings(run: Run, messages: Messages) -> PathFindings:
    """The patterns in the times of a path from its first event to its last, of each repeat.

    Raises `RunError` where the kernel's tables cannot be read.
    """
    path = messages.path
    first, last = path.loop
    arrived = messages.seen[first] & messages.seen[last]
    rows = np.flatnonzero(arrived)
    interval = messages.intervals(first, last)
    known = interval.err < UNKNOWN_NS
    took = np.zeros(len(messages), np.int64)
    took[rows] = interval.length
    error = np.zeros(len(messages), np.int64)
    error[rows] = interval.err
    found: list[Finding] = []
    reasons = []
    searched = 0
    for repeat in run.repeats:
        of = rows[known & (messages.repeat[rows] == repeat)]
        of = of[np.argsort(messages.ts[first][of], kind="stable")]
        where = "" if len(run.repeats) == 1 else f"repeat {repeat}: "
        if len(of) < LEAST_MESSAGES:
            lost = int((messages.repeat == repeat).sum()) - len(of)
            reasons.append(_too_few(where, len(of), lost))
            continue
        searched += len(of)
        least = 4.0 * float(np.median(error[of]))
        found += _of_repeat(run, messages, repeat, of, took[of].astype(np.float64), least)
    found.sort(key=lambda each: (not each.certain, -each.explained))
    return PathFindings(
        path.name,
        searched,
        int((~arrived).sum()),
        int((~known).sum()),
        tuple(found),
        tuple(reasons),
    )


def branches(path: str) -> PathFindings:
    """The answer for a path that is a graph."""
    reason = "not searched, the path branches: findings are of lists of events"
    return PathFindings(path, 0, 0, 0, (), (reason,))


def _too_few(where: str, count: int, others: int) -> str:
    text = f"{where}not searched: {number(count)} messages arrived with a known error"
    text += f", {number(others)} did not" if others else ""
    return f"{text}; patterns need at least {number(LEAST_MESSAGES)}"


def _of_repeat(
    run: Run, messages: Messages, repeat: int, rows: Rows, took: Floats, least: float
) -> list[Finding]:
    begin = messages.ts[messages.path.loop[0]][rows]
    series = Series((begin - begin[0]).astype(np.float64), took)
    patterns = search(series, least)
    activities = None
    if patterns and has_events(run):
        activities = Activities(run, messages, repeat)
    found = []
    for each, rest, certain in patterns:
        active: tuple[Activity, ...] = ()
        reason = NOT_RECORDED
        if activities is not None and activities.recorded:
            end = begin + took.astype(np.int64)
            once = each.kind in ("change", "warm-up")
            active = activities.ranked(begin, end, rest, each.fit, took, once=once)
            reason = NONE_FOUND
        numbers = tuple(Number(n.name, n.value, n.unit) for n in each.evidence)
        found.append(
            Finding(
                each.kind,
                repeat,
                certain,
                min(math.exp(min(each.log_p, 0.0)) * SEARCHES, 1.0),
                each.explained,
                numbers,
                each.text,
                active,
                None if active else reason,
                rows,
                each.fit + np.median(rest - each.fit),
            )
        )
    return found
