"""Confidence intervals and digests, against scipy and against the values themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from loopscope.graph.digest import DELTA, Digest
from loopscope.graph.sampling import COLUMNS, grouped, statistics_of

OPTIONS = {
    "of": "x",
    "statistics": ["mean", "deviation", "min", "p50", "p99"],
    "confidence": 950_000.0,
    "resamples": 2000,
    "seed": 1,
    "memory": 100_000,
}


def statistics(values: np.ndarray, **options: object) -> dict[str, dict[str, object]]:
    batch = pa.record_batch({"_value": pa.array(values)})
    made = statistics_of(iter([batch]), (), OPTIONS | options, COLUMNS)
    return {row["statistic"]: row for each in made for row in each.to_pylist()}


@pytest.mark.parametrize(
    ("name", "statistic"),
    [
        ("mean", np.mean),
        ("deviation", np.std),
        ("p50", lambda x, axis: np.quantile(x, 0.5, axis=axis, method="inverted_cdf")),
    ],
)
def test_intervals_are_those_of_a_bootstrap(name: str, statistic: object) -> None:
    values = np.random.default_rng(3).lognormal(10, 0.5, 300).astype(np.int64)
    found = statistics(values)[name]
    wanted = stats.bootstrap(
        (values,), statistic, n_resamples=2000, method="percentile", rng=7
    ).confidence_interval
    width = wanted.high - wanted.low
    # Two bootstraps of 2000 resamples differ by some hundredths of the interval.
    assert abs(found["low"] - wanted.low) < 0.12 * width
    assert abs(found["high"] - wanted.high) < 0.12 * width


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    chance = np.random.default_rng(11)
    covered = 0
    for _ in range(1000):
        values = chance.exponential(1000, 200)
        found = statistics(values, resamples=400, statistics=["p50"])["p50"]
        covered += found["low"] <= 1000 * np.log(2) <= found["high"]
    # 95 % of 1000, within four standard deviations.
    assert 922 <= covered <= 978


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    values = np.random.default_rng(3).integers(0, 10_000, 500)
    assert statistics(values) == statistics(values)
    assert statistics(values)["mean"]["low"] != statistics(values, seed=2)["mean"]["low"]


def test_extremes_have_no_interval() -> None:
    assert statistics(np.arange(50))["min"]["low"] is None


def test_beyond_memory_a_digest_is_taken_and_said() -> None:
    values = np.random.default_rng(5).lognormal(10, 1, 20_000).astype(np.int64)
    within = statistics(values)
    beyond = statistics(values, memory=1000)
    assert {row["method"] for row in within.values()} == {"bootstrap"}
    assert {row["method"] for row in beyond.values()} == {"t-digest"}
    assert beyond["mean"]["value"] == pytest.approx(within["mean"]["value"])
    assert beyond["deviation"]["value"] == pytest.approx(within["deviation"]["value"])
    for name in ("mean", "p50"):
        width = within[name]["high"] - within[name]["low"]
        assert beyond[name]["low"] == pytest.approx(within[name]["low"], abs=0.15 * width)
        assert beyond[name]["high"] == pytest.approx(within[name]["high"], abs=0.15 * width)


@pytest.mark.parametrize("shape", ["lognormal", "uniform", "two", "sorted"])
def test_ranks_of_a_digest(shape: str) -> None:
    chance = np.random.default_rng(1)
    values = {
        "lognormal": chance.lognormal(10, 2, 200_000),
        "uniform": chance.uniform(0, 1e9, 200_000),
        "two": np.concatenate([chance.normal(0, 1, 190_000), chance.normal(1e6, 1, 10_000)]),
        "sorted": np.arange(200_000.0),
    }[shape]
    digest = Digest()
    for part in np.array_split(values, 37):
        digest.add(part, np.zeros(len(part), dtype=np.int64))
    for share in (0.001, 0.01, 0.5, 0.9, 0.99, 0.999):
        rank = np.mean(values <= digest.quantile(share))
        # One centroid's span, as the module says, and the step between two values.
        assert abs(rank - share) < 2 * np.pi / DELTA * np.sqrt(share * (1 - share)) + 2 / len(
            values
        )
    assert len(digest._weights) < 1.1 * DELTA


def test_groups_are_cut_wherever_batches_are() -> None:
    keys = [None, None, "a", "a", "b", "b", "b", "c"]
    table = pa.table({"k": keys, "_value": range(8)})
    for size in range(1, 9):
        found = [
            (key, group.count) for key, group in grouped(iter(table.to_batches(size)), ("k",), 1000)
        ]
        assert found == [((None,), 2), (("a",), 2), (("b",), 3), (("c",), 1)]
