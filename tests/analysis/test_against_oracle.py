"""What Ibis and DuckDB find in a run is what plain Python finds in the same events."""

import dataclasses
import math
import tempfile
from fractions import Fraction
from pathlib import Path as FilePath

import pyarrow.parquet as pq
from effort import SOAK, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import Host, Row, SyntheticRun, event, expectation, path, with_tables
from test_statistic import plain

from loopscope.analysis import analyse
from loopscope.timeline import open_run

EVENTS = [("a", "io", "out"), ("b", "io", "in"), ("b", "io", "out"), ("c", "io", "in")]
HOSTS = [Host("h1", True, 0, 0.0), Host("h2", False, 9, 2e5), Host("h3", False, 9, None)]
STATISTICS = ("min", "mean", "p50", "p99", "p999", "max")


def occurrences(index):
    """One component's event; few ids, stamps that tie, any host."""
    component, group, name = EVENTS[index]
    return st.builds(
        Row,
        component=st.just(component),
        entity=st.just(f"{group}:{name}"),
        id=st.integers(0, 3),
        ts=st.integers(0, 4).map(lambda ts: 3 * ts * (index + 1)),
        err=st.integers(0, 5),
        host=st.sampled_from(["h1", "h2", "h3"] if index == 2 else ["h1", "h2"]),
        repeat=st.integers(1, 2),
    )


ROWS = st.tuples(*(st.lists(occurrences(i), max_size=14) for i in range(len(EVENTS)))).map(
    lambda lists: [row for rows in lists for row in rows]
)


class Oracle:
    def __init__(self, rows):
        self.seen = []
        for component, group, name in EVENTS:
            at_event = {}
            for row in rows:
                if (row.component, row.entity) == (component, f"{group}:{name}"):
                    at_event.setdefault((row.repeat, row.id), []).append(row)
            self.seen.append(at_event)
        self.population = set(self.seen[0])

    def first(self, index, message):
        found = self.seen[index].get(message, [])
        return min(found, key=lambda row: (row.ts, -row.err, row.host), default=None)

    def interval(self, first, last):
        """(length, maximum error) of each message, and how many were lost and duplicated."""
        measured, lost, duplicates = [], 0, 0
        for message in self.population:
            a, b = self.first(first, message), self.first(last, message)
            if a is None:
                continue
            if b is None:
                lost += 1
                continue
            duplicates += len(self.seen[last][message]) - 1
            width = a.err + b.err
            drift = next(host.drift_ppm for host in HOSTS if host.name == a.host)
            if a.host == b.host and drift is not None:
                wander = 2 * Fraction(drift) / 10**6 * abs(b.ts - a.ts)
                width = min(width, math.ceil(wander) + 1)
            measured.append((b.ts - a.ts, width))
        return measured, lost, duplicates


