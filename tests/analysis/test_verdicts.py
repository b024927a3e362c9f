"""PASS and FAIL only where the measurement allows nothing else."""

import dataclasses
import json

import pyarrow.parquet as pq
import pytest
from synthetic_run import Host, Row, SyntheticRun, event, expectation, path, pipeline, with_tables

from loopscope.analysis import AnalysisError, Verdict, analyse
from loopscope.analysis.bounded_statistics import Bracket
from loopscope.analysis.verdict import judge as judge_bracket
from loopscope.analysis.verdict import overall
from loopscope.experiment import Hop
from loopscope.report.rows import interval_rows
from loopscope.timeline import RunError, open_run

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN

# The bracket 90 … 110 and limits below it, at its ends, inside, above.
TRUTH = {
    #      80 90 100 110 120
    "<": (F, F, U, U, P),
    "<=": (F, U, U, P, P),
    ">": (P, U, U, F, F),
    ">=": (P, P, U, U, F),
    "==": (F, U, U, U, F),
    "!=": (P, U, U, U, P),
}


@pytest.mark.parametrize("op", TRUTH)
def test_truth_table(op):
    limits = (80, 90, 100, 110, 120)
    judged = tuple(
        judge_bracket(expectation("", "p99", op, limit, is_time=True), Bracket(100, 90, 110))
        for limit in limits
    )
    assert judged == TRUTH[op]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("<", (F, F, U)),
        ("<=", (F, U, U)),
        (">", (P, U, U)),
        (">=", (P, P, U)),
        ("==", (F, U, U)),
        ("!=", (P, U, U)),
    ],
)
def test_what_has_no_upper_bound_is_never_below_a_limit(op, expected):
    judged = tuple(
        judge_bracket(expectation("", "max", op, limit, is_time=True), Bracket(100, 90, None))
        for limit in (80, 90, 200)
    )
    assert judged == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("<", (F, F, P)),
        ("<=", (F, P, P)),
        (">", (P, F, F)),
        (">=", (P, P, F)),
        ("==", (F, P, F)),
        ("!=", (P, F, P)),
    ],
)
def test_an_exact_value_is_always_decided(op, expected):
    judged = tuple(
        judge_bracket(expectation("", "lost", op, limit, is_time=False), Bracket.exact(5))
        for limit in (4, 5, 6)
    )
    assert judged == expected


def test_the_worst_verdict_is_the_runs():
    assert overall([P, U, F, P]) is F
    assert overall([P, U]) is U
    assert overall([P, P]) is P
    assert overall([]) is None


A, B = event("a", "io", "out"), event("b", "io", "in")
LOOP = path("loop", "id", [A, B])


def judge(tmp_path, rows, *expectations, **more):
    made = SyntheticRun(tmp_path, rows, components=["a", "b"], **more)
    wanted = [
        expectation(f"{stat} {op} {value}", stat, op, value, is_time=stat not in COUNTS)
        for stat, op, value in expectations
    ]
    results = analyse(open_run(made.write()), [LOOP], wanted)
    return results, {each.text: each for each in results.expectations}


COUNTS = ("count", "lost", "duplicates")


def crossings(n, length=100, err=0, lost=0):
    """Messages that take `length` ns from h1 to h2; the last ones do not arrive."""
    rows = [Row("a", "io:out", i, 1000 * i) for i in range(n)]
    return rows + [
        Row("b", "io:in", i, 1000 * i + length, err, "h2") for i in range(n) if i < n - lost
    ]


def test_a_limit_within_the_clocks_error_is_unknown_and_says_why(tmp_path):
    limits = [("p99", "<", 100), ("p99", "<", 111), ("p99", "<", 90), ("p99", "==", 100)]
    results, verdicts = judge(tmp_path, crossings(20, err=10), *limits)
    assert [each.verdict for each in results.expectations] == [U, P, F, U]
    assert results.verdict is F
    doubt = verdicts["p99 < 100"]
    assert (doubt.measured, doubt.err_ns) == (100, 10)
    assert doubt.reason == "the clock's error leaves 90 ns to 110 ns"
    assert verdicts["p99 < 111"].reason is None


