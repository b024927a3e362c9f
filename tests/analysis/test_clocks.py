"""What clocks did, loopscope's and others', is told, judged and counted."""

import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import (
    ClockReading,
    ClockStep,
    Host,
    Row,
    SyntheticRun,
    expectation,
    path,
    with_tables,
)

from loopscope.analysis import Verdict, analyse
from loopscope.analysis.allan import allan_deviation
from loopscope.analysis.bounded_statistics import Sample
from loopscope.analysis.results import LoopResult
from loopscope.experiment import Allowed, Expectation, Hop, PathEvent, Requirement
from loopscope.report.rows import LOOP_HEADINGS, loop_cells, loops_line
from loopscope.timeline import RunError, open_run

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
SECOND = 1_000_000_000
UNKNOWN_NS = 1 << 60
HOSTS = (Host("h1", reference=True, max_err_ns=0), Host("h2", rejected=3), Host("_router"))


def offset(host, op, value):
    text = f"{host}.realtime.offset {op} {value}ns"
    return Expectation(text, host, None, None, op, value, True, "realtime")


def readings(host, *offsets, repeat=1):
    """One each second; an offset with its maximum error, or None."""
    return [ClockReading(host, i * SECOND, each, repeat) for i, each in enumerate(offsets, 1)]


def judged(tmp_path, readings, *expect, repeats=1):
    made = SyntheticRun(tmp_path, [], HOSTS, expect=expect, readings=readings, repeats=repeats)
    return analyse(open_run(made.write())).expectations


@pytest.mark.parametrize(
    ("offsets", "verdicts", "measured", "err"),
    [
        # Judged against 99, 101, 149 and 151.
        ([(-20, 30), (100, 50), (40, 5)], (U, U, U, P), 100, 50),
        ([(-100, 50)], (U, U, U, P), 100, 50),
        # The farthest is not the one that is known best.
        ([(100, 50), (-95, 0)], (U, U, U, P), 100, 50),
        ([(200, 40)], (F, F, F, F), 200, 40),
        ([(10, 5), None], (U, U, U, U), 10, None),
        ([(200, 40), None], (F, F, F, F), 200, None),
        ([None], (U, U, U, U), None, None),
        ([], (U, U, U, U), None, None),
    ],
)
def test_an_offset_is_judged_by_its_bracket(tmp_path, offsets, verdicts, measured, err):
    wanted = [offset("h2", "<", limit) for limit in (99, 101, 149, 151)]
    found = judged(tmp_path, readings("h2", *offsets), *wanted)
    assert tuple(each.verdict for each in found) == verdicts
    assert {(each.measured, each.err_ns) for each in found} == {(measured, err)}
    assert all((each.reason is None) == (each.verdict is not U) for each in found)


def test_all_hosts_are_judged_by_the_farthest_and_the_router_is_none(tmp_path):
    given = [*readings("h1", (0, 0)), *readings("h2", (-70, 10)), *readings("_router", (900, 1))]
    wanted = [offset("hosts", "<", limit) for limit in (50, 75, 100)]
    late, doubtful, right = judged(tmp_path, given, *wanted)
    assert (late.verdict, doubtful.verdict, right.verdict) == (F, U, P)
    assert (late.measured, late.err_ns, late.reason) == (70, 10, "h2 is the farthest")
    assert right.reason is None


def test_a_host_that_was_not_read_leaves_doubt(tmp_path):
    (silent,) = judged(tmp_path / "a", readings("h1", (0, 0)), offset("hosts", "<", 9))
    assert (silent.verdict, silent.measured) == (U, 0)
    assert silent.reason.endswith("nothing is known of the CLOCK_REALTIME of h2")
    once = readings("h2", (1, 1), repeat=1)
    (part,) = judged(tmp_path / "b", once, offset("h2", "<", 9), repeats=2)
    assert part.verdict is U


EVENTS = (("s", "a:out", "h1"), ("c", "a:in", "h2"), ("c", "a:back", "h2"), ("s", "a:done", "h1"))


