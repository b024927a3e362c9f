"""Every step on DuckDB against the same in plain Python, on small random tables."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from judged_tables import judge_table
from small_tables import TYPES, Row, alike, made_of

from loopscope.experiment import Allowed
from loopscope.graph.engine import DuckDB

pytestmark = pytest.mark.full

UNKNOWN = 1 << 60
MAYBE = st.none()
rows = st.lists(
    st.fixed_dictionaries(
        {
            "repeat": st.integers(1, 2),
            "ts": st.integers(-15, 15),
            "err_ns": st.sampled_from([0, 1, 7, UNKNOWN]),
            "id": st.integers(0, 4),
            "host": MAYBE | st.sampled_from(["h1", "h2", "é"]),
            "x": MAYBE | st.integers(-20, 20),
            "real": MAYBE | st.floats(-1e3, 1e3, width=32),
        }
    ),
    max_size=20,
)


def dense(seed: int) -> list[Row]:
    """A table in which everything meets everything."""
    chance = random.Random(seed)
    return [
        {
            "repeat": chance.choice([1, 2]),
            "ts": chance.randrange(-15, 16),
            "err_ns": chance.choice([0, 1, 7, UNKNOWN]),
            "id": chance.randrange(3),
            "host": chance.choice([None, "h1", "h2", "é"]),
            "x": chance.choice([None, chance.randrange(-20, 20)]),
            "real": chance.choice([None, -0.0, 0.0, chance.uniform(-9, 9)]),
        }
        for _ in range(70)
    ]


def one_table(test: Callable[..., None]) -> Callable[..., None]:
    return given(table=rows)(example(table=dense(1))(test))


def two_tables(test: Callable[..., None]) -> Callable[..., None]:
    return given(left=rows, right=rows)(example(left=dense(1), right=dense(2))(test))


def full(rows: list[Row]) -> list[Row]:
    """With every column, in the tables' order; -0.0 is 0.0."""
    return [
        {key: 0.0 if key == "real" and row.get(key) == 0 else row.get(key) for key in TYPES}
        for row in rows
    ]


