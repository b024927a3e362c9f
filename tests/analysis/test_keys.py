"""Keys of every type that a field can have, against the same path by a plain number."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from synthetic_run import Host, Row, SyntheticRun, event, path, with_tables

from loopscope.analysis import Verdict
from loopscope.experiment import Allowed, PathEdge, Requirement, Value
from loopscope.experiment.measures import key_of
from loopscope.timeline import RunError, open_run

OUT, IN = event("a", "io", "out"), event("b", "io", "in")
KEYS = {
    "large": lambda n: (1 << 63) + 7 * n,
    "mixed": lambda n: n if n % 2 else (1 << 64) - 1 - n,
    "text": lambda n: f"frame {n}",
    "raw": lambda n: bytes([n, 0, 255]),
    "negative": lambda n: -n,
    "tens": lambda n: n // 10,
    "ones": lambda n: n % 10,
    "frame": lambda n: n,
}
WHOLE = [name for name in KEYS if name not in ("tens", "ones")]
"""That number a message alone."""
HOSTS = [Host("h1", True, 0, 0.0)]


def fields(n, *but):
    return tuple((name, None if name in but else make(n)) for name, make in KEYS.items())


def crossing(n, repeat=1, **more):
    """Message n goes from a to b in 100 ns and a bit; every seventh is lost."""
    out = Row("a", "io:out", n, 10_000 * n, repeat=repeat, fields=fields(n))
    came = Row("b", "io:in", n, 10_000 * n + 100 + n, repeat=repeat, fields=fields(n))
    return [out] if n % 7 == 3 else [out, came]


ROWS = [row for repeat in (1, 2) for n in range(50) for row in crossing(n, repeat)]
LATE = Requirement("loop < 140ns", "time", "loop", None, None, "<", 140, None, Allowed(), None)


def analysed(tmp_path, paths, rows=ROWS, expect=(), **more):
    run = SyntheticRun(tmp_path, rows, HOSTS, paths=paths, expect=expect, repeats=2, **more)
    return with_tables(open_run(run.write()))


@pytest.mark.parametrize("key", [*WHOLE, key_of(["tens", "ones"]), key_of(["ones", "text"])])
def test_a_key_of_any_type_ties_messages_as_their_number_does(tmp_path, key):
    paths = [path("loop", key, [OUT, IN]), path("plain", "id", [OUT, IN])]
    results = analysed(tmp_path, paths, expect=[LATE, replace(LATE, path="plain")])
    by_key, plain = results.paths
    assert by_key.to_dict() == plain.to_dict()
    assert plain.loop.count == 100 and plain.loop.lost == 14
    one, other = results.expectations
    assert one.verdict is other.verdict is Verdict.FAIL
    whole = [each.id for each in other.deciding]
    made = [KEYS[field] for field in key.split(", ")]
    wanted = [[make(n) for make in made] for n in whole]
    wanted = [[each.hex() if isinstance(each, bytes) else each for each in of] for of in wanted]
    shown = [of[0] if len(of) == 1 else ", ".join(map(str, of)) for of in wanted]
    assert [each.id for each in one.deciding] == shown


@pytest.mark.parametrize("key", ["large", "mixed", "text", "raw"])
def test_the_table_of_a_path_has_the_key_itself(tmp_path, key):
    analysed(tmp_path, [path("loop", key, [OUT, IN])])
    table = pq.read_table(tmp_path / "base/2/tables/path-loop.parquet").to_pylist()
    assert [row["key"] for row in table] == [KEYS[key](n) for n in range(50)]
    assert len({row["id"] for row in table}) == 50


def test_a_key_of_several_fields_is_a_text_in_the_table(tmp_path):
    analysed(tmp_path, [path("loop", "tens, ones", [OUT, IN])])
    table = pq.read_table(tmp_path / "base/1/tables/path-loop.parquet").to_pylist()
    assert [row["key"] for row in table][9:12] == ["0, 9", "1, 0", "1, 1"]


def test_an_event_without_a_part_of_the_key_is_no_message(tmp_path):
    rows = [replace(row, fields=fields(row.id, "ones")) if row.id == 4 else row for row in ROWS]
    (found,) = analysed(tmp_path, [path("loop", "tens, ones", [OUT, IN])], rows).paths
    assert (found.loop.count, found.loop.lost) == (98, 14)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("text", "frame"), "is text and frame of io:out is a whole number|of one kind"),
        (("size", "size"), "size is no whole number, text or bytes of io:out; its fields: "),
        (("nonsense", "frame"), "nonsense is no field of io:in; its fields: "),
    ],
)
def test_a_key_that_cannot_be_one_is_an_error(tmp_path, keys, message):
    edges = (PathEdge(0, 1, "key", keys[0]),)
    graph = replace(path("loop", "id", [OUT, IN]), keys=(keys[1], keys[1]), edges=edges)
    with pytest.raises(RunError, match=message):
        analysed(tmp_path, [graph])


@pytest.mark.parametrize("key", ["large", "mixed", "text", "raw", "tens, ones", "ones, text"])
def test_a_graph_goes_by_a_key_of_any_type_and_on_with_another(tmp_path, key):
    """From `key` on to `frame`: the event b holds both."""

    def of(own):
        edges = (PathEdge(0, 1, "key", own),)
        return replace(path("loop", own, [OUT, IN]), keys=(own, "frame"), edges=edges)

    (found,) = analysed(tmp_path / "key", [of(key)]).graphs
    (plain,) = analysed(tmp_path / "plain", [of("id")]).graphs
    assert [{**each.to_dict(), "how": ""} for each in found.ends] == [
        {**each.to_dict(), "how": ""} for each in plain.ends
    ]
    assert plain.ends[0].used == 86
    table = pq.read_table(tmp_path / "key/base/1/tables/path-loop.parquet").to_pylist()
    came = [n for n in range(50) if n % 7 != 3]
    assert [row["key_1"] for row in table] == came
    made = [KEYS[field] for field in key.split(", ")]
    wanted = [[make(n) for make in made] for n in came]
    assert [row["key_value_0"] for row in table] == [
        of[0] if len(of) == 1 else ", ".join(map(str, of)) for of in wanted
    ]


SUMS = Value("sums", None, "io", "out", "frame", "sum", "", 1.0)


@pytest.mark.parametrize("per", ["tens", "text", "raw", "large", "tens, ones"])
def test_numbers_are_added_up_by_a_key_of_any_type(tmp_path, per):
    value = replace(SUMS, per=per, stat="max")
    (found,) = analysed(tmp_path, [], values=[value]).values
    assert found.value == (sum(range(40, 50)) if per == "tens" else 49)
    assert found.count == (2 * 5 if per == "tens" else 2 * 50)


def test_events_without_the_key_are_in_no_sum_and_are_counted(tmp_path):
    rows = [replace(row, fields=fields(row.id, "tens")) if row.id % 2 else row for row in ROWS]
    results = analysed(tmp_path, [], rows, values=[replace(SUMS, per="tens", stat="max")])
    (found,) = results.values
    assert (found.value, found.count) == (sum(range(40, 50, 2)), 2 * 5)
    assert "value sums: 50 events have no tens; they are left out" in results.problems


def test_a_component_that_emitted_nothing_has_no_sum(tmp_path):
    value = replace(SUMS, component="nobody", per="id")
    (found,) = analysed(tmp_path, [], values=[value], components=["nobody"]).values
    assert (found.value, found.count) == (None, 0)
