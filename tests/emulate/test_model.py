"""The link model's statistics against scipy's, in virtual time (`emulate --simulate`).

Seeds are fixed: a test that passes goes on passing. Levels are such that a right model passes with
nearly every seed.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

HOST = Path(sys.executable).with_name("loopscope-host")
MS = 1_000_000
N = 100_000


def simulate(
    settings: dict[str, Any], at: np.ndarray, size: np.ndarray | int = 1000, seed: int = 20071213
) -> pd.DataFrame:
    """What becomes of packets that come at these instants, by number."""
    packets = pd.DataFrame({"at_ns": at, "size": size}).to_csv(index=False)
    command = [HOST, "emulate", "--simulate", json.dumps(settings), "--seed", str(seed)]
    done = subprocess.run(command, input=packets, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = pd.read_csv(io.StringIO(done.stdout), keep_default_na=False)
    return outcomes.sort_values(["number", "duplicate"], ignore_index=True)


def steadily(count: int, gap: int = 100_000) -> np.ndarray:
    return np.arange(count, dtype=np.int64) * gap


def jittered(distribution: Any, ns: int, correlation: float = 0.0, count: int = N) -> np.ndarray:
    """Deviations from a delay of 100 ms; packets overtake, so each has its own."""
    jitter = {"distribution": distribution, "ns": ns, "correlation": correlation}
    settings = {"delay_ns": 100 * MS, "jitter": jitter, "reorder": "by-jitter"}
    outcomes = simulate(settings, steadily(count))
    return (outcomes.due_ns - outcomes.enqueued_ns - 100 * MS).to_numpy()


def autocorrelation(values: np.ndarray, lag: int) -> float:
    return float(np.corrcoef(values[:-lag], values[lag:])[0, 1])


# The mean is 0; the deviation is what is asked for, of the uniform one half the width.
SHAPES = {
    "uniform": stats.uniform(-10 * MS, 20 * MS),
    "normal": stats.norm(0, 10 * MS),
    "exponential": stats.expon(-10 * MS, 10 * MS),
    "pareto": stats.pareto(3, -1.5 * 10 * MS / 0.75**0.5, 10 * MS / 0.75**0.5),
}


@pytest.mark.parametrize("name", SHAPES)
def test_jitter_has_its_distribution(name: str) -> None:
    shape = SHAPES[name]
    assert abs(shape.mean()) < 1
    values = jittered(name, 10 * MS)
    assert stats.kstest(values, shape.cdf).pvalue > 0.01
    assert abs(values.mean()) < 0.01 * shape.std()
    if name == "pareto":
        # Shape 3 has no fourth moment, so no sample's deviation is near its own: without the
        # largest thousandth it is.
        high = shape.ppf(0.999)
        mean, square = (
            shape.expect(lambda x, n=n: x**n, ub=high, conditional=True) for n in (1, 2)
        )
        assert values[values <= high].std() == pytest.approx((square - mean**2) ** 0.5, rel=0.01)
    else:
        assert values.std() == pytest.approx(shape.std(), rel=0.01)
    assert abs(autocorrelation(values, 1)) < 0.01


def test_jitter_follows_a_table(tmp_path: Path) -> None:
    table = np.random.default_rng(1).gamma(2.0, 3.0, 1_000)
    path = tmp_path / "table"
    path.write_text("".join(f"{value!r}\n" for value in table.tolist()))
    values = jittered({"table": str(path)}, 10 * MS)
    expected = (table - table.mean()) / table.std() * 10 * MS
    assert abs(values.mean()) < 0.01 * 10 * MS
    assert values.std() == pytest.approx(10 * MS, rel=0.01)
    # Each of them, each as often.
    found = pd.Series(values).value_counts().sort_index()
    assert np.abs(found.index.to_numpy() - np.sort(expected)).max() <= 1
    assert stats.chisquare(found.to_numpy()).pvalue > 0.01


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("correlation", [0.3, 0.9])
def test_correlated_jitter_keeps_its_distribution(name: str, correlation: float) -> None:
    shape = SHAPES[name]
    values = jittered(name, 10 * MS, correlation)
    scores = stats.norm.ppf(np.clip(shape.cdf(values), 1e-12, 1 - 1e-12))
    for lag in (1, 2, 5):
        assert autocorrelation(scores, lag) == pytest.approx(correlation**lag, abs=0.02)
    if name == "normal":
        assert autocorrelation(values, 1) == pytest.approx(correlation, abs=0.01)
    # Far apart they are independent, as the test wants them.
    assert stats.kstest(values[::50], shape.cdf).pvalue > 0.01


def test_order_is_kept_by_holding_packets_back() -> None:
    settings = {"delay_ns": 10 * MS, "jitter": {"distribution": "normal", "ns": 2 * MS}}
    outcomes = simulate(settings, steadily(10_000))
    assert outcomes.due_ns.is_monotonic_increasing
    own = simulate({**settings, "reorder": "by-jitter"}, steadily(10_000))
    assert (outcomes.due_ns == own.due_ns.cummax()).all()


def holds(found: int, count: int, probability: float) -> bool:
    """Inside the 99 % interval."""
    low, high = stats.binomtest(found, count, probability).proportion_ci(0.99)
    return bool(low <= probability <= high)


@pytest.mark.parametrize("probability", [0.001, 0.01, 0.3])
def test_loss_is_binomial(probability: float) -> None:
    loss = {"kind": "independent", "probability": probability}
    outcomes = simulate({"loss": loss}, steadily(N))
    lost = (outcomes.reason == "loss").to_numpy()
    assert holds(int(lost.sum()), N, probability)
    assert abs(autocorrelation(lost, 1)) < 0.01


@pytest.mark.parametrize("correlation", [0.25, 0.8])
def test_correlated_loss_keeps_its_share(correlation: float) -> None:
    loss = {"kind": "independent", "probability": 0.1, "correlation": correlation}
    lost = (simulate({"loss": loss}, steadily(1_000_000)).reason == "loss").to_numpy()
    # As many as so many independent ones are worth.
    worth = int(lost.size * (1 - correlation) / (1 + correlation))
    assert holds(round(lost.mean() * worth), worth, 0.1)
    for lag in (1, 2):
        assert autocorrelation(lost, lag) == pytest.approx(correlation**lag, abs=0.01)


def runs(lost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the runs of lost and of other packets, without the first and the last."""
    ends = np.flatnonzero(np.diff(lost.astype(np.int8)))
    lengths, first = np.diff(ends), bool(lost[ends[0] + 1])
    return (lengths[::2], lengths[1::2]) if first else (lengths[1::2], lengths[::2])


