"""The table of paths and hops as CSV holds what the JSON holds, as another reader reads it."""

import io

import duckdb
from synthetic_run import pipeline, with_tables, write_sweep

from loopscope.analysis import analyse, analyse_sweep
from loopscope.report.interval_csv import write_csv
from loopscope.timeline import open_run, points_of

COUNTS = ("count", "lost", "duplicates")
TIMES = ("min_ns", "mean_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns", "err_ns")


def read(results, folder):
    """The rows, by DuckDB."""
    text = io.StringIO()
    write_csv(results, text)
    (folder / "table.csv").write_text(text.getvalue())
    found = duckdb.sql(f"select * from read_csv('{folder / 'table.csv'}', header=true)")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def expected(paths):
    """Rows of the JSON's paths, without the ends of a whole path, which it has not."""
    for name, path in paths.items():
        rows = [(None, None, path)]
        rows += [(int(repeat), None, each) for repeat, each in path.get("by_repeat", {}).items()]
        rows += [(None, number, hop) for number, hop in enumerate(path["hops"], start=1)]
        for repeat, hop, each in rows:
            values = {key: each[key] for key in (*COUNTS, *TIMES)}
            ends = {"from": each["from"], "to": each["to"]} if hop else {}
            yield {"path": name, "repeat": repeat, "hop": hop, **ends, **values}


def compare(rows, wanted):
    wanted = list(wanted)
    assert len(rows) == len(wanted) > 1
    for row, each in zip(rows, wanted, strict=True):
        assert each.items() <= row.items()


def test_it_holds_the_numbers_of_the_json(tmp_path):
    made = pipeline(tmp_path / "run", messages=1500, lose_every=300)
    results = analyse(open_run(made.write()))
    rows = read(results, tmp_path)
    compare(rows, expected(results.to_dict()["paths"]))
    assert rows[0]["lost"] == 5 and rows[1]["from"] == rows[0]["from"]
    assert rows[-1]["to"] == rows[0]["to"]


def test_a_sweeps_rows_begin_with_its_parameters(tmp_path):
    swept = tmp_path / "sweep"
    points = [({"delay": each}, pipeline(swept, messages=50)) for each in ("0ms", "10ms")]
    write_sweep(points, {})
    for point in points_of(swept):
        with_tables(open_run(swept, point))
    results = analyse_sweep(swept)
    rows = read(results, tmp_path)
    for delay, point in zip(("0ms", "10ms"), results.points, strict=True):
        mine = [row for row in rows if row["delay"] == delay]
        compare(mine, expected(point.results.to_dict()["paths"]))
