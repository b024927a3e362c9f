"""The cost of recording, subtracted: by hand-made tables."""

import json

import pytest
from synthetic_run import Host, Row, SyntheticRun, event, expectation, path

from loopscope.analysis import AnalysisError, Verdict, analyse
from loopscope.report import render_terminal
from loopscope.timeline import open_run

# Three events on two hosts; the second message was not seen at the one in between.
ROWS = [
    Row("a", "g:out", 1, 1_000, 0, "h1"),
    Row("b", "g:mid", 1, 1_400, 0, "h2"),
    Row("c", "g:in", 1, 2_000, 0, "h1"),
    Row("a", "g:out", 2, 5_000, 0, "h1"),
    Row("c", "g:in", 2, 5_900, 0, "h1"),
]
COSTS = {"h1": (10.4, 1.2), "h2": (20.25, 0.5)}


def hosts(costs):
    return [
        Host(name, reference=name == "h1", max_err_ns=0, drift_ppm=0.0, event_cost_ns=cost)
        for name, cost in costs.items()
    ]


def run(tmp_path, costs=COSTS, subtract_cost=True, limit=960):
    loop = path(
        "loop", "id", [event("a", "g", "out"), event("b", "g", "mid"), event("c", "g", "in")]
    )
    expect = [expectation(f"loop.max <= {limit}ns", "max", "<=", limit)]
    made = SyntheticRun(tmp_path, ROWS, hosts(costs), [loop], expect, subtract_cost=subtract_cost)
    return open_run(made.write())


def lengths(results, first, last):
    found = results.messages["loop"].intervals(first, last)
    return list(zip(found.length.tolist(), found.err.tolist(), strict=True))


def test_each_event_from_the_first_to_the_one_before_the_last_costs_once(tmp_path):
    results = analyse(run(tmp_path))
    # 400 less h1's event, 10.4; maximum errors: 0 of the clock, 1.2 and the rounding's 0.4.
    assert lengths(results, 0, 1) == [(390, 2)]
    # 600 less h2's event, 20.25.
    assert lengths(results, 1, 2) == [(580, 1)]
    # 1000 less both, 30.65; 900 less the one that there was. The maximum error of one host's
    # stamps, 0, is less than what its rate may wander.
    assert lengths(results, 0, 2) == [(969, 3), (890, 2)]
    hosts = {"h1": {"event_ns": 10.4, "err_ns": 1.2}, "h2": {"event_ns": 20.25, "err_ns": 0.5}}
    assert json.loads(results.to_json())["subtracted"] == {"hosts": hosts}


def test_nothing_is_subtracted_where_nobody_asks(tmp_path):
    results = analyse(run(tmp_path, subtract_cost=False))
    assert lengths(results, 0, 2) == [(1000, 0), (900, 0)]
    assert json.loads(results.to_json())["subtracted"] is None


@pytest.mark.parametrize(("limit", "verdict"), [(972, "PASS"), (970, "UNKNOWN"), (965, "FAIL")])
def test_verdicts_are_of_what_is_left_and_allow_for_its_uncertainty(tmp_path, limit, verdict):
    (judged,) = analyse(run(tmp_path, limit=limit)).expectations
    assert judged.verdict is Verdict(verdict)


def test_a_cost_that_was_not_measured_is_an_error(tmp_path):
    with pytest.raises(AnalysisError, match="not measured on h2 in repeat 1"):
        analyse(run(tmp_path / "one", {"h1": (10.4, 1.2), "h2": None}))
    with pytest.raises(AnalysisError, match="run the experiment again"):
        analyse(run(tmp_path / "none", {"h1": None, "h2": None}))


def test_the_terminal_says_so(tmp_path, capsys):
    render_terminal(analyse(run(tmp_path)))
    said = capsys.readouterr().out
    assert "of each event subtracted: h1 10.40 ns ± 2 ns, h2 20.25 ns ± 1 ns" in said