@pytest.mark.parametrize(("p", "r"), [(0.05, 0.3), (0.02, 0.5)])
def test_gilbert_elliott_has_its_runs(p: float, r: float) -> None:
    loss = {"kind": "gilbert-elliott", "p": p, "r": r}
    lost = (simulate({"loss": loss}, steadily(1_000_000)).reason == "loss").to_numpy()
    bad, good = runs(lost)
    assert 1 / bad.mean() == pytest.approx(r, rel=0.02)
    assert 1 / good.mean() == pytest.approx(p, rel=0.02)
    lengths = np.bincount(np.minimum(bad, 8), minlength=9)[1:]
    chances = np.append(stats.geom(r).pmf(np.arange(1, 8)), stats.geom(r).sf(7))
    assert stats.chisquare(lengths, chances * lengths.sum()).pvalue > 0.01


def test_both_states_of_gilbert_elliott_lose() -> None:
    p, r, good, bad = 0.1, 0.2, 0.05, 0.6
    loss = {"kind": "gilbert-elliott", "p": p, "r": r, "good": good, "bad": bad}
    lost = (simulate({"loss": loss}, steadily(1_000_000)).reason == "loss").to_numpy()
    assert lost.mean() == pytest.approx((p * bad + r * good) / (p + r), rel=0.02)
    # Only the states remember.
    shares = p * r / (p + r) ** 2
    expected = shares * (bad - good) ** 2 * (1 - p - r) / lost.var()
    assert autocorrelation(lost, 1) == pytest.approx(expected, abs=0.01)


