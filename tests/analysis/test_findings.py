"""Patterns that are planted in series are found first, and noise shows none that is certain."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from planted import KINDS, MS, NOISES, Floats, Planted, drawn_series, instants, scale, series, white
from scipy import stats

from loopscope.analysis.findings import lines as spectral
from loopscope.analysis.findings.candidate import Candidate
from loopscope.analysis.findings.series import explained, independent_share
from loopscope.analysis.findings.stepwise import search

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from effort import cases  # noqa: E402

FEW, MANY = 6, 200
LENGTHS = (900, 2500)
NOISE = cases(200, 3000)
# In soak runs, the share of planted patterns that may be missed: noise may hide one. Warm-ups are
# missed most (19 of 200), nearly all where messages are late in bursts at other times as well.
MISSED = 0.1


def certain(at: Floats, times: Floats) -> list[Candidate]:
    return [found for found, _, sure in search(series(at, times)) if sure]


def numbers(found: Candidate) -> dict[str, float]:
    return {each.name: each.value for each in found.evidence}


def is_right(planted: Planted, found: list[Candidate]) -> bool:
    if not found or found[0].kind != planted.kind:
        return False
    shown = numbers(found[0])
    return all(
        name in shown and abs(shown[name] - value) <= tolerance
        for name, (value, tolerance) in planted.truth.items()
    )


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_pattern_is_found_first(kind: str) -> None:
    wrong, several = [], []
    count = cases(FEW, MANY)
    for seed in range(2000, 2000 + count):
        drawn, at, noise = drawn_series(seed, *LENGTHS)
        planted = KINDS[kind](drawn, at, noise, scale(noise))
        found = certain(at, planted.times)
        if not is_right(planted, found):
            wrong.append((seed, planted.truth, [(each.kind, each.text) for each in found]))
        if len(found) > 1:
            several.append((seed, [each.text for each in found]))
    assert len(wrong) <= max(1, MISSED * count), wrong
    assert len(several) <= max(1, MISSED * count), several


@pytest.mark.full
def test_noise_shows_nothing_certain() -> None:
    told = []
    for seed in range(NOISE):
        _, at, noise = drawn_series(seed)
        told += [(seed, NOISES[seed % len(NOISES)], each.text) for each in certain(at, noise)]
    assert len(told) <= NOISE // 1000, told


# A quarter of the pairs at most may lack one of two or have another one besides: the measured
# rates were 0 to 18 % of 40, those with a periodic pattern or a change the highest.
PAIRS = [("sawtooth", "change"), ("periodic", "change"), ("periodic", "warm-up"),
         ("quantised", "change"), ("sawtooth", "warm-up")]  # fmt: skip


def pairs(kinds: tuple[str, str], first: int, count: int) -> Iterator[tuple[int, Floats, Floats]]:
    """Seeds, instants and times of series with two patterns, each a fifth of the variance."""
    found = 0
    for seed in range(first, first + 100 * count):
        drawn, at, noise = drawn_series(seed, *LENGTHS)
        one = KINDS[kinds[0]](drawn, at, noise, scale(noise))
        both = KINDS[kinds[1]](drawn, at, one.times, scale(noise)).times
        parts = [np.var(one.times - noise), np.var(both - one.times)]
        if min(parts) >= 0.2 * np.var(both):
            yield seed, at, both
            found += 1
            if found == count:
                return


@pytest.mark.full
@pytest.mark.parametrize("kinds", PAIRS, ids="-and-".join)
def test_two_patterns_are_both_found_once(kinds: tuple[str, str]) -> None:
    wrong = []
    count = cases(3, 40)
    for seed, at, times in pairs(kinds, 7000, count):
        found = [each.kind for each in certain(at, times)]
        if sorted(found) != sorted(kinds):
            wrong.append((seed, found))
    assert len(wrong) <= max(1, 0.25 * count), wrong


def decoys(seed: int) -> dict[str, Floats]:
    """Series in which something is that is no pattern of a kind."""
    drawn = np.random.default_rng(seed)
    noise = white(drawn, 1500)
    at = instants(drawn, 1500)
    drift = noise + 10 * 3e4 * at / at[-1]
    single = noise.copy()
    single[700:712] += 20 * MS
    irregular = noise.copy()
    for begin in np.cumsum(drawn.exponential(100, 30)).astype(int) + 30:
        irregular[begin : begin + 3] += 5 * MS
    late_in_the_end = noise.copy()
    late_in_the_end[-3:] += 5 * MS
    return {"drift": drift, "single": single, "irregular": irregular, "end": late_in_the_end}


@pytest.mark.full
def test_decoys_are_no_findings() -> None:
    for seed in range(cases(5, 100)):
        for name, times in decoys(seed).items():
            at = instants(np.random.default_rng(seed), len(times))
            assert [each.text for each in certain(at, times)] == [], (seed, name)


def test_a_sawtooth_says_what_the_periods_differ_by() -> None:
    """A node that polls every 5 ms and a source of 20.003 ms, as they happen."""
    drawn = np.random.default_rng(1)
    at = np.arange(5000) * 20.003 * MS
    times = np.mod(1.7 * MS - at, 5 * MS) + drawn.normal(2e5, 3e4, len(at))
    (found,) = certain(at, times)
    shown = numbers(found)
    assert found.kind == "sawtooth" and found.explained > 0.95
    assert shown["amplitude"] == pytest.approx(5 * MS, rel=0.01)
    assert shown["difference"] == pytest.approx(-3e3, rel=0.02)
    assert shown["period"] == pytest.approx(5 * MS / 3e3 * 20.003 * MS, rel=0.01)
    assert (
        "4 times one of about 5.00 ms is 3.00 µs shorter than the messages' 20.00 ms" in found.text
    ), found.text


def test_a_real_time_thread_every_eight_seconds() -> None:
    """4 ms every 8 s, in messages that come every 2 ms."""
    drawn = np.random.default_rng(2)
    at = np.arange(40_000) * 2 * MS
    phase = np.mod(at - 3.1e9, 8e9)
    times = white(drawn, len(at)) + np.where(phase < 4 * MS, 4 * MS - phase, 0)
    (found,) = certain(at, times)
    shown = numbers(found)
    assert found.kind == "periodic" and found.explained > 0.5
    assert shown["period"] == pytest.approx(8e9, rel=1e-3)
    assert shown["messages"] == pytest.approx(2, abs=0.5)
    assert shown["late by"] == pytest.approx(4 * MS, rel=0.1)


@pytest.mark.full
def test_a_real_time_thread_among_other_spells() -> None:
    """4 ms every 8 s, in messages that come every 4 ms; something else takes up to 12 ms."""
    found = []
    for seed in range(12):
        drawn = np.random.default_rng(seed)
        at = np.arange(25_000) * 4 * MS + np.abs(drawn.normal(0, 20e3, 25_000))
        times = 0.1 * MS * np.exp(drawn.normal(0, 0.35, len(at)))
        own = np.arange(drawn.uniform(0, 8e9), at[-1], 8e9)
        others = drawn.uniform(0, at[-1], 100)
        lengths = np.exp(drawn.uniform(np.log(0.3), np.log(12), len(others))) * MS
        spells = [(begin, 4 * MS) for begin in own] + list(zip(others, lengths, strict=True))
        for begin, length in spells:
            within = (at >= begin) & (at < begin + length)
            times[within] += begin + length - at[within]
        found += [numbers(each).get("period", 0.0) for each in certain(at, times)]
    # In some the thread runs mostly between two messages, or is shorter than the others.
    assert sum(abs(period - 8e9) < 0.01e9 for period in found) >= 5, found
    assert sum(abs(period - 8e9) >= 0.01e9 for period in found) <= 1, found


def test_the_tail_of_a_sum_of_powers_is_that_of_scipy() -> None:
    for shape in (1, 4, 64):
        for value in (shape * 0.5, shape * 2.0, shape + 300.0):
            oracle = stats.gamma.logsf(value, shape)
            assert spectral.log_gamma_tail(shape, value) == pytest.approx(oracle, rel=1e-6)
    # Beyond what scipy's tail can say.
    assert spectral.log_gamma_tail(1, 5000.0) == pytest.approx(-5000.0, rel=1e-9)
    assert -5000 < spectral.log_gamma_tail(4, 5000.0) < -4970


def test_noise_has_lines_as_often_as_it_is_said() -> None:
    """The least probability among the periods of white noise is at most as small as said."""
    count = cases(60, 1000)
    found = [
        spectral.strongest(np.random.default_rng(seed).normal(size=600), 3.0)
        for seed in range(count)
    ]
    said = np.array([each.log_p for each in found if each is not None])
    assert len(said) == count
    assert np.mean(said < math.log(0.01)) <= 0.01 + 3 * math.sqrt(0.01 / count)


def test_correlated_messages_count_as_fewer() -> None:
    drawn = np.random.default_rng(3)
    assert independent_share(drawn.normal(size=5000)) > 0.6
    slow = np.repeat(drawn.normal(size=100), 50)
    # Blocks of 50 equal values.
    assert independent_share(slow) == pytest.approx(1 / 50, rel=0.7)


def test_shares_are_of_all_the_variance() -> None:
    whole = np.array([0.0, 2.0, 0.0, 2.0])
    assert explained(whole, whole, np.zeros(4)) == 1
    assert explained(whole, whole / 2, np.zeros(4)) == pytest.approx(0.25)
    assert explained(whole, np.zeros(4), whole) == 0
    assert explained(np.ones(4), np.ones(4), np.ones(4)) == 0


def test_equal_times_show_nothing() -> None:
    at = instants(np.random.default_rng(4), 300)
    assert certain(at, np.full(300, 1e6)) == []
    two = np.where(np.arange(300) < 150, 1e6, 1e6 + 100)
    assert [each.kind for each in certain(at, two)] in (["change"], [])
