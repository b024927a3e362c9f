"""What the figures draw, reduced to what an eye can take in; no drawing here.

Scatter plots keep, of every stretch of time, the least and the greatest value and a few between, so
that no outlier disappears. Histograms are of all values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.results import PatternResult, Results
from loopscope.report.clock_series import ClockDrawing, read_clock_drawings
from loopscope.report.parts import Part, ages_of, joins, part_of, paths_of
from loopscope.report.thin import thin
from loopscope.timeline import Run

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.experiment import MessagePath

    Floats = npt.NDArray[np.float64]

_RESPONSE_POINTS = 5000
_HOPS_POINTS = 8000
_PATHS = 2
"""So many paths have so many points each; more have as many together, so that pages stay light."""
_LOST_MARKS = 1000
_BINS = (12, 90)


@dataclass(frozen=True)
class Scatter:
    """Points of one repeat: seconds since its first message against an interval in ns."""

    repeat: int
    seconds: Floats
    ns: npt.NDArray[np.int64]
    err_ns: npt.NDArray[np.int64]
    id: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Histogram:
    """Of all values up to `edges[-1]` ns; `beyond` lie above it."""

    edges: Floats
    counts: npt.NDArray[np.int64]
    beyond: int


@dataclass(frozen=True)
class IntervalDrawing:
    first: str
    last: str
    what: str
    """What there are `total` of."""
    scatters: tuple[Scatter, ...]
    histogram: Histogram
    total: int
    shown: int
    median_ns: float
    """Chooses the unit of the axes."""
    max_err_ns: int
    logarithmic: bool
    """Whether the greatest value would flatten the others on a linear axis."""


@dataclass(frozen=True)
class EndDrawing:
    """From one beginning of a path to one end."""

    part: Part
    response: IntervalDrawing | None
    """None where no message arrived."""
    lost_seconds: Floats
    """When messages set out that did not arrive."""
    hops: tuple[Part, ...]
    """Those on the way, where that has several."""
    ages: Part | None
    """None where no event joins."""
    age: IntervalDrawing | None
    """None where nothing was used."""


@dataclass(frozen=True)
class PathDrawing:
    name: str
    ends: tuple[EndDrawing, ...]
    """One of a list."""
    hops: tuple[IntervalDrawing, ...]


@dataclass(frozen=True)
class Drawings:
    patterns: tuple[PatternResult, ...]
    paths: tuple[PathDrawing, ...]
    clock: tuple[ClockDrawing, ...]


def read_drawings(run: Run, results: Results) -> Drawings:
    paths = paths_of(results)
    return Drawings(
        patterns=results.patterns,
        paths=tuple(_path(results, path, max(1, len(paths) / _PATHS)) for path in paths.values()),
        clock=read_clock_drawings(run, results),
    )


def histogram_of(values: npt.NDArray[Any], bins: int | None = None) -> Histogram:
    """Bins by Freedman and Diaconis, within reason, or as many as are given.

    A tail farther above p99 than three times p99's distance from the median, so at most 1 %, is
    counted and not drawn.
    """
    # Of large whole numbers that differ little, floats tell only the differences apart.
    least = values.min() if values.dtype.kind == "i" else 0
    values = values - least
    low, q1, middle, q3, p99, high = (
        float(q) for q in np.quantile(values, [0, 0.25, 0.5, 0.75, 0.99, 1], method="inverted_cdf")
    )
    end = min(high, p99 + 3 * (p99 - middle))
    width = 2 * (q3 - q1) / len(values) ** (1 / 3)
    fewest, most = _BINS
    if bins is None:
        bins = int(np.clip((end - low) / width, fewest, most)) if width > 0 else fewest
    counts, edges = np.histogram(values, bins=bins, range=(low, end if end > low else low + 1))
    return Histogram(
        edges + float(least), counts.astype(np.int64), beyond=len(values) - int(counts.sum())
    )


def _path(results: Results, path: MessagePath, share: float) -> PathDrawing:
    hops = {hop: part_of(results, path.name, hop) for hop in path.hops}
    drawn = [_interval(hop, int(_HOPS_POINTS / share / len(hops))) for hop in hops.values()]
    # A graph's figures over time have as many points together as a list's one.
    points = int(_RESPONSE_POINTS / share / sum(1 + joins(path, ends) for ends in path.ends))
    return PathDrawing(
        name=path.name,
        ends=tuple(_end(results, path, ends, hops, points) for ends in path.ends),
        hops=tuple(hop for hop in drawn if hop is not None),
    )


def _end(
    results: Results,
    path: MessagePath,
    ends: tuple[int, int],
    hops: Mapping[tuple[int, int], Part],
    points: int,
) -> EndDrawing:
    part = part_of(results, path.name, ends)
    way = path.between(*ends)
    lost = np.sort(part.lost.since) / 1e9
    marks = np.linspace(0, len(lost) - 1, min(len(lost), _LOST_MARKS)).astype(int)
    ages = ages_of(results, path.name, ends) if joins(path, ends) else None
    return EndDrawing(
        part=part,
        response=_interval(part, points),
        lost_seconds=lost[marks],
        hops=tuple(part for hop, part in hops.items() if hop != ends and way.issuperset(hop)),
        ages=ages,
        age=_interval(ages, points) if ages else None,
    )


def _interval(part: Part, points: int) -> IntervalDrawing | None:
    intervals = part.intervals
    total = len(intervals.length)
    if not total:
        return None
    scatters = []
    for repeat, start in part.origin.items():
        here = np.flatnonzero(intervals.repeat == repeat)
        kept = here[thin(intervals.length[here], max(4, points // len(part.origin)))]
        scatters.append(
            Scatter(
                repeat=repeat,
                seconds=_seconds(intervals.start[kept], start),
                ns=intervals.length[kept],
                err_ns=intervals.err[kept],
                id=intervals.id[kept],
            )
        )
    median = float(np.median(intervals.length))
    return IntervalDrawing(
        first=str(intervals.first),
        last=str(intervals.last),
        what=part.what,
        scatters=tuple(scatters),
        histogram=histogram_of(intervals.length),
        total=total,
        shown=sum(len(scatter.ns) for scatter in scatters),
        median_ns=median,
        max_err_ns=int(intervals.err.max()),
        logarithmic=bool(intervals.length.min() > 0 and intervals.length.max() > 8 * median),
    )


def _seconds(ts: npt.NDArray[np.int64], origin: int) -> Floats:
    return (ts - origin) / 1e9


def unit_of(ns: float) -> tuple[int, str]:
    """Nanoseconds of the unit that suits a value, and the unit's name."""
    if ns >= 1e6:
        return 1_000_000, "ms"
    return (1000, "µs") if ns >= 1000 else (1, "ns")