def round_trips(tmp_path, *expect, err=1000, steps=(), drift=1.0, rejected=0, loops=()):
    """100 messages to another host and back, 1 ms each way, 2 ms there."""
    rows = []
    for message in range(100):
        for (component, entity, host), late in zip(EVENTS, (0, 1, 3, 4), strict=True):
            ts = SECOND + message * 10_000_000 + late * 1_000_000
            known = err if message == 50 else 1000
            rows.append(Row(component, entity, message, ts, known, host))
    events = [PathEvent(c, host, *entity.split(":")) for c, entity, host in EVENTS]
    hosts = [
        Host("h1", reference=True, max_err_ns=0, drift_ppm=0.0),
        Host("h2", drift_ppm=drift, max_err_ns=err, rejected=rejected),
    ]
    of = [path("loop", "id", events)]
    made = SyntheticRun(
        tmp_path,
        rows,
        hosts,
        paths=of,
        expect=expect,
        clock_steps=steps,
        loops=loops,
        readings=readings("h2", (5, 10)),
    )
    return analyse(open_run(made.write()))


def of_hop(hop, op, value, stat="p99"):
    return Expectation(f"{hop} {stat} {op} {value}", "loop", hop, stat, op, value, True)


THERE, AT_H2 = Hop(0, 1), Hop(1, 2)


def test_a_step_names_the_verdicts_that_it_would_have_falsified(tmp_path):
    narrow, wide = of_hop(THERE, "<", 5_000_000), of_hop(THERE, "<", 50_000_000)
    failed = of_hop(Hop(2, 3), "<", 900_000)
    both = of_hop(None, "<", 5_000_000, "asymmetry")
    same_host = of_hop(AT_H2, "<", 3_000_000)
    whole = expectation("loop.p99 < 5ms", "p99", "<", 5_000_000)
    lost = expectation("loop.lost == 0", "lost", "==", 0, is_time=False)
    expect = (narrow, wide, failed, both, same_host, whole, lost)
    step = ClockStep("h2", at=(SECOND, 2 * SECOND), ns=(21_999_900, 22_000_100))
    results = round_trips(tmp_path, *expect, steps=[step])
    assert [each.verdict for each in results.expectations] == [P, P, F, P, P, P, P]
    (told,) = (each for each in results.problems if "could have been others" in each)
    assert told.startswith("h2's CLOCK_REALTIME was set by 22.00 ms in the run")
    named = [each.text for each in (narrow, failed, both)]
    assert told.rpartition(": ")[2] == "; ".join(
        f"{text} ({verdict})" for text, verdict in zip(named, (P, F, P), strict=True)
    )


def test_requirements_that_a_step_would_have_falsified(tmp_path):
    def wanted(kind, hop, limit, op="<", **allowed):
        text = f"{kind} {hop} {limit} {allowed}"
        given = (op, limit, None, Allowed(**allowed), None)
        return Requirement(text, kind, "loop", hop, None, *given)

    narrow = wanted("time", THERE, 5_000_000)
    shares = wanted("time", THERE, 5_000_000, met_ppb=1)
    wide, here = wanted("time", THERE, 50_000_000), wanted("time", AT_H2, 3_000_000)
    legs = wanted("symmetric", None, 40_000_000, op="<=")
    whole, complete = wanted("time", None, 9_000_000), wanted("complete", None, None, op=None)
    expect = (narrow, shares, wide, here, legs, whole, complete)
    step = ClockStep("h2", at=(SECOND, 2 * SECOND), ns=(21_999_900, 22_000_100))
    results = round_trips(tmp_path, *expect, steps=[step])
    assert {each.verdict for each in results.expectations} == {P}
    (told,) = (each for each in results.problems if "could have been others" in each)
    named = [f"{each.text} (PASS)" for each in (narrow, shares, legs)]
    assert told.rpartition("have been others: ")[2] == "; ".join(named)


