"""The patterns of a series, the strongest first, each looked for in what the others leave."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.findings import distribution, levels, periodic
from loopscope.analysis.findings.series import (
    CERTAIN,
    LEAST,
    LEAST_SUGGESTED,
    SEARCHES,
    SUGGESTED,
)

if TYPE_CHECKING:
    from loopscope.analysis.findings.candidate import Candidate
    from loopscope.analysis.findings.series import Floats, Series

_MOST = 6
_HIDES = 0.2
"""What explains less of the variance does not hide another pattern."""


def search(series: Series, least_grid: float = 0.0) -> list[tuple[Candidate, Floats, bool]]:
    """The patterns, with what was left of the times before each, and whether each is certain.

    The certain ones come first, then by what they explain. ``least_grid``, ns: a finer grid is not
    a finding.
    """
    whole = series.took
    rest = whole
    certain: list[tuple[Candidate, Floats, bool]] = []
    while True:
        found = _over_time(series, rest, whole)
        sure = [each for each in found if _is(each, CERTAIN, LEAST)]
        best = max(sure, key=lambda each: each.explained, default=None) or _hidden(
            series, rest, whole, found
        )
        if best is None or len(certain) == _MOST:
            break
        certain.append((best, rest, True))
        rest = best.rest
    suggested = [
        (each, rest, False)
        for each in found
        if _is(each, SUGGESTED, LEAST_SUGGESTED) and not _again(each, certain)
    ]
    for each in _of_distribution(rest, whole, least_grid):
        if _is(each, CERTAIN, LEAST):
            certain.append((each, rest, True))
            suggested = []
        elif _is(each, SUGGESTED, LEAST_SUGGESTED):
            suggested.append((each, rest, False))
    order = [*certain, *suggested]
    return sorted(order, key=lambda each: (not each[2], -each[0].explained))


def _hidden(
    series: Series, rest: Floats, whole: Floats, found: list[Candidate]
) -> Candidate | None:
    """A pattern that is certain once one of those found is taken away, as that is without it.

    As a step in the middle of a sawtooth. None: there is none.
    """
    for hiding in sorted(found, key=lambda each: -each.explained):
        if hiding.explained < _HIDES:
            break
        for each in _over_time(series, hiding.rest, whole):
            if each.kind == hiding.kind or not _is(each, CERTAIN / SEARCHES, LEAST):
                continue
            without = rest - each.fit
            again = _over_time(series, without, whole)
            if any(one.kind == hiding.kind and _is(one, CERTAIN, LEAST) for one in again):
                return replace(each, rest=without)
    return None


def _over_time(series: Series, rest: Floats, whole: Floats) -> list[Candidate]:
    if not np.ptp(rest) > 0:
        return []
    searches = (periodic.search, levels.search_change, levels.search_warm_up)
    found = [each(series, rest, whole) for each in searches]
    return [each for each in found if each is not None]


def _of_distribution(rest: Floats, whole: Floats, least_grid: float) -> list[Candidate]:
    """The grid of the times, else their modes: times on a grid have a mode at each step."""
    if not np.ptp(rest) > 0:
        return []
    grids = [
        distribution.search_grid(each, whole, least_grid)
        for each in {id(each): each for each in (whole, rest)}.values()
    ]
    known = [each for each in grids if each is not None and _is(each, CERTAIN, LEAST)]
    if known:
        return [min(known, key=lambda each: each.log_p)]
    modes = distribution.search_modes(rest, whole)
    found = [*grids[-1:], modes]
    return [each for each in found if each is not None]


def _is(candidate: Candidate, level: float, least: float) -> bool:
    """Whether noise seldom shows it, all searches counted, and it explains enough."""
    log_p = candidate.log_p + math.log(SEARCHES)
    return log_p < math.log(level) and candidate.explained >= least


def _again(candidate: Candidate, known: list[tuple[Candidate, Floats, bool]]) -> bool:
    """Whether a pattern is what a certain one of the same kind has left over."""
    return any(candidate.kind == each.kind for each, _, _ in known)
