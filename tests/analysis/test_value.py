"""Values of entities against plain Python."""

import json
import math
import statistics
from dataclasses import replace

import pytest
from synthetic_run import Row, SyntheticRun, event, expectation, path

from loopscope.analysis import AnalysisError, Verdict, analyse
from loopscope.experiment import Expectation, Value
from loopscope.report.rows import value_rows
from loopscope.timeline import RunError, open_run

ROWS = [
    Row(component, "s:second", second, 1_000 * second + repeat + i, repeat=repeat)
    for repeat in (1, 2)
    for i, component in enumerate(("a", "b", "a"))
    for second in range(7 + repeat)
]
RATE = Value("rate", "a", "s", "second", "seq", "mean", "bit/s", 8.0)


def of(tmp_path, *values, rows=ROWS, expect=(), **more):
    run = SyntheticRun(
        tmp_path, rows, paths=[], expect=expect, values=values, repeats=2, **more
    ).write()
    results = analyse(open_run(run))
    return {each.name: each for each in results.values}, results


def samples(component):
    return [8.0 * row.id for row in ROWS if component in (None, row.component)]


@pytest.mark.parametrize(
    ("stat", "oracle"),
    [
        ("mean", statistics.fmean),
        ("deviation", statistics.pstdev),
        ("min", min),
        ("max", max),
        ("sum", math.fsum),
        ("p50", lambda values: sorted(values)[math.ceil(0.5 * len(values)) - 1]),
        ("p99", lambda values: sorted(values)[math.ceil(0.99 * len(values)) - 1]),
        # The last of the last repeat.
        ("last", lambda values: 8.0 * 8),
    ],
)
@pytest.mark.parametrize("component", ["a", None])
def test_statistics_agree_with_plain_python(tmp_path, stat, oracle, component):
    found, results = of(tmp_path, replace(RATE, stat=stat, component=component))
    assert found["rate"].value == pytest.approx(oracle(samples(component)))
    assert found["rate"].count == len(samples(component))
    assert results.to_dict()["values"]["rate"]["unit"] == "bit/s"


@pytest.mark.parametrize(("stat", "oracle"), [("sum", math.fsum), ("deviation", statistics.pstdev)])
def test_each_repeat_is_shown_beside_all_together(tmp_path, stat, oracle):
    found, results = of(tmp_path, replace(RATE, stat=stat))
    alone = {
        repeat: oracle(
            [8.0 * row.id for row in ROWS if row.repeat == repeat and row.component == "a"]
        )
        for repeat in (1, 2)
    }
    assert found["rate"].by_repeat == pytest.approx(alone)
    assert results.to_dict()["values"]["rate"]["by_repeat"] == pytest.approx(
        {str(repeat): each for repeat, each in alone.items()}
    )
    ((_, shown),) = value_rows(results)
    assert " (of each repeat " in shown
    counted, _ = of(tmp_path / "n", Value("n", "b", "s", "second", None, "count", "", 1.0))
    assert counted["n"].by_repeat == {1: 8, 2: 9}


def test_events_are_counted(tmp_path):
    found, _ = of(tmp_path, Value("n", "b", "s", "second", None, "count", "", 1.0))
    assert (found["n"].value, found["n"].unit) == (8 + 9, "")


def test_what_belongs_together_is_added_first_and_ends_are_left_out(tmp_path):
    per = replace(RATE, component=None, per="id")
    found, _ = of(tmp_path, per, replace(per, name="inner", skip_first=2, skip_last=3))
    # Three processes tell of each second.
    whole = [3 * 8.0 * second for repeat in (1, 2) for second in range(7 + repeat)]
    inner = [3 * 8.0 * second for repeat in (1, 2) for second in range(2, 7 + repeat - 3)]
    assert found["rate"].value == pytest.approx(statistics.fmean(whole))
    assert found["inner"].value == pytest.approx(statistics.fmean(inner))
    assert found["inner"].count == len(inner)


def test_nothing_recorded_is_no_number(tmp_path):
    never = replace(RATE, event="never", stat="mean")
    expect = [Expectation("rate > 1bit", "rate", None, None, ">", 1.0, False)]
    found, results = of(tmp_path, never, expect=expect)
    assert (found["rate"].value, found["rate"].count) == (None, 0)
    assert any("no s:never was recorded" in problem for problem in results.problems)
    assert results.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("op", "value", "verdict"),
    [("<", 24.0, "FAIL"), ("<=", 31.0, "PASS"), (">", 31.0, "FAIL"), ("!=", 1.0, "PASS")],
)
def test_expectations_of_values_are_judged(tmp_path, op, value, verdict):
    expect = [Expectation("rate", "rate", None, None, op, value, False)]
    _, results = of(tmp_path, RATE, expect=expect)
    (judged,) = results.expectations
    assert 24.0 < judged.measured < 31.0
    assert str(judged.verdict) == verdict
    assert (judged.unit, judged.err_ns) == ("bit/s", None)