def test_periodic_loss_and_a_trace_are_exact(tmp_path: Path) -> None:
    outcomes = simulate({"loss": {"kind": "periodic", "every": 7}}, steadily(1_000))
    assert list(outcomes.number[outcomes.reason == "loss"]) == list(range(7, 1_001, 7))
    path = tmp_path / "trace"
    path.write_text("0\n1\n1\n0\n0\n")
    outcomes = simulate({"loss": {"kind": "trace", "path": str(path)}}, steadily(1_000))
    lost = [number for number in range(1, 1_001) if (number - 1) % 5 in (1, 2)]
    assert list(outcomes.number[outcomes.reason == "loss"]) == lost


@pytest.mark.parametrize("probability", [0.01, 0.4])
def test_duplication_and_corruption_are_binomial(probability: float) -> None:
    settings = {"duplicate": probability, "corrupt": probability, "delay_ns": MS}
    outcomes = simulate(settings, steadily(N))
    second = outcomes[outcomes.duplicate == 1]
    assert len(outcomes) == N + len(second)
    assert holds(len(second), N, probability)
    assert holds(int(outcomes.corrupted.sum()), len(outcomes), probability)
    # A duplicate is corrupted by itself, and neither impairment knows of the other.
    originals = outcomes[outcomes.duplicate == 0].set_index("number").corrupted
    both = pd.DataFrame({"first": originals.loc[second.number], "second": list(second.corrupted)})
    assert stats.chi2_contingency(pd.crosstab(both["first"], both["second"])).pvalue > 0.01
    doubled = originals.index.isin(second.number)
    assert stats.chi2_contingency(pd.crosstab(originals, doubled)).pvalue > 0.01


def test_skipping_the_delay_is_binomial() -> None:
    settings = {"delay_ns": 10 * MS, "reorder": {"skip": {"probability": 0.05}}}
    outcomes = simulate(settings, steadily(N))
    delay = outcomes.due_ns - outcomes.enqueued_ns
    assert set(delay) == {0, 10 * MS}
    assert holds(int((delay == 0).sum()), N, 0.05)


def test_a_token_bucket_lets_pass_what_it_holds() -> None:
    random = np.random.default_rng(1)
    at = np.cumsum(random.exponential(600_000, 5_000)).astype(np.int64)
    size = random.integers(60, 1515, 5_000)
    rate, burst = 12_345_678, 6_000
    settings = {
        "rate_bps": rate,
        "burst_bytes": burst,
        "queue": {"limit": {"packets": 10_000}},
        "delay_ns": 3 * MS,
    }
    outcomes = simulate(settings, at, size)
    unit = 8 * 10**9
    tokens, since, expected = burst * unit, 0, []
    for arrived, bytes_ in zip(at.tolist(), size.tolist(), strict=True):
        begin = max(arrived, since)
        tokens = min(burst * unit, tokens + (begin - since) * rate)
        wait = max(0, -(-(bytes_ * unit - tokens) // rate))
        tokens = min(burst * unit, tokens + wait * rate) - bytes_ * unit
        since = begin + wait
        expected.append(since + 3 * MS)
    assert outcomes.due_ns.tolist() == expected
    waited = outcomes.due_ns - outcomes.enqueued_ns > 3 * MS
    assert 500 < waited.sum() < 4_500


def test_wrong_settings_say_what_to_do() -> None:
    command = [HOST, "emulate", "--simulate", json.dumps({"duplicate": 1.2})]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "`duplicate`: 120 % is no probability. Write 0% to 100%" in done.stderr