@settings(max_examples=cases(15, 400), deadline=None, derandomize=not SOAK)
@given(ROWS)
def test_every_statistic_of_every_interval(rows):
    oracle = Oracle(rows)
    loop = path("loop", "id", [event(*each) for each in EVENTS])
    expectations = [
        expectation(f"{hop} {stat}", stat, "<", 10, hop)
        for hop in (None, 0, 1, 2)
        for stat in STATISTICS
    ]
    with tempfile.TemporaryDirectory() as folder:
        components = ["a", "b", "c"]
        made = SyntheticRun(FilePath(folder), rows, HOSTS, components=components, repeats=2)
        run = open_run(made.write())
        results = with_tables(run, [loop], expectations)
        tables = [pq.read_table(file) for file in sorted(FilePath(folder).rglob("path-*.parquet"))]
        hops = run.hops.to_pyarrow().to_pylist()

    (found,) = results.paths
    parts = [(found.loop, loop.loop, None)]
    parts += [
        (hop, ends, i) for i, (hop, ends) in enumerate(zip(found.hops, loop.hops, strict=False))
    ]
    judged = {each.text: each for each in results.expectations}
    for part, ends, hop in parts:
        measured, lost, duplicates = oracle.interval(*ends)
        count = len(oracle.population) if hop is None else len(measured)
        assert (part.count, part.lost, part.duplicates) == (count, lost, duplicates)
        assert part.err_ns == max((e for _, e in measured), default=None)
        for stat in STATISTICS:
            verdict = judged[f"{hop} {stat}"]
            if not measured:
                assert part.times[stat] is verdict.measured is verdict.err_ns is None
                assert verdict.verdict == "UNKNOWN"
                continue
            value = plain(stat, [x for x, _ in measured])
            low = plain(stat, [x - e for x, e in measured])
            high = plain(stat, [x + e for x, e in measured])
            printed = value if stat != "mean" else float(round(value, 1))
            assert part.times[stat] == verdict.measured == printed
            assert verdict.err_ns == math.ceil(max(high - value, value - low))
            judgement = "PASS" if high < 10 else "FAIL" if low >= 10 else "UNKNOWN"
            assert verdict.verdict == judgement

    stamps = {}
    for table in tables:
        for row in table.to_pylist():
            stamps[row["repeat"], row["id"]] = row
    assert set(stamps) == oracle.population
    for message, row in stamps.items():
        for i in range(len(EVENTS)):
            first = oracle.first(i, message)
            expected = (None, None) if first is None else (first.ts, first.err)
            assert (row[f"ts_{i}"], row[f"err_{i}"]) == expected
    rows_of = stamps.values()
    for i, ends in enumerate(loop.hops):
        measured = sorted(oracle.interval(*ends)[0])
        seen = [(row[f"hop_{i}"], row[f"hop_err_{i}"]) for row in rows_of]
        assert sorted(each for each in seen if each != (None, None)) == measured
        listed = [row for row in hops if row["hop"] == i]
        assert sorted((row["duration"], row["err_ns"]) for row in listed) == measured
        for row in listed:
            assert row["path"] == "loop"
            assert row["start"] == stamps[row["repeat"], row["id"]][f"ts_{i}"]
    whole = [(row["latency"], row["latency_err"]) for row in rows_of]
    whole = [each for each in whole if each != (None, None)]
    assert sorted(whole) == sorted(oracle.interval(*loop.loop)[0])


def test_the_tables_and_the_json_are_the_same_bytes_each_time(tmp_path):
    from synthetic_run import pipeline

    run = open_run(pipeline(tmp_path, messages=3000, repeats=2, lose_every=7).write())
    made = []
    for _ in range(2):
        results = with_tables(run)
        files = sorted(tmp_path.rglob("path-*.parquet"))
        made.append((results.to_json(), [file.read_bytes() for file in files]))
    assert len(made[0][1]) == 2
    assert made[0] == made[1]


def test_a_path_table_has_the_columns_that_the_schema_names(tmp_path):
    from synthetic_run import PIPELINE, pipeline

    with_tables(open_run(pipeline(tmp_path, messages=50, repeats=2).write()))
    table = pq.read_table(tmp_path / "base" / "2" / "tables" / "path-loop.parquet")
    stamps = [f"{what}_{i}" for i in range(len(PIPELINE)) for what in ("ts", "err")]
    hops = [f"{what}_{i}" for i in range(len(PIPELINE) - 1) for what in ("hop", "hop_err")]
    assert table.column_names == ["repeat", "id", *stamps, *hops, "latency", "latency_err"]
    int64 = ["int64"] * (len(table.column_names) - 1)
    assert [str(type_) for type_ in table.schema.types] == ["int32", *int64]
    assert set(table["repeat"].to_pylist()) == {2}
    assert table["ts_0"].to_pylist() == sorted(table["ts_0"].to_pylist())


def test_another_column_can_be_the_key(tmp_path):
    from synthetic_run import pipeline

    by_id = analyse(open_run(pipeline(tmp_path / "id", lose_every=5).write()))
    made = pipeline(tmp_path / "seq", lose_every=5)
    made.paths = [dataclasses.replace(each, key="seq") for each in made.paths]
    assert analyse(open_run(made.write())).paths == by_id.paths
