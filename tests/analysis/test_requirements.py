"""What each message, update or interval has to meet, on runs made by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from synthetic_run import SECOND, Host, Row, SyntheticRun, event, path

from loopscope.analysis import Verdict, analyse
from loopscope.experiment import Hop, from_manifest
from loopscope.experiment.document import from_text
from loopscope.timeline import open_run

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN
MS = 1_000_000

EVENTS = [event("a", "io", "out"), event("b", "io", "in"), event("b", "io", "ack")]
EVENTS.append(event("a", "io", "acked"))
FILE = """
name: x
hosts: [h1, h2]
components: {a: {host: h1, run: 'true'}, b: {host: h2, run: 'true'}}
phases: [{name: run, timeout: 1s}]
measure:
  paths:
    way: {events: [a/io:out, b/io:in]}
    loop: {events: [a/io:out, b/io:in, b/io:ack, a/io:acked]}
"""


def expected(*lines):
    """The expectations of a file with these lines."""
    text = FILE + f"expect: {json.dumps(lines)}\n"
    plan, problems = from_text(text, "x.yaml", {})
    assert plan is not None, problems
    assert from_manifest(json.loads(json.dumps(plan.to_manifest()))).expectations == (
        plan.expectations
    )
    return plan.expectations


def judge(tmp_path, rows, *lines, hosts=None, **more):
    """Results of the paths `way` and `loop`."""
    if hosts is not None:
        more["hosts"] = hosts
    made = SyntheticRun(tmp_path / "run", rows, components=["a", "b"], **more)
    paths = [path("way", "id", EVENTS[:2])]
    if any(line.startswith("loop") for line in lines):
        paths.append(path("loop", "id", EVENTS))
    return analyse(open_run(made.write()), paths, expected(*lines)).expectations


def told(results):
    return [each.verdict for each in results]


def sent(times, repeat=1, err=0):
    return [Row("a", "io:out", i, at, err, "h1", repeat) for i, at in enumerate(times)]


def came(arrivals, err=0, repeat=1):
    """By message, the time of its arrival."""
    return [Row("b", "io:in", i, at, err, "h2", repeat) for i, at in arrivals.items()]


def way(lengths, err=0, period=100 * MS, repeat=1):
    """A message each period; None: lost. The run goes on for a second after the last."""
    rows = sent([i * period for i in range(len(lengths))], repeat)
    arrivals = {i: i * period + ns for i, ns in enumerate(lengths) if ns is not None}
    end = Row("b", "io:other", 0, len(lengths) * period + SECOND, 0, "h2", repeat)
    return [*rows, *came(arrivals, err, repeat), end]


def counts(result):
    found = result.counts
    return found.met, found.missed, found.undecided, found.beyond


def test_a_deadline_of_each_message(tmp_path):
    lengths = [5 * MS] * 8 + [12 * MS, None] + [5 * MS] * 10
    results = judge(
        tmp_path,
        way(lengths),
        "way < 10ms",
        "way < 10ms for 90%",
        "way < 10ms for 90.1%",
        "way < 10ms, no two misses in a row",
        "way < 10ms for 90%, no three misses in a row",
        "way < 10ms, at most 2 misses in any 5",
        "way < 12ms, at most 1 miss in any 19",
        "way <= 12ms",
        "way > 5ms for 5%",
        "way >= 5ms for 95%",
    )
    assert told(results) == [F, P, F, F, P, P, F, F, P, P]
    assert counts(results[0]) == (18, 2, 0, 0)
    assert results[0].measured == 2
    late, lost = sorted(results[0].deciding, key=lambda each: each.id)
    assert (late.id, late.at_ns, late.value_ns, late.err_ns, late.lost) == (
        8,
        800 * MS,
        12 * MS,
        0,
        False,
    )
    assert (lost.id, lost.at_ns, lost.value_ns, lost.lost) == (9, 900 * MS, None, True)
    assert results[3].reason == "2 misses in a row"
    assert [each.id for each in results[3].deciding] == [8, 9]


def test_a_message_within_the_clocks_error_could_be_either(tmp_path):
    lengths = [5 * MS] * 5 + [10 * MS, 11 * MS] + [5 * MS] * 3
    results = judge(
        tmp_path,
        way(lengths, err=MS // 2),
        "way < 10ms",
        "way < 10ms for 90%",
        "way < 10ms for 80%",
        "way < 10ms, no two misses in a row",
        "way < 10ms, no 3 misses in a row",
    )
    assert told(results) == [F, U, P, U, P]
    assert counts(results[1]) == (8, 1, 1, 0)
    assert results[1].reason == "the clock's error leaves 1 message open"
    open_ = results[1].deciding[0]
    assert (open_.id, open_.value_ns, open_.err_ns, open_.undecided) == (5, 10 * MS, MS // 2, True)
    assert [(each.id, each.undecided) for each in results[3].deciding] == [(5, True), (6, False)]


def test_what_the_end_of_the_run_cut_off_is_neither(tmp_path):
    """Message 3 had 10 ms left, message 4 only 5: it may have come in time."""
    rows = [
        *sent([0, 100 * MS, 200 * MS, 300 * MS, 305 * MS]),
        *came({0: MS, 1: 101 * MS, 2: 201 * MS}),
    ]
    rows.append(Row("b", "io:other", 0, 310 * MS, 0, "h2"))
    results = judge(
        tmp_path, rows, "way < 10ms", "way < 11ms", "way < 5ms", "way[a/io:out before b/io:in]"
    )
    assert told(results) == [F, P, F, F]
    assert [counts(each) for each in results] == [
        (3, 1, 0, 1),
        (3, 0, 0, 2),
        (3, 2, 0, 0),
        (3, 2, 0, 0),
    ]


def test_a_message_that_the_trace_may_have_dropped_may_have_come(tmp_path):
    lengths = [MS, None, None, MS, None, MS]
    lines = ["way < 10ms", "way < 10ms, no 2 misses in a row", "way < 10ms for 70%", "way complete"]
    dropped = {("b", "io:in"): 1}
    results = judge(tmp_path, way(lengths), *lines, drops=dropped)
    assert told(results) == [F, U, F, F]
    assert counts(results[0]) == (3, 2, 1, 0)
    assert "up to 1 events may be missing" in results[1].reason
    results = judge(tmp_path / "more", way(lengths), *lines, drops={("b", "io:in"): 3})
    assert told(results) == [U, U, U, U]
    results = judge(tmp_path / "source", way([MS, None, MS]), *lines, drops={("a", "io:out"): 1})
    assert told(results) == [F, U, U, F]


def test_a_time_of_the_run(tmp_path):
    """Counted from the first message; the edge is as exact as the stamps."""
    lengths = [50 * MS] * 3 + [5 * MS] * 5 + [50 * MS] * 2
    lines = [
        "way < 10ms between 0s and 1h",
        "way < 10ms after 300ms",
        "way < 10ms between 300ms and 800ms",
        "way < 10ms between 200ms and 800ms",
        "way < 10ms after 5s",
        "way.max < 10ms between 300ms and 800ms",
        "way.max < 10ms after 300ms",
        "way.count == 5 between 300ms and 800ms",
        "way.count == 2 after 5s",
        "way[a/io:out -> b/io:in].p50 < 10ms after 300ms",
    ]
    results = judge(tmp_path, way(lengths), *lines)
    assert told(results) == [F, F, P, F, U, P, F, P, F, P]
    assert counts(results[2]) == (5, 0, 0, 0)
    assert results[4].reason == "there is no message to be judged in its time"
    rows = [
        *sent([i * 100 * MS for i in range(10)], err=10),
        *came({i: i * 100 * MS + ns for i, ns in enumerate(lengths)}),
    ]
    hosts = [Host("h1", True, 0, None), Host("h2", False, 9, None)]
    results = judge(tmp_path / "wide", rows, *lines, hosts=hosts)
    # Messages 3 and 8 are at edges, message 2 is well outside.
    assert told(results) == [F, F, U, U, U, U, F, U, F, P]
    assert counts(results[2]) == (4, 0, 2, 0)
    assert "may not lie within the time" in results[2].reason


def test_more_at_the_edge_than_can_be_tried_in_turn(tmp_path):
    rows = [*sent(range(6), err=9), *came({i: i + 40 for i in range(6)})]
    lines = ["way.count == 0 after 3ns", "way.count <= 6 after 3ns", "way.max < 45ns after 3ns"]
    hosts = [Host("h1", True, 0, None), Host("h2", False, 9, None)]
    assert told(judge(tmp_path, rows, *lines, "way < 50ns after 3ns", hosts=hosts)) == [U, P, U, U]


def test_order(tmp_path):
    """RFC 4737: 3 is late; those that overtook it are not."""
    rows = sent([i * MS for i in range(7)])
    rows += came({0: 10 * MS, 1: 11 * MS, 2: 12 * MS, 3: 16 * MS, 4: 13 * MS, 5: 14 * MS})
    results = judge(
        tmp_path,
        rows,
        "way in order",
        "way in order for 80%",
        "way[a/io:out -> b/io:in] in order, no 2 misses in a row",
    )
    assert told(results) == [F, P, P]
    assert counts(results[0]) == (5, 1, 0, 0), "a lost message is in no order"
    assert [(each.id, each.value_ns) for each in results[0].deciding] == [(3, 3 * MS)]
    hosts = [Host("h1", True, 0, 0.0), Host("h2", False, 9, None)]
    near = [
        *sent([i * MS for i in range(3)]),
        *came({0: 10 * MS, 1: 10 * MS + 15, 2: 10 * MS + 40}, err=9),
    ]
    results = judge(tmp_path / "wide", near, "way in order", hosts=hosts)
    assert told(results) == [U]
    assert counts(results[0]) == (2, 0, 1, 0)
    last = [*sent([0, MS, 2 * MS]), *came({0: 10 * MS, 1: 11 * MS}, err=9)]
    last.append(Row("b", "io:in", 2, 12 * MS, 1 << 60, "h2"))
    results = judge(tmp_path / "unknown", last, "way in order", hosts=hosts)
    assert counts(results[0]) == (1, 0, 2, 0), "the last may have arrived first"
    close = [*sent([0, 15], err=9), *came({0: 10 * MS, 1: 9 * MS})]
    hosts = [Host("h1", True, 9, None), Host("h2", False, 0, 0.0)]
    assert told(judge(tmp_path / "close", close, "way in order", hosts=hosts)) == [U]
    results = judge(tmp_path / "one-clock", near, "way in order")
    assert told(results) == [P], "the order of one host's stamps is known"
    results = judge(
        tmp_path / "drop", rows, "way in order", "way in order for 99%", drops={("b", "io:in"): 1}
    )
    assert told(results) == [F, F]
    results = judge(tmp_path / "drops", near, "way in order", drops={("b", "io:in"): 1})
    assert told(results) == [P], "none is missing, so none was dropped here"
    results = judge(
        tmp_path / "lost",
        rows[:-1],
        "way in order",
        "way in order for 80%",
        drops={("b", "io:in"): 1},
    )
    assert told(results) == [F, U]


def test_a_thread_stamps_what_it_sends_in_order(tmp_path):
    """Two threads that send at once: it is not known which message was first."""
    burst = [*sent([0, 15], err=9), *came({0: 10 * MS, 1: 11 * MS})]
    hosts = [Host("h1", True, 9, 1.0, apart_ns=300), Host("h2", False, 0, 0.0)]
    assert told(judge(tmp_path / "one", burst, "way in order", hosts=hosts)) == [P]
    burst[1] = replace(burst[1], thread=2)
    assert told(judge(tmp_path / "two", burst, "way in order", hosts=hosts)) == [U]
    burst[1] = replace(burst[1], thread=1)
    at_once = [replace(burst[1], ts=0) if row is burst[1] else row for row in burst]
    assert told(judge(tmp_path / "at-once", at_once, "way in order", hosts=hosts)) == [U]
    far = [replace(hosts[0], apart_ns=2000), hosts[1]]
    results = judge(tmp_path / "far", burst, "way in order", hosts=far)
    assert told(results) == [U], "it may have moved to a processor whose counter is behind"
    disturbed = [replace(hosts[0], drift_ppm=float("nan")), hosts[1]]
    results = judge(tmp_path / "disturbed", burst, "way in order", hosts=disturbed)
    assert told(results) == [U]


def test_one_that_nobody_saw_arrive_may_have_overtaken_all(tmp_path):
    rows = [*sent([i * MS for i in range(6)]), *came({i: (i + 10) * MS for i in range(5)})]
    line = "way in order for 50%"
    assert told(judge(tmp_path, rows, line)) == [P]
    assert told(judge(tmp_path / "drop", rows, line, drops={("b", "io:in"): 1})) == [U]


def test_what_may_have_been_cut_off_may_have_been_missed(tmp_path):
    """Message 1 had 10 ns left, give or take 5, and message 2 none of it."""
    rows = [*sent([0, 90, 98], err=5), *came({0: 8}), Row("b", "io:other", 0, 100, 0, "h2")]
    hosts = [Host("h1", True, 0, None), Host("h2", False, 9, None)]
    results = judge(tmp_path, rows, "way < 9ns for 40%", "way < 14ns for 60%", hosts=hosts)
    assert told(results) == [U, U]
    assert [counts(each) for each in results] == [(0, 0, 2, 1), (1, 0, 1, 1)]
    dropped = {("b", "io:in"): 2}
    results = judge(
        tmp_path / "drop",
        rows,
        "way < 9ns for 40%",
        "way < 5ns for 60%",
        hosts=hosts,
        drops=dropped,
    )
    assert told(results) == [U, U], "messages that a dropped event hides may have been in time"
    assert {each.counts.beyond for each in results} == {0}


def loop(legs, err=0):
    """There, at the other end, and back, of each message."""
    rows = []
    for i, (there, back) in enumerate(legs):
        at = [i * 100 * MS, i * 100 * MS + there]
        at += [at[1] + MS, at[1] + MS + back]
        for each, when in zip(EVENTS, at, strict=True):
            host = "h1" if each.component == "a" else "h2"
            rows.append(Row(each.component, each.entity, i, when, err * (host == "h2"), host))
    return rows


def test_legs_of_each_message(tmp_path):
    rows = loop([(100, 110), (100, 121), (130, 100)], err=5)
    results = judge(
        tmp_path,
        rows,
        "loop symmetric within 40ns",
        "loop symmetric within 10ns",
        "loop symmetric within 20ns for 60%",
        "loop symmetric within 31ns, no two misses in a row",
        "loop.asymmetry < 30ns",
    )
    assert told(results) == [P, F, U, P, P]
    assert [each.value_ns for each in results[1].deciding] == [30, 21]


def test_before_and_completeness(tmp_path):
    rows = loop([(100, 110)] * 4)
    lines = [
        "loop complete",
        "loop[a/io:out -> b/io:in] complete",
        "loop[b/io:in before a/io:acked]",
        "loop[a/io:acked before b/io:in]",
        "loop[b/io:ack before a/io:acked] for 75%",
    ]
    assert told(judge(tmp_path, rows, *lines)) == [P, P, P, F, P]
    lost = [row for row in rows if (row.id, row.entity) != (2, "io:acked")]
    again = [*lost, Row("b", "io:in", 3, 999 * MS, 0, "h2")]
    results = judge(tmp_path / "lost", again, *lines)
    assert told(results) == [F, F, F, F, P]
    assert [(each.id, each.lost) for each in results[0].deciding] == [(2, True), (3, False)]
    assert [(each.id, each.lost) for each in results[1].deciding] == [(3, False)]
    results = judge(tmp_path / "source", lost, *lines, drops={("a", "io:out"): 1})
    assert told(results) == [F, U, F, F, U], "a dropped departure explains no missing arrival"
    results = judge(tmp_path / "drop", lost, *lines, drops={("a", "io:acked"): 1})
    assert told(results) == [U, P, U, F, P]


def test_age_is_of_the_newest_data_at_each_instant(tmp_path):
    """Updates every 10 ms that take 2 ms; 3 is lost; 5 is overtaken by 6."""
    rows = sent([i * 10 * MS for i in range(9)])
    rows += came(
        {
            0: 2 * MS,
            1: 12 * MS,
            2: 22 * MS,
            4: 42 * MS,
            5: 66 * MS,
            6: 62 * MS,
            7: 72 * MS,
            8: 82 * MS,
        }
    )
    lines = [
        "way.age < 23ms",
        "way.age < 22ms",
        "way.age < 22ms for 60%",
        "way.age < 12ms, no two misses in a row",
    ]
    results = judge(tmp_path, rows, *lines)
    # Peaks: 12, 12, 22 (of 2, until 4 came), 22 (of 4, until 6), 12, 12.
    assert told(results) == [P, F, P, F]
    assert counts(results[1]) == (4, 2, 0, 1)
    assert [(each.at_ns, each.value_ns) for each in results[1].deciding] == [
        (42 * MS, 22 * MS),
        (62 * MS, 22 * MS),
    ]
    ends = [*rows, Row("a", "io:other", 0, 103 * MS)]
    results = judge(tmp_path / "end", ends, *lines, "way.age < 23ms between 0s and 101ms")
    assert told(results) == [F, F, F, F, P], "nothing newer came until the run ended"
    assert results[0].deciding[0].value_ns == 23 * MS
    assert [each.at_end for each in results[0].deciding] == [True]
    assert "only from the last update to the end" in results[0].reason
    assert results[1].reason is None, "there were others"
    results = judge(tmp_path / "over", ends, "way.age < 23ms after 2min")
    assert told(results) == [U], "the run was over before that"
    wide = [*sent([0], err=5), *came({0: 10}), Row("a", "io:other", 0, SECOND)]
    age = ("way.age < 90ns between 0ns and 100ns", "way.age < 91ns between 0ns and 100ns")
    results = judge(tmp_path / "wide", wide, *age)
    assert told(results) == [F, U], "both stamps are 5 ns wide"
    results = judge(tmp_path / "drops", rows, *lines, drops={("b", "io:in"): 1})
    assert told(results) == [U, F, U, F]
    results = judge(tmp_path / "more", rows, *lines, drops={("b", "io:in"): 2})
    assert told(results) == [U, U, U, U]
    results = judge(
        tmp_path / "silent",
        [*sent([0, 50 * MS]), Row("a", "io:other", 0, SECOND)],
        "way.age < 23ms",
        "way.age < 2s",
    )
    assert told(results) == [F, U]


def test_arrivals_whose_order_is_not_known_leave_ages_open(tmp_path):
    """1 and 2 came within their maximum errors: an update or two, the second of younger data."""
    rows = [*sent([0, 50, 70, 400]), *came({0: 100, 1: 310, 2: 300, 3: 500}, err=9)]
    hosts = [Host("h1", True, 0, 0.0), Host("h2", False, 9, None)]
    ages = ["way.age < 270ns for 60%", "way.age < 440ns for 50%", "way.age < 500ns"]
    assert told(judge(tmp_path, rows, *ages, hosts=hosts)) == [U, U, U]
    apart = [*sent([0, 50, 70, 400]), *came({0: 100, 1: 340, 2: 300, 3: 500}, err=9)]
    assert told(judge(tmp_path / "apart", apart, *ages, hosts=hosts)) == [F, P, P]


def test_intervals_of_a_periodic_event(tmp_path):
    times = [0, 100, 205, 300, 400, 520, 600]
    rows = sent([at * 1000 for at in times])
    lines = [
        "a/io:out every 100us within 25us",
        "a/io:out every 100us within 5us",
        "a/io:out every 100us within 5us for 60%",
        "a/io:out every 100us within 5us, no two misses in a row",
        "a/io:out every 100us within 5us between 0s and 500us",
        "a/io:out.rate >= 10kHz",
        "a/io:out.rate > 10001Hz",
        "a/io:out.jitter < 41us",
        "a/io:out.jitter < 40us",
        "a/io:out.jitter < 12us between 0s and 500us",
    ]
    results = judge(tmp_path, rows, *lines)
    assert told(results) == [P, F, P, F, P, P, F, P, F, P]
    assert counts(results[1]) == (4, 2, 0, 0)
    assert [(each.id, each.value_ns, each.at_ns) for each in results[1].deciding] == [
        (5, 120_000, 400_000),
        (6, 80_000, 520_000),
    ]
    assert (results[5].measured, results[5].unit) == (10_000, "Hz")
    assert (results[7].measured, results[7].is_time) == (40_000, True)
    results = judge(tmp_path / "drop", rows, *lines, drops={("a", "io:out"): 1})
    assert told(results) == [U, F, U, U, U, U, U, U, U, U]
    for few, why in ((rows[:1], "only one a/io:out was seen"), ([], "no io:out was recorded")):
        results = judge(tmp_path / f"few{len(few)}", few, *lines)
        assert told(results) == [U] * len(lines)
        assert all(why in each.reason for each in results)


def test_what_stamps_leave_open_of_rate_and_jitter(tmp_path):
    """Two intervals of 100 ns, each 10 ns wide, on a clock without a known drift.

    Both together are as wide, whatever the stamp between them.
    """
    hosts = [Host("h1", True, 0, None), Host("h2", False, 9, None)]
    lines = [f"a/io:out.rate {limit}MHz" for limit in (">= 9.5", ">= 9.6", "<= 10.5", "<= 10.6")]
    lines += [f"a/io:out.jitter < {ns}ns" for ns in (20, 21)]
    lines += ["a/io:out every 100ns within 9ns", "a/io:out every 100ns within 10ns"]
    results = judge(tmp_path, sent([0, 100, 200], err=5), *lines, hosts=hosts)
    assert told(results) == [P, U, U, P, U, P, U, P]
    assert results[1].reason == "the clock's error leaves 9.524 MHz to 10.53 MHz"
    lines = [f"a/io:out.jitter {limit}ns" for limit in ("> 79", "> 80", "< 120", "< 121")]
    uneven = judge(tmp_path / "uneven", sent([0, 100, 300], err=5), *lines, hosts=hosts)
    assert told(uneven) == [P, U, U, P]


def test_repeats_do_not_run_into_each_other(tmp_path):
    lengths = [5 * MS, 5 * MS, 50 * MS]
    rows = [*way(lengths), *way(lengths[::-1], repeat=2)]
    results = judge(
        tmp_path,
        rows,
        "way < 10ms, no two misses in a row",
        "a/io:out every 100ms within 1ms",
        "way.age < 200ms",
        "way in order",
        repeats=2,
    )
    assert told(results) == [P, P, F, P]


@pytest.mark.parametrize("line", ["way < 10ms", "way in order", "way complete", "way.age < 10ms"])
def test_no_message_is_no_evidence(tmp_path, line):
    [result] = judge(tmp_path, [], line)
    assert (result.verdict, result.measured) == (U, None)
    assert result.reason == "no message was seen at a/io:out"


def test_a_disturbed_clock_decides_nothing(tmp_path):
    """But for what needs no time."""
    rows = way([5 * MS] * 4, err=1 << 60)
    results = judge(
        tmp_path,
        rows,
        "way < 10ms",
        "way in order",
        "way complete",
        "way.age < 500ms",
        "way < 10ms for 1%",
        hosts=[Host("h1", True, 0, 0.0), Host("h2", False, 9, None)],
    )
    assert told(results) == [U, U, P, U, U]
    assert "a clock was disturbed: nothing is known of the time of 4 messages" in results[0].reason


def test_a_part_that_the_path_does_not_have(tmp_path):
    from loopscope.analysis import AnalysisError

    run = open_run(SyntheticRun(tmp_path, way([MS]), components=["a", "b"]).write())
    [wanted] = expected("way < 10ms")
    with pytest.raises(AnalysisError, match="no path 'none'"):
        analyse(run, [path("way", "id", EVENTS[:2])], [replace(wanted, path="none")])
    with pytest.raises(AnalysisError, match="has no way back"):
        analyse(run, [path("way", "id", EVENTS[:2])], [replace(wanted, kind="symmetric")])
    for kind in ("time", "before"):
        odd = replace(wanted, hop=Hop(1, 7), kind=kind)
        with pytest.raises(AnalysisError, match="way < 10ms"):
            analyse(run, [path("way", "id", EVENTS[:2])], [odd])


def test_only_the_paths_own_programs_say_that_the_run_went_on(tmp_path):
    """What the router recorded after they were ended makes no message late."""
    rows = sent([0, 100 * MS, 200 * MS, 203 * MS])
    rows += came({i: (100 * i + 5) * MS for i in range(3)})
    later = Row("_links", "link:departed", 0, 260 * MS, 0, "h1", 1)
    (alone,) = judge(tmp_path / "alone", rows, "way < 10ms")
    (beside,) = judge(tmp_path / "beside", [*rows, later], "way < 10ms")
    assert counts(alone) == counts(beside) == (3, 0, 0, 1)
