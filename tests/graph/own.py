import pyarrow as pa
import pyarrow.compute as pc


def doubled(table):
    return table.mutate(x=table.x * 2)


def totals(batches):
    table = pa.Table.from_batches(batches)
    grouped = table.group_by(["repeat", "id"]).aggregate([("x", "sum"), ("x", "mean")])
    names = ["repeat", "id", "total", "mean"]
    grouped = grouped.rename_columns(names)
    assert pc.sum(pc.is_valid(grouped["repeat"])).as_py() == grouped.num_rows
    yield from grouped.to_batches()
