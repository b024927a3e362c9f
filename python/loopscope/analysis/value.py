"""A value of `measure.values`: one number of an entity's events."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.bounded_statistics import nearest_rank, quantile
from loopscope.analysis.endings import unfinished
from loopscope.analysis.keys import read_keys
from loopscope.analysis.missing_events import UNACCOUNTED
from loopscope.analysis.quantity_text import number as shown
from loopscope.analysis.results import ValueResult
from loopscope.timeline import RunError, UnknownTableError
from loopscope.timeline.relation import NUMBERS, column_types, identifier, literal

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.experiment import Value
    from loopscope.timeline import Run
    from loopscope.timeline.relation import Relation


@dataclass(frozen=True)
class Samples:
    """The finite numbers of a value, in the order of repeats and time."""

    repeat: npt.NDArray[np.int32]
    ts: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    """In the value's unit."""
    not_finite: int
    """Number of further samples that are NaN or infinite."""
    without_key: int
    """Events that have none of the key by which numbers are added up; they are in no sum."""

    @staticmethod
    def none() -> Samples:
        nothing = np.empty(0, np.int64)
        return Samples(nothing.astype(np.int32), nothing, nothing.astype(np.float64), 0, 0)


def measure_value(run: Run, value: Value) -> tuple[ValueResult, list[str]]:
    """The number, over the events of all repeats, and what makes it doubtful.

    Raises `RunError` where its field is no number.
    """
    problems = []
    samples = Samples.none()
    count = 0
    try:
        if value.field is None:
            count = len(_events(run, value))
        else:
            samples = read_samples(run, value)
            count = len(samples.x) + samples.not_finite
    except UnknownTableError:
        if value.stat != "count" or not _has_call_site(run, value):
            problems.append(f"value {value.name}: no {value.entity} was recorded at all")
    missing = _missing(run, value)
    if missing:
        problems.append(
            f"value {value.name}: events of {value.entity} may be missing from the trace; it is of "
            "what was recorded"
        )
    if samples.not_finite:
        problems.append(
            f"value {value.name}: {shown(samples.not_finite)} of {shown(count)} numbers are not "
            f"finite (NaN or infinite); {value.stat} is of the others"
        )
    if samples.without_key:
        problems.append(
            f"value {value.name}: {shown(samples.without_key)} events have no {value.per}; they "
            "are left out"
        )
    number = count if value.stat == "count" else _statistic(samples.x, value.stat)
    if number is not None and not math.isfinite(number):
        problems.append(f"value {value.name}: {value.stat} is larger than a number here can be")
        number = None
    result = ValueResult(
        name=value.name,
        entity=value.entity,
        component=value.component,
        field=value.field,
        stat=value.stat,
        value=number,
        unit=value.unit,
        count=count,
        missing=missing,
        not_finite=samples.not_finite,
        by_repeat=_by_repeat(run, value, samples) if len(run.repeats) > 1 else None,
    )
    return result, problems


def _by_repeat(run: Run, value: Value, samples: Samples) -> dict[int, int | float | None]:
    found: dict[int, int | float | None] = {}
    for repeat in run.repeats:
        if value.stat == "count" and value.field is None:
            try:
                events = _events(run, value)
            except UnknownTableError:
                continue
            found[repeat] = len(events.filter(f"repeat = {repeat}"))
            continue
        of = samples.x[samples.repeat == repeat]
        if value.stat == "count":
            # It is not kept in which repeat the numbers are that are not finite.
            found[repeat] = None if samples.not_finite else len(of)
            continue
        number = _statistic(of, value.stat)
        found[repeat] = number if number is not None and math.isfinite(number) else None
    return found


