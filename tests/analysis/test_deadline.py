"""Verdicts over all resolutions of what is undecided, without enumerating them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_tables import judge_table

from loopscope.analysis import Verdict
from loopscope.analysis.deadline import LISTED, PPB, Cases, Doubt, judge
from loopscope.experiment import Allowed, MissesIn

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN


NONE = Doubt()


def cases(outcomes, doubt=NONE, open_=None, repeat=None):
    """`outcomes` are sets of "+" (met), "-" (missed) and "0" (absent), one per case."""
    n = len(outcomes)
    mask = {each: np.array([each in of for of in outcomes], np.bool_) for each in "+-0"}
    return Cases(
        repeat=np.array(repeat or [1] * n, np.int32),
        id=np.arange(n),
        time=np.arange(n) * 1000,
        value=np.arange(n),
        err=np.zeros(n, np.int64),
        lost=np.zeros(n, np.bool_),
        may_meet=mask["+"],
        may_miss=mask["-"],
        optional=mask["0"],
        open=np.array(open_ if open_ is not None else [False] * n, np.bool_),
        excess=np.arange(n),
        doubt=doubt,
    )


def holds(sequences, allowed):
    """In one resolution: each repeat's sequence of "+" and "-". None of nothing at all."""
    every = "".join(sequences)
    if not every:
        return None
    met = every.count("+")
    if allowed.met_ppb is not None:
        if met * PPB < allowed.met_ppb * len(every):
            return False
    elif not allowed.rows and met < len(every):
        return False
    return all(
        sequence[at : at + row.of].count("-") <= row.most
        for row in allowed.rows
        for sequence in sequences
        for at in range(len(sequence))
    )


def resolutions(made):
    """Every sequence of one repeat."""
    found = set()
    choices = []
    for row in range(len(made)):
        plain = "+" * bool(made.may_meet[row]) + "-" * bool(made.may_miss[row])
        plain += "0" * bool(made.optional[row])
        both = "+-" if made.open[row] and made.doubt.changed else ""
        choices.append([(each, 0) for each in plain] + [(b, 1) for b in both if b not in plain])
    for chosen in itertools.product(*choices):
        if sum(cost for _, cost in chosen) <= made.doubt.changed:
            found.add("".join(each for each, _ in chosen).replace("0", ""))
    more = max(made.doubt.met, made.doubt.missed)
    kinds = "+" * bool(made.doubt.met) + "-" * bool(made.doubt.missed)
    for _ in range(more):
        for sequence, kind in itertools.product(list(found), kinds):
            found |= {sequence[:at] + kind + sequence[at:] for at in range(len(sequence) + 1)}
    return found


def by_force(made, allowed):
    told = {holds([sequence], allowed) for sequence in resolutions(made)}
    return {(True,): P, (False,): F}.get(tuple(told), U)