def by(rows: list[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


def sortable(value: Any) -> tuple[bool, Any]:
    """Nulls last."""
    return (value is None, value if value is not None else 0)


def in_order(rows: list[Row], *first: str) -> list[Row]:
    keys = [*first, *(key for key in TYPES if key not in first)]
    return sorted(rows, key=lambda row: [sortable(row[key]) for key in keys])


FORMULAS: list[tuple[str, Callable[[Row], Any]]] = [
    ("x + 3 * id - 1", lambda r: None if r["x"] is None else r["x"] + 3 * r["id"] - 1),
    ("-x", lambda r: None if r["x"] is None else -r["x"]),
    ("x / id", lambda r: None if r["x"] is None or r["id"] == 0 else r["x"] / r["id"]),
    ("ts // 7", lambda r: int(r["ts"] / 7)),
    ("x // id", lambda r: None if r["x"] is None or not r["id"] else int(r["x"] / r["id"])),
    ("ts % 7", lambda r: int(math.fmod(r["ts"], 7))),
    ("abs(x)", lambda r: None if r["x"] is None else abs(r["x"])),
    ("round(ts / 4)", lambda r: int(math.copysign(math.floor(abs(r["ts"] / 4) + 0.5), r["ts"]))),
    ("floor(ts / 4)", lambda r: math.floor(r["ts"] / 4)),
    ("ceil(ts / 4)", lambda r: math.ceil(r["ts"] / 4)),
    ("sqrt(x)", lambda r: None if r["x"] is None or r["x"] < 0 else math.sqrt(r["x"])),
    ("ln(x)", lambda r: None if r["x"] is None or r["x"] <= 0 else math.log(r["x"])),
    ("log10(x)", lambda r: None if r["x"] is None or r["x"] <= 0 else math.log10(r["x"])),
    ("exp(id)", lambda r: math.exp(r["id"])),
    ("real(id)", lambda r: float(r["id"])),
    ("text(ts) || '!'", lambda r: f"{r['ts']}!"),
    ("least(x, id, ts)", lambda r: min(v for v in (r["x"], r["id"], r["ts"]) if v is not None)),
    ("greatest(x, id)", lambda r: max(v for v in (r["x"], r["id"]) if v is not None)),
    ("coalesce(x, 1ms)", lambda r: 1_000_000 if r["x"] is None else r["x"]),
    ("nullif(id, 2)", lambda r: None if r["id"] == 2 else r["id"]),
    ("if(ts > 0, 'a', host)", lambda r: "a" if r["ts"] > 0 else r["host"]),
    ("case when id = 1 then 5 when id = 2 then 6 end", lambda r: {1: 5, 2: 6}.get(r["id"])),
    ("length(host)", lambda r: None if r["host"] is None else len(r["host"])),
    ("upper(host)", lambda r: None if r["host"] is None else r["host"].upper()),
    ("lower(upper(host))", lambda r: r["host"]),
    ("contains(host, '2')", lambda r: None if r["host"] is None else "2" in r["host"]),
    ("starts_with(host, 'h')", lambda r: None if r["host"] is None else r["host"][0] == "h"),
    ("ends_with(host, '2')", lambda r: None if r["host"] is None else r["host"][-1] == "2"),
    ("x is null", lambda r: r["x"] is None),
    ("host is not null", lambda r: r["host"] is not None),
    ("id in (1, 3)", lambda r: r["id"] in (1, 3)),
    ("id between 1 and 3 and not ts < 0", lambda r: 1 <= r["id"] <= 3 and r["ts"] >= 0),
    ("x > 0 or id = 1", lambda r: True if r["id"] == 1 else r["x"] and r["x"] > 0),
    ("id != 1", lambda r: r["id"] != 1),
]


@one_table
def test_formulas(duckdb: DuckDB, table: list[Row]) -> None:
    names = [f"f{i}" for i in range(len(FORMULAS))]
    asked = ", ".join(f'{name}: "{text}"' for name, (text, _) in zip(names, FORMULAS, strict=True))
    found = made_of(
        f"[{{derive: {{{asked}}}}}, {{select: [ts, {', '.join(names)}]}}]", {"a.a": table}, duckdb
    )

    wanted = []
    for row in full(table):
        made: Row = {"ts": row["ts"]}
        for name, (text, meant) in zip(names, FORMULAS, strict=True):
            made[name] = meant(row)
            if text == "x > 0 or id = 1" and row["id"] != 1:
                made[name] = None if row["x"] is None else row["x"] > 0
        wanted.append(made)
    alike(found, wanted)


@one_table
def test_where_keeps_what_is_true_and_not_what_is_null(duckdb: DuckDB, table: list[Row]) -> None:
    found = made_of("[where: x > 0]", {"a.a": table}, duckdb)
    alike(found, [row for row in full(table) if row["x"] is not None and row["x"] > 0])


@one_table
def test_select_and_rename(duckdb: DuckDB, table: list[Row]) -> None:
    steps = "[{select: [id, repeat, x]}, {rename: {x: id, id: x}}]"
    found = made_of(steps, {"a.a": table}, duckdb)
    alike(found, [{"x": r["id"], "repeat": r["repeat"], "id": r["x"]} for r in table])


@one_table
def test_trim_is_of_each_repeat(duckdb: DuckDB, table: list[Row]) -> None:
    found = made_of("[trim: {first: 10ns, last: 5ns}]", {"a.a": table}, duckdb)
    wanted = []
    for own in by(full(table), "repeat").values():
        first, last = min(r["ts"] for r in own), max(r["ts"] for r in own)
        wanted += [r for r in own if first + 10 <= r["ts"] <= last - 5]
    alike(found, wanted)


@one_table
def test_top_breaks_ties_by_the_other_columns(duckdb: DuckDB, table: list[Row]) -> None:
    found = made_of("[top: {rows: 2, of: x, by: repeat}]", {"a.a": table}, duckdb)
    wanted = []
    for own in by([r for r in full(table) if r["x"] is not None], "repeat").values():
        wanted += sorted(in_order(own), key=lambda r: -r["x"])[:2]
    alike(found, wanted)


@one_table
def test_window_of_rows(duckdb: DuckDB, table: list[Row]) -> None:
    steps = (
        "[window: {rows: 3, by: err_ns, derive: {n: count(), s: sum(x), m: mean(x), lo: min(x), "
        "before: lag(ts), after: 'lead(ts, 2)', first: first(ts), row: row(), h: count(host), "
        "c: count_if(x > 0)}}]"
    )
    found = made_of(steps, {"a.a": table}, duckdb)
    wanted = []
    for own in by(full(table), "repeat", "err_ns").values():
        own = in_order(own, "ts")
        for i, row in enumerate(own):
            frame = own[max(0, i - 2) : i + 1]
            xs = [r["x"] for r in frame if r["x"] is not None]
            wanted.append(
                row
                | {
                    "n": len(frame),
                    "s": sum(xs) if xs else None,
                    "m": sum(xs) / len(xs) if xs else None,
                    "lo": min(xs) if xs else None,
                    "before": own[i - 1]["ts"] if i else None,
                    "after": own[i + 2]["ts"] if i + 2 < len(own) else None,
                    "first": frame[0]["ts"],
                    "row": i + 1,
                    "h": sum(r["host"] is not None for r in frame),
                    "c": sum(x > 0 for x in xs),
                }
            )
    alike(found, wanted)


@one_table
def test_window_of_time_takes_all_rows_of_an_instant(duckdb: DuckDB, table: list[Row]) -> None:
    found = made_of(
        "[window: {time: 20ns, derive: {n: count(), hi: max(x)}}]", {"a.a": table}, duckdb
    )
    wanted = []
    for own in by(full(table), "repeat").values():
        for row in own:
            frame = [r for r in own if row["ts"] - 20 <= r["ts"] <= row["ts"]]
            xs = [r["x"] for r in frame if r["x"] is not None]
            wanted.append(row | {"n": len(frame), "hi": max(xs) if xs else None})
    alike(found, wanted)


@one_table
def test_resample_has_a_row_for_every_stretch(duckdb: DuckDB, table: list[Row]) -> None:
    steps = "[resample: {every: 15ns, by: id, derive: {n: count(), s: sum(x), c: count_if(x > 0)}}]"
    found = made_of(steps, {"a.a": table}, duckdb)
    wanted = []
    for (repeat,), own in by(table, "repeat").items():
        first, last = min(r["ts"] for r in own), max(r["ts"] for r in own)
        for number in {r["id"] for r in own}:
            for start in range(first, last + 1, 15):
                here = [r for r in own if r["id"] == number and start <= r["ts"] < start + 15]
                xs = [r["x"] for r in here if r["x"] is not None]
                counts = {"n": len(here), "s": sum(xs) if xs else None, "c": sum(x > 0 for x in xs)}
                wanted.append({"repeat": repeat, "id": number, "start": start, **counts})
    alike(found, wanted)


@one_table
def test_group(duckdb: DuckDB, table: list[Row]) -> None:
    steps = (
        "[group: {by: host, derive: {n: count(), d: count_distinct(x), r: max(real), "
        "share: 'count_if(x > 0) / count()', s: sum(x + id)}}]"
    )
    found = made_of(steps, {"a.a": table}, duckdb)
    wanted = []
    for (host,), own in by(table, "host").items():
        xs = [r["x"] for r in own if r["x"] is not None]
        reals = [r["real"] for r in own if r["real"] is not None]
        sums = [r["x"] + r["id"] for r in own if r["x"] is not None]
        made = {"n": len(own), "d": len(set(xs)), "r": max(reals) if reals else None}
        made |= {"share": sum(x > 0 for x in xs) / len(own), "s": sum(sums) if sums else None}
        wanted.append({"host": host, **made})
    alike(found, wanted)


@one_table
def test_histogram_bins_are_aligned_to_zero(duckdb: DuckDB, table: list[Row]) -> None:
    found = made_of("[histogram: {of: x, bin: 6, by: repeat}]", {"a.a": table}, duckdb)
    counts = Counter((r["repeat"], r["x"] // 6 * 6) for r in table if r["x"] is not None)
    alike(
        found,
        [{"repeat": r, "low": low, "high": low + 6, "count": n} for (r, low), n in counts.items()],
    )


@one_table
def test_statistics_are_those_of_the_values(duckdb: DuckDB, table: list[Row]) -> None:
    steps = (
        "[statistics: {of: x, width: err_ns, by: host, resamples: 100, "
        "statistics: [mean, deviation, min, p50, p90, max]}]"
    )
    found = {(r["host"], r["statistic"]): r for r in made_of(steps, {"a.a": table}, duckdb)}
    groups = by(table, "host")
    assert len(found) == 6 * len(groups)
    for (host,), own in groups.items():
        values = sorted(r["x"] for r in own if r["x"] is not None)
        n = len(values)
        row = found[host, "mean"]
        assert (row["count"], row["missing"]) == (n, len(own) - n)
        if not n:
            assert row["value"] is row["low"] is row["err"] is None
            continue
        mean = sum(values) / n
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / n)
        ranks = {name: values[max(1, math.ceil(q * n)) - 1] for name, q in PERCENTILES.items()}
        wanted = {"mean": mean, "min": values[0], "max": values[-1], **ranks}
        assert {name: found[host, name]["value"] for name in wanted} == pytest.approx(wanted)
        assert found[host, "deviation"]["value"] == pytest.approx(deviation, abs=0.06)
        for name in ("mean", *PERCENTILES):
            row = found[host, name]
            if n > 1:
                assert values[0] <= row["low"] <= row["high"] <= values[-1]
            widths = [r["err_ns"] for r in own if r["x"] is not None]
            if UNKNOWN in widths:
                assert row["err"] is None or name != "mean"
            else:
                assert row["err"] <= max(widths)


PERCENTILES = {"p50": Fraction(1, 2), "p90": Fraction(9, 10)}


@two_tables
def test_join_by_key(duckdb: DuckDB, left: list[Row], right: list[Row]) -> None:
    tables = {"a.a": left, "b.b": right}
    for how in ("inner", "left"):
        kept = "{select: [repeat, id, ts, x_right]}"
        steps = f"[{{join: {{with: b.b, on: [id], how: {how}}}}}, {kept}]"
        found = made_of(steps, tables, duckdb)
        wanted = []
        for a in left:
            partners = [b for b in right if (b["repeat"], b["id"]) == (a["repeat"], a["id"])]
            if how == "left" and not partners:
                partners = [{"x": None}]
            wanted += [
                {key: a[key] for key in ("repeat", "id", "ts")} | {"x_right": b["x"]}
                for b in partners
            ]
        alike(found, wanted)


@two_tables
def test_join_by_time_takes_the_last_row_before(
    duckdb: DuckDB, left: list[Row], right: list[Row]
) -> None:
    for within in (None, 2):
        limit = f", within: {within}ns" if within else ""
        kept = "{select: [repeat, id, ts, ts_right, x_right]}"
        steps = f"[{{as-of: {{with: b.b, by: id{limit}}}}}, {kept}]"
        found = made_of(steps, {"a.a": left, "b.b": right}, duckdb)
        wanted = []
        for a in left:
            before = [
                b
                for b in full(right)
                if (b["repeat"], b["id"]) == (a["repeat"], a["id"]) and b["ts"] <= a["ts"]
            ]
            last = in_order(before, "ts")[-1] if before else None
            if last and within and a["ts"] - last["ts"] > within:
                last = None
            made = {key: a[key] for key in ("repeat", "id", "ts")}
            made |= {"ts_right": last and last["ts"], "x_right": last and last["x"]}
            wanted.append(made)
        alike(found, wanted)


@two_tables
def test_merge_says_where_a_row_is_from(duckdb: DuckDB, left: list[Row], right: list[Row]) -> None:
    found = made_of("[merge: b.b]", {"a.a": left, "b.b": right}, duckdb)
    wanted = [
        row | {"source": name}
        for name, each in (("a.a", left), ("b.b", right))
        for row in full(each)
    ]
    alike(found, wanted)
    instants = [(row["repeat"], row["ts"]) for row in found]
    assert instants == sorted(instants)


@two_tables
def test_pair_adds_the_widths(duckdb: DuckDB, left: list[Row], right: list[Row]) -> None:
    found = made_of("[pair: {with: b.b, key: id, keep: x}]", {"a.a": left, "b.b": right}, duckdb)
    ends = by(full(right), "repeat", "id")
    wanted = []
    for (repeat, number), starts in by(full(left), "repeat", "id").items():
        after = in_order(ends.get((repeat, number), []), "ts")
        for i, start in enumerate(in_order(starts, "ts")):
            end = after[i] if i < len(after) else None
            width = None
            if end:
                width = start["err_ns"] + end["err_ns"]
                width = UNKNOWN if width >= UNKNOWN else width
            elif start["err_ns"] == UNKNOWN:
                width = UNKNOWN
            made = {"repeat": repeat, "id": number, "start": start["ts"], "err_ns": width}
            made |= {"end": end and end["ts"], "x": start["x"]}
            wanted.append(made | {"duration": end["ts"] - start["ts"] if end else None})
    alike(found, wanted)


@given(table=rows, misses=st.sampled_from(["1", "25%", "100%", "0"]))
@example(table=dense(1), misses="60%")
def test_deadline_decides_only_what_the_width_lets_it(
    duckdb: DuckDB, table: list[Row], misses: str
) -> None:
    steps = f"[deadline: {{of: x, limit: 5ns, misses: {misses}, by: repeat}}]"
    found = made_of(steps, {"a.a": table}, duckdb)
    wanted = []
    for (repeat,), own in by(table, "repeat").items():
        known = [r for r in own if r["x"] is not None and r["err_ns"] < UNKNOWN]
        met = sum(r["x"] + r["err_ns"] < 5 for r in known)
        missed = sum(r["x"] - r["err_ns"] >= 5 for r in known) + sum(r["x"] is None for r in own)
        n, open_ = len(own), len(own) - met - missed
        share = misses.endswith("%")
        allowed = n * int(misses[:-1]) // 100 if share else int(misses)
        verdict = "FAIL" if missed > allowed else "PASS" if missed + open_ <= allowed else "UNKNOWN"
        counts = {"count": n, "met": met, "missed": missed, "undecided": open_}
        wanted.append(
            {"repeat": repeat, "limit": 5, **counts, "allowed": allowed, "verdict": verdict}
        )
    alike(found, wanted)


@given(table=rows, met=st.sampled_from([0, 40, 75, 90, 100]), n=st.integers(0, 9))
def test_deadline_says_what_expect_does(duckdb: DuckDB, table: list[Row], met: int, n: int) -> None:
    """Also of no row."""
    table = table[:n]
    steps = f"[deadline: {{of: x, limit: 5ns, misses: {100 - met}%}}]"
    (found,) = made_of(steps, {"a.a": table}, duckdb)
    latency = pa.array([row["x"] for row in table], pa.int64())
    err = pa.array([row["err_ns"] for row in table], pa.int64())
    start = pa.array(range(len(table)), pa.int64())
    columns = pa.table({"start": start, "latency": latency, "err": err})
    judged = judge_table(columns, "<", 5, Allowed(met_ppb=met * 10_000_000))
    counts = judged.counts
    assert found["verdict"] == str(judged.verdict)
    assert (found["met"], found["missed"], found["undecided"]) == (
        counts.met,
        counts.missed,
        counts.undecided,
    )


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_counted_as_missing(duckdb: DuckDB, number: float) -> None:
    rows = [{"repeat": 1, "real": real} for real in (1.0, 3.0, number)]
    steps = "[{statistics: {of: real, width: none, statistics: [mean, max]}}]"
    for found in made_of(steps, {"a.a": rows}, duckdb):
        assert (found["count"], found["missing"]) == (2, 1)
        assert math.isfinite(found["value"])