def test_legs_are_alike_as_far_as_the_clocks_can_tell(tmp_path):
    """A clock that is off makes one leg longer and the other shorter: both maximum errors count."""
    back = [event("b", "io", "ack"), event("a", "io", "acked")]
    rows = []
    for i in range(21):
        start = 10_000 * i
        rows += [
            Row("a", "io:out", i, start),
            Row("b", "io:in", i, start + 500 + i, 30, "h2"),
            Row("b", "io:ack", i, start + 600 + i, 30, "h2"),
            Row("a", "io:acked", i, start + 900 + i),
        ]
    made = SyntheticRun(tmp_path, rows, components=["a", "b"])
    limits = [("<", 270), ("<", 260), ("<", 151), (">", 140), (">", 139)]
    wanted = [expectation(f"{op} {ns}", "asymmetry", op, ns) for op, ns in limits]
    results = analyse(open_run(made.write()), [path("loop", "id", [A, B, *back])], wanted)
    # 510 to 300 ns: 210 ± 60.
    assert [each.verdict for each in results.expectations] == [U, U, U, P, P]
    assert {(each.measured, each.err_ns) for each in results.expectations} == {(210, 60)}
    one = [expectation("alike", "asymmetry", "<", 5)]
    with pytest.raises(AnalysisError, match="no way back"):
        analyse(open_run(tmp_path), [LOOP], one)


def test_messages_that_the_network_lost_are_facts(tmp_path):
    limits = [("lost", "==", 3), ("lost", "==", 0), ("count", "==", 20), ("max", "<", 200)]
    results, verdicts = judge(tmp_path, crossings(20, lost=3), *limits)
    assert [each.verdict for each in results.expectations] == [P, F, P, P]
    assert verdicts["lost == 0"].measured == 3
    assert results.problems == ()


def test_messages_that_the_trace_may_have_dropped_are_doubts(tmp_path):
    limits = [
        ("lost", "==", 0),  # all three may have arrived
        ("lost", "<=", 3),
        ("lost", ">", 3),
        ("count", "==", 20),  # no event of the source is missing
        ("max", "<", 200),  # a hidden one may have taken longer
        ("max", ">=", 100),
        ("p50", "<", 200),  # three of twenty hidden ones do not move the median out of 100 ns
        ("min", ">", 50),
        ("mean", "<", 200),
    ]
    dropped = {("b", "io:in"): 5}
    results, verdicts = judge(tmp_path, crossings(20, lost=3), *limits, drops=dropped)
    assert [each.verdict for each in results.expectations] == [U, P, F, P, U, P, P, U, U]
    assert verdicts["max < 200"].err_ns is None
    assert "up to 5 events may be missing" in verdicts["lost == 0"].reason
    assert verdicts["lost == 0"].reason.endswith("leaves 0 to 3")
    assert any("up to 5 b/io:in may be missing" in problem for problem in results.problems)
    assert results.loss.dropped == 5
    assert results.loss.causes == {"ring-full": 5}


def test_fewer_drops_than_losses_leave_some_lost_for_sure(tmp_path):
    limits = [("lost", "==", 0), ("lost", ">=", 2), ("lost", "==", 3)]
    results, _ = judge(tmp_path, crossings(20, lost=3), *limits, torn={"b": 1})
    assert [each.verdict for each in results.expectations] == [F, P, U]


def test_a_message_that_the_trace_did_not_see_set_out_may_have_been_lost(tmp_path):
    limits = [("lost", "==", 0), ("count", "==", 20), ("count", ">=", 20), ("duplicates", "==", 0)]
    dropped = {("a", "io:out"): 1}
    results, _ = judge(tmp_path, crossings(20), *limits, drops=dropped)
    assert [each.verdict for each in results.expectations] == [U, U, P, U]


def test_drops_of_other_events_leave_the_path_alone(tmp_path):
    dropped = {("a", "other:event"): 7, ("z", "io:in"): 7}
    limits = [("lost", "==", 0), ("max", "<", 200)]
    results, _ = judge(tmp_path, crossings(20), *limits, drops=dropped)
    assert results.verdict is P
    assert results.loss.dropped == 7


def test_a_component_without_an_account_proves_nothing(tmp_path):
    limits = [("lost", "==", 0), ("lost", "<=", 2), ("max", "<", 200), ("count", "==", 20)]
    results, verdicts = judge(tmp_path, crossings(20, lost=2), *limits, unaccounted=["b"])
    assert [each.verdict for each in results.expectations] == [U, P, U, P]
    assert "an unknown number of events" in verdicts["lost == 0"].reason
    assert any("b on h2" in p and "it has no account" in p for p in results.problems)


def test_no_message_is_no_evidence(tmp_path):
    limits = [("p99", "<", 100), ("lost", "==", 0), ("count", "==", 0), ("count", ">", 0)]
    results, verdicts = judge(tmp_path, [], *limits)
    assert [each.verdict for each in results.expectations] == [U, U, P, F]
    assert verdicts["p99 < 100"].measured is None
    assert verdicts["p99 < 100"].reason == "no message was seen at a/io:out"
    found = results.to_dict()["paths"]["loop"]
    assert found["count"] == found["lost"] == 0
    assert found["p99_ns"] is found["mean_ns"] is found["err_ns"] is None
    assert "path loop: no io:out was recorded at all" in results.problems