OUTCOMES = st.sampled_from(["+", "+", "-", "-", "+-", "0+", "0-", "0+-"])
ROW = st.tuples(st.integers(1, 3), st.integers(1, 4)).map(lambda t: MissesIn(t[0], t[0] + t[1]))
ROWS = st.lists(ROW, min_size=1, max_size=2).map(lambda rows: Allowed(rows=tuple(rows)))
SHARE = st.sampled_from([PPB // 2, PPB // 3, 600_000_000, 900_000_000])
ALLOWED = st.one_of(
    ROWS, st.builds(Allowed, st.one_of(st.none(), SHARE), ROWS.map(lambda a: a.rows))
)
ALLOWED = st.one_of(ALLOWED, st.builds(Allowed, SHARE), st.just(Allowed()))


def seeded(examples):
    return settings(max_examples=examples, deadline=None, derandomize=True)


@given(st.lists(OUTCOMES, max_size=8), ALLOWED)
@seeded(300)
def test_every_resolution_of_undecided_cases(outcomes, allowed):
    made = cases(outcomes)
    assert judge(made, allowed).verdict is by_force(made, allowed)


@given(st.lists(st.sampled_from("+?--"), max_size=11), st.integers(0, 4), ALLOWED)
@seeded(500)
def test_every_choice_of_lost_messages_that_did_arrive(outcomes, changed, allowed):
    """A message marked "?" was lost; so many of them may have arrived."""
    lost = [each == "?" for each in outcomes]
    made = cases(["-" if each == "?" else each for each in outcomes], Doubt(changed), lost)
    assert judge(made, allowed).verdict is by_force(made, allowed)


@given(
    st.lists(st.sampled_from(["+", "+", "-", "-", "+-"]), max_size=7), st.integers(0, 2), ALLOWED
)
@seeded(400)
def test_every_place_of_messages_that_nobody_knows(outcomes, unseen, allowed):
    made = cases(outcomes, Doubt(met=unseen, missed=unseen))
    assert judge(made, allowed).verdict is by_force(made, allowed)


@given(st.lists(OUTCOMES, max_size=4), st.integers(0, 2), st.integers(0, 2), ALLOWED, st.data())
@seeded(300)
def test_no_verdict_is_contradicted_by_any_resolution(outcomes, changed, unseen, allowed, data):
    """All kinds of doubt at once: some UNKNOWN may be decided, none that is decided is wrong."""
    missed = data.draw(st.sampled_from([unseen, 0]))
    every = data.draw(st.booleans())
    lost = [every or "+" not in each for each in outcomes]
    made = cases(outcomes, Doubt(changed, unseen, missed), lost)
    verdict, right = judge(made, allowed).verdict, by_force(made, allowed)
    assert verdict in (right, U)
    if right is P and not any("0" in each for each in outcomes):
        assert verdict is P


@pytest.mark.parametrize(
    ("outcomes", "doubt", "allowed", "verdict"),
    [
        # A further miss between two that have a met one between them fills a window of four.
        ("-+-", Doubt(met=1, missed=1), Allowed(rows=(MissesIn(2, 3),)), P),
        ("-+-", Doubt(met=1, missed=1), Allowed(rows=(MissesIn(2, 4),)), U),
        ("-++-", Doubt(met=1, missed=1), Allowed(rows=(MissesIn(2, 4),)), P),
        # One of the met ones may have been missed: 3 of 4, 2 of 4.
        ("+++-", Doubt(changed=1), Allowed(met_ppb=PPB // 2), P),
        ("+++-", Doubt(changed=1), Allowed(met_ppb=600_000_000), U),
        ("+---", Doubt(changed=1), Allowed(met_ppb=600_000_000), F),
        ("+-+-+", Doubt(changed=1), Allowed(rows=(MissesIn(2, 3),)), U),
        ("+-++-", Doubt(changed=1), Allowed(rows=(MissesIn(3, 4),)), P),
    ],
)
def test_events_that_may_be_missing(outcomes, doubt, allowed, verdict):
    made = cases(outcomes, doubt, [bool(doubt.changed)] * len(outcomes))
    assert judge(made, allowed).verdict is verdict
    assert by_force(made, allowed) is verdict


def test_further_messages_part_misses_that_cannot_be_changed():
    lost = [True, True, False, True, True, False, False, False]
    in_a_row = Allowed(rows=(MissesIn(1, 2),))
    for unseen, verdict in ((0, F), (1, F), (2, U)):
        made = cases("--+--+--", Doubt(changed=1, met=unseen), lost)
        assert judge(made, in_a_row).verdict is verdict
        assert by_force(made, in_a_row) is verdict


@given(st.lists(st.tuples(st.integers(1, 3), OUTCOMES), min_size=3, max_size=8), ALLOWED)
@seeded(600)
def test_a_row_ends_with_its_repeat(given_, allowed):
    given_.sort(key=lambda each: each[0])
    made = cases([each for _, each in given_], repeat=[each for each, _ in given_])
    told = {
        holds(["".join(part) for part in parts], allowed)
        for parts in itertools.product(
            *(
                itertools.product(*([*of.replace("0", ""), *[""] * ("0" in of)] for _, of in group))
                for _, group in itertools.groupby(given_, key=lambda each: each[0])
            )
        )
    }
    wanted = {(True,): P, (False,): F}.get(tuple(told), U)
    assert judge(made, allowed).verdict is wanted


@given(st.lists(OUTCOMES, max_size=12), ALLOWED)
@seeded(100)
def test_counts_are_the_least_of_each_and_the_rest(outcomes, allowed):
    made = replace(cases(outcomes), beyond=7)
    counts = judge(made, allowed).counts
    assert counts.met == sum(each == "+" for each in outcomes)
    assert counts.missed == sum(each == "-" for each in outcomes)
    assert counts.met + counts.missed + counts.undecided == len(outcomes)
    assert counts.beyond == 7


def test_what_decides_is_named():
    allowed = Allowed(rows=(MissesIn(1, 3),))
    told = judge(cases("-++--+-"), allowed)
    assert (told.verdict, told.broken) == (F, "2 misses in a row")
    assert [each.id for each in told.deciding] == [3, 4]
    assert judge(cases("+-+-"), allowed).broken == "2 misses among 3 in succession"
    open_ = judge(cases(["-", "+-", "+", "-"]), Allowed(rows=(MissesIn(1, 2),)))
    assert open_.verdict is U
    assert [(each.id, each.undecided) for each in open_.deciding] == [(0, False), (1, True)]
    passed = judge(cases("+-+"), Allowed(met_ppb=PPB // 2))
    assert (passed.verdict, [each.id for each in passed.deciding]) == (P, [1])
    many = judge(cases("-" * (LISTED + 5)), Allowed())
    assert (len(many.deciding), many.deciding_count) == (LISTED, LISTED + 5)
    assert many.deciding[0].id == LISTED + 4, "the worst first"


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_a_table_of_latencies(op):
    """Ends that touch the limit; the order of rows is that of starts; a lost one is missed."""
    rows = [(10, 80, 10), (20, 100, 3), (30, 120, 5), (40, None, 0), (15, 95, 10), (45, 100, 0)]
    table = pa.table(
        {
            "start": [start for start, _, _ in rows],
            "latency": pa.array([latency for _, latency, _ in rows], pa.int64()),
            "err": [err for _, _, err in rows],
        }
    )
    if op == "<":
        assert judge_table(table, op, 100, Allowed()).verdict is F
    told = judge_table(table, op, 100, Allowed(rows=(MissesIn(5, 6),)))
    sure = {"<": (1, 3, 2), "<=": (2, 2, 2), ">": (1, 3, 2), ">=": (2, 2, 2)}[op]
    assert (told.counts.met, told.counts.missed, told.counts.undecided) == sure
    assert {each.at_ns for each in told.deciding if each.lost} == {40}


def test_millions_take_moments():
    """And what decides is found among them."""
    n = 3_000_000
    latency = np.full(n, 5)
    latency[[n // 2, n // 2 + 1]] = 50
    table = pa.table({"start": np.arange(n), "latency": latency, "err": np.ones(n, np.int64)})
    told = judge_table(table, "<", 10, Allowed(met_ppb=999_000_000, rows=(MissesIn(1, 2),)))
    assert [each.id for each in told.deciding] == [n // 2, n // 2 + 1]