def test_what_happened_to_clocks_is_in_the_results(tmp_path):
    steps = [
        ClockStep("h2", at=(SECOND + 7, SECOND + 9), ns=(-5, -3)),
        ClockStep("h2", "counter", "unclear", (None, SECOND + 5), what="it was disturbed"),
    ]
    found = json.loads(round_trips(tmp_path, steps=steps, rejected=3).to_json())["clock"]
    assert found["hosts"]["h2"] == {
        "max_err_ns": 1000,
        "reference": False,
        "exchanges": 100,
        "rejected": 3,
        "realtime": {"offset_ns": 5, "err_ns": 10},
    }
    assert found["hosts"]["h1"]["realtime"] is None
    counter, realtime = found["events"]
    assert (counter["from_ns"], counter["until_ns"], counter["least_ns"]) == (None, 5, None)
    keys = ("repeat", "host", "clock", "kind", "from_ns", "until_ns", "least_ns", "most_ns")
    assert [realtime[key] for key in keys] == [1, "h2", "realtime", "set", 7, 9, -5, -3]


def test_instants_that_nobody_knows_make_verdicts_unknown_and_not_wrong(tmp_path):
    most = [of_hop(THERE, "<", 5_000_000, stat) for stat in ("max", "mean", "deviation", "p999")]
    least = [of_hop(THERE, ">", 1, "min")]
    known = [of_hop(THERE, "<", 5_000_000, "p50"), expectation("", "lost", "==", 0, is_time=False)]
    back = of_hop(THERE, ">", 5_000_000, "p50")
    loop = of_hop(None, "<", 5_000_000, "max")
    at_h2 = of_hop(AT_H2, "<", 3_000_000, "max")
    expect = (*most, *least, loop, at_h2, *known, back)
    results = round_trips(tmp_path, *expect, err=UNKNOWN_NS, drift=None)
    verdicts = [each.verdict for each in results.expectations]
    # The reference's own stamps bound the whole round trip; nothing bounds what was at h2.
    assert verdicts == [U, U, U, U, U, P, U, P, P, F]
    reasons = [each.reason for each in results.expectations if each.verdict is U]
    assert all("a clock was disturbed" in reason for reason in reasons)
    (found,) = results.paths
    assert [hop.err_ns for hop in found.hops] == [None, None, None]
    assert found.hops[0].times["p50"] == 1_000_000
    (h1, h2) = results.clock.hosts
    assert (h1.max_err_ns, h2.max_err_ns) == (0, None)
    json.loads(results.to_json())


def test_unknown_widths_do_not_overflow():
    length = np.array([10, 20, 30], dtype=np.int64)
    err = np.array([1, 2 * UNKNOWN_NS, 1], dtype=np.int64)
    sample = Sample(length, err)
    assert sample.largest_error is None
    bracket = sample.bracket("max")
    assert (bracket.value, bracket.lower, bracket.upper) == (30, 29, None)
    bracket = sample.bracket("min")
    assert (bracket.value, bracket.lower, bracket.upper) == (10, 0, 11)
    bracket = sample.bracket("p50")
    # The middle one of 0 to infinity, 9 … 11 and 29 … 31.
    assert (bracket.lower, bracket.upper) == (9, 31)
    assert sample.bracket("mean").upper is None
    assert sample.bracket("deviation").upper is None


def test_tables_of_an_older_version_are_made_again(tmp_path):
    root = SyntheticRun(tmp_path, [], HOSTS).write()
    (root / "base" / "1" / "tables" / "foreign_clocks.parquet").unlink()
    with pytest.raises(RunError, match="foreign_clocks.*loopscope report"):
        with_tables(open_run(root))


