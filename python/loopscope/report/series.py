"""What the figures draw, reduced to what an eye can take in; no drawing here.

Scatter plots keep, of every stretch of time, the least and the greatest value and a few between, so
that no outlier disappears. Histograms are of all values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.results import PatternResult, Results
from loopscope.report.clock_series import ClockDrawing, read_clock_drawings
from loopscope.report.marks import Mark, Strokes, read_marks, strokes_over
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
_TAILED = 8
"""So many times the median is far from it: on a linear axis what is there flattens the rest."""
_BINS = (12, 90)
_FEWEST_LOGARITHMIC = 30
"""Bins over several decades; the rule for a width is blind to a long tail."""


@dataclass(frozen=True)
class Scatter:
    """Points of one repeat: seconds since its first message against an interval in ns."""

    repeat: int
    seconds: Floats
    ns: npt.NDArray[np.int64]
    err_ns: npt.NDArray[np.int64]
    id: list[int | str]
    """Keys, as a person knows them."""


@dataclass(frozen=True)
class Histogram:
    """Counts of the values from `edges[0]` to `edges[-1]` ns; `below` and `beyond` lie outside."""

    edges: Floats
    counts: npt.NDArray[np.int64]
    below: int
    beyond: int
    logarithmic: bool = False
    """Whether bins have an equal width in the logarithm of the values."""


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
    strokes: Strokes = Strokes()
    """What happened meanwhile."""


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
    marks, share = read_marks(run), max(1, len(paths) / _PATHS)
    return Drawings(
        patterns=results.patterns,
        paths=tuple(_path(results, path, share, marks) for path in paths.values()),
        clock=read_clock_drawings(run, results),
    )


def histogram_of(
    values: npt.NDArray[Any], bins: int | None = None, logarithmic: bool = False
) -> Histogram:
    """Counts in bins of equal width, by the rule of Freedman and Diaconis within limits, or in as
    many bins as are given.

    A tail of at most 1 % above p99, or below p1, is left out and counted where it would take more
    than a third of the axis. Where `logarithmic`, bins have an equal width in the logarithm of the
    values, and values of zero or less are left out and counted.
    """
    if logarithmic:
        above = values > 0
        exponents = np.log10(values[above].astype(np.float64))
        of = histogram_of(exponents, bins)
        if bins is None and len(of.counts) < _FEWEST_LOGARITHMIC:
            of = histogram_of(exponents, _FEWEST_LOGARITHMIC)
        below = of.below + int((~above).sum())
        return replace(of, edges=10**of.edges, below=below, logarithmic=True)
    # Of large whole numbers that differ little, floats tell only the differences apart.
    least = values.min() if values.dtype.kind == "i" else 0
    values = values - least
    low, p1, q1, q3, p99, high = (
        float(q) for q in np.quantile(values, [0, 0.01, 0.25, 0.75, 0.99, 1], method="inverted_cdf")
    )
    inner = p99 - p1
    end = high if high - p99 <= inner / 2 or not inner else p99 + inner / 20
    low = low if p1 - low <= inner / 2 or not inner else p1 - inner / 20
    width = 2 * (q3 - q1) / len(values) ** (1 / 3)
    fewest, most = _BINS
    if bins is None:
        bins = int(np.clip((end - low) / width, fewest, most)) if width > 0 else fewest
    counts, edges = np.histogram(values, bins=bins, range=(low, end if end > low else low + 1))
    below = int((values < edges[0]).sum())
    return Histogram(
        edges + float(least),
        counts.astype(np.int64),
        below=below,
        beyond=len(values) - int(counts.sum()) - below,
    )


def _path(results: Results, path: MessagePath, share: float, marks: Sequence[Mark]) -> PathDrawing:
    hops = {hop: part_of(results, path.name, hop) for hop in path.hops}
    drawn = [_interval(hop, int(_HOPS_POINTS / share / len(hops)), marks) for hop in hops.values()]
    # A graph's figures over time have as many points together as a list's one.
    points = int(_RESPONSE_POINTS / share / sum(1 + joins(path, ends) for ends in path.ends))
    return PathDrawing(
        name=path.name,
        ends=tuple(_end(results, path, ends, hops, points, marks) for ends in path.ends),
        hops=tuple(hop for hop in drawn if hop is not None),
    )


def _end(
    results: Results,
    path: MessagePath,
    ends: tuple[int, int],
    hops: Mapping[tuple[int, int], Part],
    points: int,
    marks: Sequence[Mark],
) -> EndDrawing:
    part = part_of(results, path.name, ends)
    way = path.between(*ends)
    lost = np.sort(part.lost.since) / 1e9
    told = np.linspace(0, len(lost) - 1, min(len(lost), _LOST_MARKS)).astype(int)
    ages = ages_of(results, path.name, ends) if joins(path, ends) else None
    return EndDrawing(
        part=part,
        response=_interval(part, points, marks),
        lost_seconds=lost[told],
        hops=tuple(part for hop, part in hops.items() if hop != ends and way.issuperset(hop)),
        ages=ages,
        age=_interval(ages, points, marks) if ages else None,
    )


def _interval(part: Part, points: int, marks: Sequence[Mark]) -> IntervalDrawing | None:
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
                id=[intervals.keys.shown(each) for each in intervals.id[kept].tolist()],
            )
        )
    seconds = np.concatenate([scatter.seconds for scatter in scatters])
    ends = float(seconds.min()), float(seconds.max())
    median = float(np.median(intervals.length))
    # Bars of equal width would leave most of the axis to one message in a hundred.
    tailed = float(np.quantile(intervals.length, 0.99)) > _TAILED * median
    positive = bool(intervals.length.min() > 0)
    return IntervalDrawing(
        first=str(intervals.first),
        last=str(intervals.last),
        what=part.what,
        scatters=tuple(scatters),
        histogram=histogram_of(intervals.length, logarithmic=positive and tailed),
        total=total,
        shown=sum(len(scatter.ns) for scatter in scatters),
        median_ns=median,
        max_err_ns=int(intervals.err.max()),
        logarithmic=positive and bool(intervals.length.max() > _TAILED * median),
        strokes=strokes_over(marks, part.origin, part.hosts, *ends),
    )


def _seconds(ts: npt.NDArray[np.int64], origin: int) -> Floats:
    return (ts - origin) / 1e9


def unit_of(ns: float) -> tuple[int, str]:
    """Nanoseconds of the unit that suits a value, and the unit's name."""
    if ns >= 1e6:
        return 1_000_000, "ms"
    return (1000, "µs") if ns >= 1000 else (1, "ns")
