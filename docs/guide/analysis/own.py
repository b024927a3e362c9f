import ibis
import numpy as np
import pyarrow as pa


def streaks(table, limit):
    within = {"group_by": ["run", "repeat"], "order_by": ["start", "id"]}
    late = (table.duration >= limit).fill_null(True)
    begins = late & ~late.lag(1).over(ibis.window(**within)).fill_null(False)
    marked = table.mutate(late=late, begins=begins.cast("int64"))
    streak = marked.begins.sum().over(ibis.cumulative_window(**within))
    return marked.mutate(streak=streak).filter("late").drop("late", "begins")


def correlation(batches, lag=1):
    x = pa.Table.from_batches(batches)["duration"].drop_null().to_numpy()
    found = np.corrcoef(x[:-lag], x[lag:])[0, 1]
    yield pa.record_batch({"lag": [lag], "correlation": [found]})