def test_where_all_were_lost_the_times_are_unknown(tmp_path):
    limits = [("p99", "<", 100), ("lost", "==", 4)]
    results, verdicts = judge(tmp_path, crossings(4, lost=4), *limits)
    assert [each.verdict for each in results.expectations] == [U, P]
    assert verdicts["p99 < 100"].reason == "no message was seen at b/io:in"


def test_a_hop_has_its_own_verdict(tmp_path):
    expect = [expectation("hop", "lost", "==", 0, hop, is_time=False) for hop in (1, 2, 3)]
    results = analyse(open_run(pipeline(tmp_path, lose_every=10, expect=expect).write()))
    assert [each.verdict for each in results.expectations] == [P, F, P]


def test_messages_that_arrive_before_they_left_contradict_the_clock(tmp_path):
    rows = [*crossings(10, err=30), Row("a", "io:out", 50, 90000), Row("a", "io:out", 51, 91000)]
    rows += [Row("b", "io:in", 50, 89_960, 30, "h2"), Row("b", "io:in", 51, 90_970, 30, "h2")]
    results, _ = judge(tmp_path, rows)
    # Both are hop and loop; −30 ± 30 ns may still be an arrival.
    found = [problem for problem in results.problems if "arrived before" in problem]
    assert len(found) == 2
    assert "1 messages" in found[0]
    assert "id 50 of repeat 1, -40 ns ± 30 ns" in found[0]


def test_keys_that_occur_twice_and_strangers_are_reported(tmp_path):
    rows = [*crossings(10), Row("a", "io:out", 3, 3500), Row("b", "io:in", 99, 5, 0, "h2")]
    results, _ = judge(tmp_path, rows)
    assert any("1 of 10 values of id occur more than once" in each for each in results.problems)
    assert any("1 messages were seen at b/io:in but not at" in each for each in results.problems)
    assert results.paths[0].loop.count == 10


def test_an_account_that_differs_from_the_time_line_is_a_problem(tmp_path):
    root = SyntheticRun(tmp_path, crossings(10)).write()
    file = root / "base" / "1" / "hosts" / "h2" / "loss.json"
    account = json.loads(file.read_text())
    for part in (account, account["processes"][0]):
        part["recorded"] = part["emitted"] = 12
    file.write_text(json.dumps(account))
    results = analyse(open_run(root), [LOOP], [])
    assert results.loss.balanced
    expected = "b on h2, repeat 1: 10 events are on the time line; its account says 12"
    assert expected in results.problems


def test_an_account_that_does_not_balance_is_no_proof_of_arrival(tmp_path):
    root = SyntheticRun(tmp_path, crossings(10, lost=1)).write()
    file = root / "base" / "1" / "hosts" / "h2" / "loss.json"
    account = json.loads(file.read_text())
    for part in (account, account["processes"][0]):
        part["emitted"] += 1
    file.write_text(json.dumps(account))
    wanted = [expectation("lost", "lost", "==", 0, is_time=False)]
    results = analyse(open_run(root), [LOOP], wanted)
    assert not results.loss.balanced
    assert results.verdict is U
    expected = "emitted 10 is not recorded 9 + overwritten 0 + dropped 0"
    assert any(expected in each for each in results.problems)


def test_overwritten_records_may_be_of_any_entity_and_last_states_are_no_events(tmp_path):
    root = SyntheticRun(tmp_path, crossings(10)).write()
    file = root / "base" / "1" / "hosts" / "h2" / "loss.json"
    account = json.loads(file.read_text())
    account["version"] = 2
    # One of the ten rows is a last state, and three records were overwritten.
    for part in (account, account["processes"][0]):
        part |= {"emitted": 12, "recorded": 9, "overwritten": 3, "final": 1, "filtered": 5}
    file.write_text(json.dumps(account))
    run = open_run(root)
    [process] = [each for each in run.accounts if each.host == "h2"]
    assert process.balanced
    assert process.missing_at("io:in") == process.missing_at("never:seen") == 3
    assert not any("on the time line" in each for each in analyse(run, [LOOP], []).problems)
    account["version"] = 3
    file.write_text(json.dumps(account))
    with pytest.raises(RunError, match="version 3 is not known"):
        _ = open_run(root).accounts


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"path": "lop"}, "no path 'lop'; there is: loop"),
        ({"hop": Hop(4, 9)}, "its events are 0 to 5"),
    ],
)
def test_an_expectation_that_cannot_be_judged_is_an_error(tmp_path, wrong, message):
    good = expectation("loop.p99 < 5ms", "p99", "<", 5_000_000)
    expect = [dataclasses.replace(good, **wrong)]
    run = open_run(pipeline(tmp_path, messages=5, expect=expect).write())
    with pytest.raises(AnalysisError, match=message):
        analyse(run)


def test_a_manifest_that_no_experiment_wrote_is_an_error(tmp_path):
    root = pipeline(tmp_path, messages=5).write()
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["experiment"]["expectations"][0]["stat"] = "p"
    (root / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RunError, match="manifest.json: experiment"):
        with_tables(open_run(root))


