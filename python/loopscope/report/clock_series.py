"""Series of the figures of clocks, reduced to what can be seen; no drawing here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.allan import allan_deviation
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.analysis.results import Results
from loopscope.report.decimation import thin
from loopscope.timeline import Run

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Floats = npt.NDArray[np.float64]

_POINTS = 1500
SECONDS = "s since the first probe"


@dataclass(frozen=True)
class ClockCurve:
    """One repeat's map of a host's clock."""

    repeat: int
    seconds: Floats
    deviation_ns: Floats
    """Offset from the straight line between the first and the last knot."""
    err_ns: Floats
    """Hard maximum error; NaN where unknown, as the next."""
    calibrated_ns: Floats
    rate_ppm: Floats
    """Rate from this knot to the next, ppm; NaN on the last."""


@dataclass(frozen=True)
class OffsetCurve:
    """Offset of a host's CLOCK_REALTIME from the reference's in one repeat.

    Positive where it is ahead.
    """

    repeat: int
    seconds: Floats
    offset_ns: Floats
    err_ns: Floats


@dataclass(frozen=True)
class AllanCurve:
    """The Allan deviation of a host's counter against the reference's.

    It is of the longest epoch of one repeat.
    """

    repeat: int
    tau_s: Floats
    deviation: Floats


@dataclass(frozen=True)
class Mark:
    """A stretch of time in which something happened to a clock."""

    begin_s: float
    end_s: float


@dataclass(frozen=True)
class ClockDrawing:
    host: str
    mean_ppm: float
    """Slope of the straight line that deviations are from, over the repeats."""
    curves: tuple[ClockCurve, ...]
    realtime: tuple[OffsetCurve, ...]
    allan: tuple[AllanCurve, ...]
    disturbed: tuple[Mark, ...]
    """Where its counter was."""
    set_: tuple[Mark, ...]
    """Where its CLOCK_REALTIME was set, or the reference's."""


def read_clock_drawings(run: Run, results: Results) -> tuple[ClockDrawing, ...]:
    """The drawings of every host but the reference."""
    names = ["repeat", "host", "ts", "offset_ns", "rate_ppm", "err_ns", "calibrated_ns", "epoch"]
    rows = run.relation("clock").project(", ".join(names)).order("host, repeat, ts")
    table = rows.to_arrow_table()
    if not len(table):
        return ()
    column = _columns(table)
    begin = {
        int(repeat): int(column["ts"][column["repeat"] == repeat].min())
        for repeat in np.unique(column["repeat"])
    }
    references = {each.host for each in results.clock.hosts if each.reference}
    realtime = _realtime(run, begin)
    drawings = []
    for host in sorted(set(column["host"]) - references):
        curves, slopes, allan, end = [], [], [], 0.0
        for repeat in np.unique(column["repeat"][column["host"] == host]):
            chosen = (column["host"] == host) & (column["repeat"] == repeat)
            of = {name: values[chosen] for name, values in column.items()}
            if len(of["ts"]) < 2:
                continue
            curve, slope = _curve(of, begin[int(repeat)])
            curves.append(curve)
            slopes.append(slope * 1e6)
            allan.append(_allan(of))
            end = max(end, float(curve.seconds[-1]))
        if not curves:
            continue
        marks = {
            clock: tuple(
                Mark(
                    0.0 if each.from_ns is None else each.from_ns / 1e9,
                    end if each.until_ns is None else each.until_ns / 1e9,
                )
                for each in results.clock.events
                if each.clock == clock
                and (each.host == host or (clock == "realtime" and each.host in references))
            )
            for clock in ("counter", "realtime")
        }
        drawings.append(
            ClockDrawing(
                host=str(host),
                mean_ppm=float(np.mean(slopes)),
                curves=tuple(curves),
                realtime=realtime.get(str(host), ()),
                allan=tuple(each for each in allan if len(each.tau_s)),
                disturbed=marks["counter"],
                set_=marks["realtime"],
            )
        )
    return tuple(drawings)


def _columns(table: pa.Table) -> dict[str, npt.NDArray[Any]]:
    column: dict[str, npt.NDArray[Any]] = {
        "host": np.array(table["host"].to_pylist(), dtype=object),
        "repeat": table["repeat"].to_numpy(),
        "ts": table["ts"].to_numpy(),
    }
    for name in ("offset_ns", "rate_ppm", "epoch"):
        column[name] = table[name].cast("float64").fill_null(np.nan).to_numpy()
    for name in ("err_ns", "calibrated_ns"):
        width = table[name].to_numpy()
        column[name] = np.where(width >= UNKNOWN_NS, np.nan, width.astype(np.float64))
    return column


def _curve(of: Mapping[str, npt.NDArray[Any]], begin: int) -> tuple[ClockCurve, float]:
    """The curve, and the slope of the straight line that it is relative to."""
    ts, offset = of["ts"], of["offset_ns"]
    elapsed = (ts - ts[0]).astype(np.float64)
    slope = float((offset[-1] - offset[0]) / elapsed[-1]) if elapsed[-1] else 0.0
    deviation = offset - offset[0] - slope * elapsed
    err = of["err_ns"]
    # Where an error is unknown is as worth seeing as where it is large.
    of_err = thin(np.nan_to_num(err), _POINTS), thin(np.isnan(err), _POINTS)
    kept = np.unique(np.concatenate([thin(deviation, _POINTS), *of_err]))
    curve = ClockCurve(
        repeat=int(of["repeat"][0]),
        seconds=(ts[kept] - begin) / 1e9,
        deviation_ns=deviation[kept],
        err_ns=err[kept],
        calibrated_ns=of["calibrated_ns"][kept],
        rate_ppm=of["rate_ppm"][kept],
    )
    return curve, slope


def _allan(of: Mapping[str, npt.NDArray[Any]]) -> AllanCurve:
    epochs, counts = np.unique(of["epoch"], return_counts=True)
    here = of["epoch"] == epochs[counts.argmax()]
    seconds = (of["ts"][here] - of["ts"][0]) / 1e9
    return AllanCurve(int(of["repeat"][0]), *allan_deviation(seconds, of["offset_ns"][here]))


def _realtime(run: Run, begin: Mapping[int, int]) -> dict[str, tuple[OffsetCurve, ...]]:
    """Offset curves by host, without readings of which nothing is known."""
    readings = run.relation("foreign_clocks")
    chosen = readings.filter("clock = 'realtime' AND offset_ns IS NOT NULL")
    columns = ["repeat", "host", "ts", "offset_ns", "offset_err_ns"]
    table = chosen.project(", ".join(columns)).order("host, repeat, ts").to_arrow_table()
    hosts = np.array(table["host"].to_pylist(), dtype=object)
    repeats, ts, offset, err = (table[name].to_numpy() for name in columns if name != "host")
    found: dict[str, tuple[OffsetCurve, ...]] = {}
    for host, repeat in sorted(set(zip(hosts.tolist(), repeats.tolist(), strict=True))):
        here = np.flatnonzero((hosts == host) & (repeats == repeat))
        here = here[thin(offset[here], _POINTS)]
        curve = OffsetCurve(
            repeat=repeat,
            seconds=(ts[here] - begin[repeat]) / 1e9,
            offset_ns=offset[here].astype(np.float64),
            err_ns=err[here].astype(np.float64),
        )
        found[host] = (*found.get(host, ()), curve)
    return found
