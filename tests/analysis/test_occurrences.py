"""Messages of one event as sorted columns, against a dictionary."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import SECOND, Host, Row, SyntheticRun, event, path, with_tables
from test_path_graph_verdicts import HELD, held

from loopscope.analysis import analyse
from loopscope.analysis.occurrences import NOWHERE, Column, Occurrences
from loopscope.timeline import open_run

ROWS = st.lists(
    st.tuples(st.integers(-2, 6), st.integers(0, 5), st.integers(0, 3), st.integers(0, 2)),
    max_size=25,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(ROWS, st.lists(st.integers(-3, 8), max_size=9))
def test_the_first_occurrence_counts_and_is_found_by_its_number(rows, asked):
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    ids, ts, err, host = columns
    fields = {"other": Column(ids * 10, ids >= 0)}
    made = Occurrences(ids, ts, err, host.astype(np.int16), fields)
    firsts = {}
    for row in sorted(rows, key=lambda row: (row[1], -row[2], row[3])):
        firsts.setdefault(row[0], row)
    wanted = sorted(firsts.values(), key=lambda row: (row[1], row[0]))
    assert list(zip(made.id, made.ts, made.err, made.host, strict=True)) == wanted
    assert made.times.tolist() == [sum(each[0] == row[0] for each in rows) for row in wanted]
    assert made.fields["other"].values.tolist() == [row[0] * 10 for row in wanted]
    assert made.fields["other"].known.tolist() == [row[0] >= 0 for row in wanted]
    numbers = [row[0] for row in wanted]
    places = [numbers.index(each) if each in numbers else NOWHERE for each in asked]
    assert made.find(np.array(asked, np.int64)).tolist() == places
    assert made.find(np.sort(ids[np.unique(ids, return_index=True)[1]])).tolist() == [
        numbers.index(each) for each in sorted(numbers)
    ]


def test_stamps_of_other_clocks_are_known_by_their_half_widths_only(tmp_path: Path):
    """A tool that has no counter stamps by a clock that may be corrected between two events."""
    rows = [Row("a", "io:out", 1, SECOND, 40), Row("a", "io:in", 1, SECOND + 5, 50)]
    loop = path("loop", "id", [event("a", "io", "out"), event("a", "io", "in")])
    folder = SyntheticRun(tmp_path, rows, [Host("h1", True, 0, 0.0)], components="a").write()
    assert analyse(open_run(folder), [loop], []).paths[0].loop.err_ns == 1
    [file] = folder.glob("base/1/timeline/io/in/*.parquet")
    table = pq.read_table(file)
    counter = table.column_names.index("counter")
    pq.write_table(table.set_column(counter, "counter", pa.nulls(1, pa.uint64())), file)
    assert analyse(open_run(folder), [loop], []).paths[0].loop.err_ns == 90


def test_a_graphs_tables_are_the_same_bytes_each_time(tmp_path: Path):
    rows = held(list(range(0, 90_000, 300)), list(range(100, 90_000, 700)), err=3)
    folder = SyntheticRun(tmp_path, rows, [Host("h1", True, 0, 0.0)], paths=[HELD]).write()
    made = []
    for _ in range(2):
        results = with_tables(open_run(folder))
        [file] = folder.rglob("path-way.parquet")
        made.append((results.to_json(), file.read_bytes()))
    assert made[0] == made[1]
    integers = ["sink", "undecided"]
    kinds = {
        each.name: str(each.type) for each in pq.read_schema(file) if each.name not in integers
    }
    assert kinds.pop("repeat") == "int32" and set(kinds.values()) == {"int64"}
    assert list(pq.read_schema(file).names)[-5:] == [
        "latency",
        "latency_err",
        "age",
        "age_err",
        "undecided",
    ]
