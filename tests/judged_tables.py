"""A table's rows judged as the cases of a deadline."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loopscope.analysis.deadline import Doubt, Judgement, judge, timed
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.experiment import Allowed


def judge_table(
    table: pa.Table, op: str, limit_ns: int, allowed: Allowed, doubt: Doubt | None = None
) -> Judgement:
    """Judges a table's rows, in the order of their starts.

    Columns: `start` (ns), `latency` (ns; null: lost, a miss), `err` (ns, maximum error of
    `latency`; null: unknown), and where there are such `repeat` and `id`; whole numbers all. `op`
    is one of `< <= > >=`.
    """
    n = len(table)

    def column(name: str, default: npt.NDArray[np.int64], null: int = 0) -> npt.NDArray[np.int64]:
        if name not in table.column_names:
            return default
        found: npt.NDArray[np.int64] = table[name].fill_null(null).to_numpy().astype(np.int64)
        return found

    start = column("start", np.arange(n))
    repeat, number = column("repeat", np.ones(n, np.int64)), column("id", np.arange(n))
    order = np.lexsort((number, start, repeat))
    lost = table["latency"].is_null().to_numpy()
    cases = timed(
        repeat=repeat[order],
        id=number[order],
        time=start[order],
        value=column("latency", start)[order],
        err=column("err", np.zeros(n, np.int64), UNKNOWN_NS)[order],
        lost=lost[order],
        op=op,
        limit=limit_ns,
        doubt=doubt or Doubt(),
    )
    return judge(cases, allowed)