def test_dropped_events_leave_it_open(tmp_path):
    expect = [Expectation("rate", "rate", None, None, "<=", 1e9, False)]
    _, results = of(tmp_path, RATE, expect=expect, drops={("a", "s:second"): 1})
    (judged,) = results.expectations
    assert judged.verdict is Verdict.UNKNOWN
    assert "up to 1 events may be missing" in judged.reason


def test_a_field_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(RunError, match="host is no number of s:second; its fields: .*seq"):
        of(tmp_path, replace(RATE, field="host"))


def test_a_run_without_values_says_nothing_of_them(tmp_path):
    found = path("loop", "id", [event("a", "s", "second"), event("b", "s", "second")])
    run = SyntheticRun(tmp_path, ROWS[:20], paths=[found], expect=[expectation("x", "p99", "<", 5)])
    document = analyse(open_run(run.write())).to_dict()
    assert "values" not in document
    assert "unit" not in document["expectations"][0]


def test_an_expectation_of_no_value_is_an_error(tmp_path):
    expect = [Expectation("rote", "rote", None, None, "<", 1.0, False)]
    with pytest.raises(AnalysisError, match="no value 'rote'; there is: rate"):
        of(tmp_path, RATE, expect=expect)


def of_numbers(tmp_path, *numbers, expect=(), **more):
    """A value of the field `x`, which has these numbers."""
    rows = [Row("a", "s:second", i, 1_000 * i, fields=(("x", x),)) for i, x in enumerate(numbers)]
    value = replace(RATE, field="x", scale=1.0, unit="", **more)
    run = SyntheticRun(tmp_path, rows, values=[value], expect=expect).write()
    results = analyse(open_run(run))
    # No number that JSON does not know.
    json.loads(results.to_json(), parse_constant=pytest.fail)
    return results


@pytest.mark.parametrize("stat", ["mean", "sum", "max", "p99", "last", "deviation"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_depends_on_a_number_that_is_not_finite_is_unknown(tmp_path, stat, number):
    expect = [Expectation("rate", "rate", None, None, "<=", 1e9, False)]
    results = of_numbers(tmp_path, 1.0, number, 2.0, expect=expect, stat=stat)
    (value,), (judged,) = results.values, results.expectations
    assert (value.count, value.not_finite) == (3, 1)
    assert math.isfinite(value.value)
    assert judged.verdict is Verdict.UNKNOWN
    assert "1 of 3 numbers are not finite" in judged.reason
    assert any("1 of 3 numbers are not finite (NaN or infinite)" in p for p in results.problems)


def test_a_count_does_not_depend_on_what_is_counted(tmp_path):
    expect = [Expectation("rate", "rate", None, None, "==", 2, False)]
    results = of_numbers(tmp_path, 1.0, math.nan, expect=expect, stat="count")
    assert results.verdict is Verdict.PASS


@pytest.mark.parametrize("stat", ["mean", "sum", "deviation"])
def test_a_number_that_is_too_large_to_be_held_is_no_measurement(tmp_path, stat):
    expect = [Expectation("rate", "rate", None, None, "<=", 1e9, False)]
    results = of_numbers(tmp_path, 1.7e308, 1.7e308, -1.7e308, expect=expect, stat=stat)
    assert results.verdict is Verdict.UNKNOWN or math.isfinite(results.values[0].value)


@pytest.mark.parametrize("numbers", [(math.inf, -math.inf), (1.7e308, 1.7e308)])
def test_what_is_added_first_may_be_beyond_every_number(tmp_path, numbers):
    rows = [Row("a", "s:second", 7, i, fields=(("x", x),)) for i, x in enumerate(numbers)]
    value = replace(RATE, field="x", per="id")
    results = analyse(open_run(SyntheticRun(tmp_path, rows, values=[value]).write()))
    assert (results.values[0].value, results.values[0].not_finite) == (None, 1)


def test_a_program_that_had_no_such_event_has_none_of_them(tmp_path):
    count = replace(RATE, name="count", event="fault", field=None, stat="count", unit="")
    mean = replace(RATE, event="fault")
    # A process's account names the call sites that were switched on, hit or not.
    for drops, problems in (({("a", "s:fault"): 0}, ["rate"]), ({}, ["count", "rate"])):
        found, results = of(tmp_path / f"{len(problems)}", count, mean, drops=drops)
        assert found["count"].value == 0
        said = [each for each in results.problems if "no s:fault was recorded at all" in each]
        assert [each.split()[1].rstrip(":") for each in said] == problems


def test_another_component_s_call_site_is_no_evidence(tmp_path):
    count = Value("count", "b", "s", "fault", None, "count", "", 1.0)
    _, results = of(tmp_path, count, drops={("a", "s:fault"): 0})
    assert any("no s:fault was recorded at all" in each for each in results.problems)