def read_samples(run: Run, value: Value) -> Samples:
    """The value of each event, or the sum for each key of `per`.

    Raises `UnknownTableError` where no such event was recorded.
    """
    table = _events(run, value)
    field, per = value.field, value.per
    if field is None or column_types(table).get(field) not in NUMBERS:
        raise RunError(
            f"value {value.name}: {field} is no number of {value.entity}; "
            f"its fields: {', '.join(table.columns)}"
        )
    chosen = table.filter(f"{identifier(field)} IS NOT NULL")
    without_key = 0
    if per is not None:
        keys = read_keys([(chosen, per, value.entity)], f"value {value.name}")
        chosen = keys.numbered(run, chosen, per, "_per", required=False)
        without_key = len(chosen.filter("_per IS NULL"))
        chosen = chosen.filter("_per IS NOT NULL")
    key = "_per" if per else "ts"
    rows = (
        chosen.project(f"repeat, ts, {identifier(field)}::DOUBLE AS x, {key} AS per")
        .order("repeat, ts, per, x")
        .to_arrow_table()
    )
    repeat, ts, x, number = (rows[name].to_numpy() for name in ("repeat", "ts", "x", "per"))
    if per is not None:
        repeat, ts, x = _added(repeat, ts, x, number)
    kept: list[npt.NDArray[np.intp]] = [np.empty(0, dtype=np.intp)]
    for number in np.unique(repeat):
        here = np.flatnonzero(repeat == number)
        kept.append(here[value.skip_first : max(0, len(here) - value.skip_last)])
    judged = np.concatenate(kept)
    with np.errstate(over="ignore"):
        scaled = x[judged] * value.scale
    finite = np.isfinite(scaled)
    rows_ = judged[finite]
    not_finite = int((~finite).sum())
    return Samples(repeat[rows_], ts[rows_], scaled[finite], not_finite, without_key)


def _added(
    repeat: npt.NDArray[np.int32],
    ts: npt.NDArray[np.int64],
    x: npt.NDArray[np.float64],
    keys: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """One row for each key of each repeat: the last instant, the sum; in order of time."""
    order = np.lexsort((ts, keys, repeat))
    repeat, ts, x, keys = repeat[order], ts[order], x[order], keys[order]
    differ = (np.diff(repeat) != 0) | (np.diff(keys) != 0)
    begins = np.flatnonzero(np.r_[True, differ][: len(x)])
    ends = np.r_[begins[1:], len(x)][: len(begins)]
    sums = np.array([_sum(x[a:b]) for a, b in zip(begins, ends, strict=True)])
    repeat, ts = repeat[begins], ts[ends - 1]
    order = np.lexsort((ts, repeat))
    return repeat[order], ts[order], sums[order]


def _events(run: Run, value: Value) -> Relation:
    """The events that it is made of."""
    table = run.relation(value.table)
    if value.component is None:
        return table
    return table.filter(f"process = {literal(value.component)}")


def _statistic(samples: npt.NDArray[np.float64], stat: str) -> float | None:
    """None of nothing. Sums are exact before they are rounded, so they have no order."""
    n = len(samples)
    if n == 0:
        return None
    if stat == "last":
        return float(samples[-1])
    if stat == "sum":
        return _sum(samples)
    if stat in ("mean", "deviation"):
        mean = _sum(samples) / n
        if stat == "mean":
            return mean
        with np.errstate(over="ignore", invalid="ignore"):
            return math.sqrt(_sum((samples - mean) ** 2) / n)
    if stat in ("min", "max"):
        return float(samples.min() if stat == "min" else samples.max())
    q = quantile(stat)
    assert q is not None, stat
    return float(np.sort(samples)[nearest_rank(q, n) - 1])


def _sum(values: npt.NDArray[np.float64]) -> float:
    """Exact before it is rounded; NaN where no number can be."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan


def _has_call_site(run: Run, value: Value) -> bool:
    """Whether a recorded program has such a call site: then no event means that none happened."""
    return any(
        site.entity == value.entity
        for each in run.accounts
        if value.component in (None, each.process)
        for site in each.sites
    )


def _missing(run: Run, value: Value) -> int:
    """The most events that may be missing from the time line."""
    total = 0
    cut_short = unfinished(run)
    for repeat in run.repeats:
        accounts = [
            each
            for each in run.accounts
            if each.repeat == repeat and value.component in (None, each.process)
        ]
        having = {
            each.process
            for each in accounts
            if value.component or any(site.entity == value.entity for site in each.sites)
        }
        if not accounts or any((repeat, each) in cut_short for each in having):
            return UNACCOUNTED
        total += sum(each.missing_at(value.entity) for each in accounts)
    return total