@pytest.mark.parametrize("status", ["failed", "interrupted", "running"])
def test_a_part_of_a_run_never_passes(tmp_path, status):
    root = pipeline(tmp_path, messages=20).write()
    assert analyse(open_run(root)).verdict is P
    manifest = json.loads((root / "manifest.json").read_text())
    (root / "manifest.json").write_text(json.dumps({**manifest, "status": status}))
    results = analyse(open_run(root))
    assert results.verdict is U
    # Nobody writes into the run any more.
    told = "killed" if status == "running" else status
    assert any(told in problem for problem in results.problems)


def test_an_expectation_may_span_several_hops(tmp_path):
    spans = [Hop(0, 1), Hop(0, 3), Hop(2, 5)]
    each = [dataclasses.replace(expectation("", "max", "<", 10**9), hop=hop) for hop in spans]
    run = open_run(pipeline(tmp_path, messages=50, expect=each).write())
    found = [judged.measured for judged in with_tables(run).expectations]
    table = pq.read_table(tmp_path / "base/1/tables/path-loop.parquet").to_pydict()
    for hop, value in zip(spans, found, strict=True):
        lengths = zip(table[f"ts_{hop.start}"], table[f"ts_{hop.end}"], strict=True)
        assert value == max(last - first for first, last in lengths)


def test_sent_and_received_say_what_count_is_of_a_path_and_of_a_part(tmp_path):
    counts = {"sent": 200, "received": 180, "count": 200}
    of_hop = {"sent": 180, "received": 180, "count": 180}
    expect = [expectation(f"{stat}", stat, "==", n, is_time=False) for stat, n in counts.items()]
    expect += [
        expectation(f"{stat} of a hop", stat, "==", n, hop=3, is_time=False)
        for stat, n in of_hop.items()
    ]
    expect.append(expectation("sent to a lossy hop", "sent", "==", 200, hop=2, is_time=False))
    run = pipeline(tmp_path, messages=100, repeats=2, lose_every=10, expect=expect).write()
    results = analyse(open_run(run))
    assert [str(each.verdict) for each in results.expectations] == ["PASS"] * 7
    document = results.to_dict()["paths"]["loop"]
    assert (document["sent"], document["received"], document["count"]) == (200, 180, 200)
    alone = document["by_repeat"]["2"]
    assert (alone["sent"], alone["received"]) == (100, 90) and alone["p99_ns"] > 0
    assert document["hops"][2]["by_repeat"]["1"]["received"] == 90
    labels = [row.label for row in interval_rows(results)]
    assert labels[:3] == ["loop", "  repeat 1", "  repeat 2"]


def test_a_key_that_is_no_field_or_a_real_number_is_an_error(tmp_path):
    run = open_run(SyntheticRun(tmp_path, crossings(3)).write())
    for key, what in (("size", "whole number, text or bytes"), ("nonsense", "field")):
        with pytest.raises(RunError, match=f"{key} is no {what} of io:out"):
            analyse(run, [path("loop", key, [A, B])], [])


def test_within_one_host_only_the_drift_counts(tmp_path):
    hosts = [Host("h1", True, 0, 0.0), Host("h2", False, 500, 10.0), Host("h3", False, 500, None)]
    events = [event("n", "io", "in"), event("n", "io", "out")]
    for host, length, expected in (("h2", 1_000_000, 21), ("h2", 10**9, 1000), ("h3", 100, 1000)):
        rows = [Row("n", "io:in", 1, 0, 500, host), Row("n", "io:out", 1, length, 500, host)]
        root = tmp_path / f"{host}-{length}"
        run = open_run(SyntheticRun(root, rows, hosts).write())
        results = analyse(run, [path("p", "id", events)], [])
        assert results.paths[0].loop.err_ns == expected


def test_stamps_of_one_host_may_be_of_two_processors(tmp_path):
    """The interval contains the difference of the processors' counters.

    A run that does not give it, or has no such column, adds nothing.
    """
    events = [event("n", "io", "in"), event("n", "io", "out")]
    for name, apart, expected in (("old", None, 21), ("one", 0, 21), ("two", 118, 139)):
        hosts = [Host("h1", True, 0, 0.0, apart_ns=0 if name != "old" else None)]
        hosts.append(Host("h2", False, 500, 10.0, apart_ns=apart))
        rows = [Row("n", f"io:{end}", 1, ts, 500, "h2") for end, ts in (("in", 0), ("out", 10**6))]
        run = open_run(SyntheticRun(tmp_path / name, rows, hosts).write())
        assert ("apart_ns" in run.hosts.columns) is (name != "old")
        assert analyse(run, [path("p", "id", events)], []).paths[0].loop.err_ns == expected