def test_the_allan_deviation_is_that_of_its_definition():
    chance = np.random.default_rng(1)
    seconds = np.arange(300) * 0.5
    offset = np.cumsum(chance.normal(0, 40, 300)) + 1e5 * seconds
    taus, deviations = allan_deviation(seconds, offset)
    assert taus.tolist() == [0.5 * 2**k for k in range(len(taus))]
    assert 3 * taus[-1] <= 150 < 6 * taus[-1]
    x = offset * 1e-9
    for k, (tau, deviation) in enumerate(zip(taus, deviations, strict=True)):
        # Half the mean square of differences between mean frequencies of neighbouring stretches.
        m = 2**k
        frequency = (x[m:] - x[:-m]) / tau
        steps = frequency[m:] - frequency[:-m]
        assert deviation == pytest.approx(np.sqrt(0.5 * np.mean(steps**2)), rel=1e-6)


def test_a_steady_clock_has_no_allan_deviation_and_a_short_run_none():
    seconds = np.linspace(0, 60, 500)
    _, deviations = allan_deviation(seconds, 3000 * seconds)
    assert deviations.max() < 1e-15
    drifting = allan_deviation(seconds, 10 * seconds**2)
    # Frequency drift D gives D tau / sqrt(2).
    assert drifting[1] == pytest.approx(20e-9 * drifting[0] / np.sqrt(2), rel=1e-3)
    assert len(allan_deviation(seconds[:3], seconds[:3])[0]) == 0


LOOP = LoopResult(1, "h3", "h2", 80, 1, 10_000, 200, 9_310, 0, 40, 320, 900, 2_100, 60, None)
SILENT = LoopResult(2, "h3", "h2", 0, 0, 0, 0, 0, 0, None, None, None, None, None, "nobody there")


def looped(tmp_path, *loops):
    made = SyntheticRun(tmp_path, [], HOSTS, loops=loops, repeats=2)
    return analyse(open_run(made.write()))


def test_loops_are_told_as_they_stand(tmp_path):
    worse = replace(LOOP, repeat=2, host="h4", p99_ns=1_500)
    results = looped(tmp_path, LOOP, worse, SILENT)
    assert results.clock.loops == (LOOP, SILENT, worse)
    told = json.loads(results.to_json())["clock"]["loops"]
    assert told == [each.to_dict() for each in results.clock.loops]
    line = loops_line(results)
    assert "close within 1.500 µs (p99; h4 h2 is the farthest of 2)" in line
    assert "95 % of residuals inside" in line
    assert "nothing known of 1" in line
    assert "CONTRADICTED" not in line
    for loop in results.clock.loops:
        assert len(loop_cells(loop)) == len(LOOP_HEADINGS)
    assert loop_cells(SILENT)[-1] == "nobody there"


def test_a_contradicted_loop_is_loud(tmp_path):
    results = looped(tmp_path, LOOP, replace(LOOP, repeat=2, contradictions=3))
    assert "1 CONTRADICTED: maximum errors may be wrong" in loops_line(results)


def test_times_of_a_contradicted_loop_judge_nothing(tmp_path):
    narrow, failed = of_hop(THERE, "<", 5_000_000), of_hop(Hop(2, 3), "<", 900_000)
    both = of_hop(None, "<", 5_000_000, "asymmetry")
    same_host, whole = of_hop(AT_H2, "<", 3_000_000), of_hop(None, "<", 5_000_000)
    lost = expectation("loop.lost == 0", "lost", "==", 0, is_time=False)
    expect = (narrow, failed, both, same_host, whole, lost)

    def verdicts(run, **changes):
        results = round_trips(tmp_path / run, *expect, loops=[replace(LOOP, **changes)])
        return [each.verdict for each in results.expectations], results

    untouched = [P, F, P, P, P, P]
    assert verdicts("none")[0] == untouched
    assert verdicts("others", host="h4", peer="h3", contradictions=3)[0] == untouched
    found, results = verdicts("own", contradictions=3)
    assert found == [U, U, U, P, P, P]
    told = "the times of h3 and h2 contradict each other in repeat 1: maximum errors may be wrong"
    assert {each.reason for each in results.expectations if each.verdict is U} == {told}
    assert results.verdict is U


def test_without_loops_nothing_is_said_of_them(tmp_path):
    assert loops_line(looped(tmp_path)) == ""
