"""A value of `measure.values`: one number of an entity's events."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.account import UNACCOUNTED
from loopscope.analysis.results import ValueResult
from loopscope.analysis.statistic import nearest_rank, quantile
from loopscope.timeline import RunError, UnknownTableError

if TYPE_CHECKING:
    import ibis
    import numpy.typing as npt

    from loopscope.experiment import Value
    from loopscope.timeline import Run


def measure_value(run: Run, value: Value) -> tuple[ValueResult, list[str]]:
    """The number, over the events of all repeats, and what makes it doubtful.

    Raises `RunError` where its field is no number.
    """
    problems = []
    samples: npt.NDArray[np.float64] = np.empty(0)
    count = 0
    try:
        if value.field is None:
            count = int(_events(run, value).count().to_pyarrow().as_py())
        else:
            samples = read_samples(run, value)[2]
            count = len(samples)
    except UnknownTableError:
        problems.append(f"value {value.name}: no {value.entity} was recorded at all")
    missing = _missing(run, value)
    if missing:
        problems.append(
            f"value {value.name}: events of {value.entity} may be missing from the trace; it is of "
            "what was recorded"
        )
    number = count if value.stat == "count" else _statistic(samples, value.stat)
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
    )
    return result, problems


def read_samples(
    run: Run, value: Value
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Repeat, global time and number, in the value's unit, of each event, in this order.

    Raises `UnknownTableError` where no such event was recorded.
    """
    table = _events(run, value)
    field, per = value.field, value.per
    for name in (field, per):
        if name is not None and not (name in table.columns and table[name].type().is_numeric()):
            raise RunError(
                f"value {value.name}: {name} is no number of {value.entity}; "
                f"its fields: {', '.join(table.columns)}"
            )
    chosen = table.filter(table[field].notnull())
    chosen = chosen.select("repeat", "ts", x=table[field].cast("float64"), per=table[per or "ts"])
    rows = chosen.order_by("repeat", "ts", "per", "x").to_pyarrow()
    repeat, ts, x, keys = (rows[name].to_numpy() for name in ("repeat", "ts", "x", "per"))
    if per is not None:
        repeat, ts, x = _added(repeat, ts, x, keys)
    kept: list[npt.NDArray[np.intp]] = [np.empty(0, dtype=np.intp)]
    for number in np.unique(repeat):
        here = np.flatnonzero(repeat == number)
        kept.append(here[value.skip_first : max(0, len(here) - value.skip_last)])
    chosen_rows = np.concatenate(kept)
    return repeat[chosen_rows], ts[chosen_rows], x[chosen_rows] * value.scale


def _added(
    repeat: npt.NDArray[np.int32],
    ts: npt.NDArray[np.int64],
    x: npt.NDArray[np.float64],
    keys: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """One row for each key of each repeat: the last instant, the sum; in order of time."""
    order = np.lexsort((ts, keys, repeat))
    repeat, ts, x, keys = repeat[order], ts[order], x[order], keys[order]
    first = np.r_[True, (np.diff(repeat) != 0) | (np.diff(keys) != 0)] if len(x) else np.empty(0)
    begins = np.flatnonzero(first)
    ends = np.r_[begins[1:], len(x)]
    sums = np.array([math.fsum(x[a:b]) for a, b in zip(begins, ends, strict=True)])
    repeat, ts = repeat[begins], ts[ends - 1] if len(x) else ts
    order = np.lexsort((ts, repeat))
    return repeat[order], ts[order], sums[order]


def _events(run: Run, value: Value) -> ibis.Table:
    """The events that it is made of."""
    table = run.table(value.table)
    return table if value.component is None else table.filter(table.process == value.component)


def _statistic(samples: npt.NDArray[np.float64], stat: str) -> float | None:
    """None of nothing. Sums are exact before they are rounded, so they have no order."""
    n = len(samples)
    if n == 0:
        return None
    if stat == "last":
        return float(samples[-1])
    if stat == "sum":
        return math.fsum(samples)
    mean = math.fsum(samples) / n
    if stat == "mean":
        return mean
    if stat == "deviation":
        return math.sqrt(math.fsum((samples - mean) ** 2) / n)
    if stat in ("min", "max"):
        return float(samples.min() if stat == "min" else samples.max())
    q = quantile(stat)
    assert q is not None, stat
    return float(np.sort(samples)[nearest_rank(q, n) - 1])


def _missing(run: Run, value: Value) -> int:
    """The most events that may be missing from the time line."""
    total = 0
    for repeat in run.repeats:
        accounts = [
            each
            for each in run.accounts
            if each.repeat == repeat and value.component in (None, each.process)
        ]
        if not accounts:
            return UNACCOUNTED
        total += sum(each.missing_at(value.entity) for each in accounts)
    return total
