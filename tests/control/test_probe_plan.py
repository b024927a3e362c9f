"""The hosts that probe each other among many, and how many probes there are."""

from __future__ import annotations

from itertools import combinations

import pytest

from loopscope.control import probe_plan

SIZES = [2, 3, 4, 7, 8, 9, 13, 14, 40, 99, 1000]


def edges(count: int) -> set[frozenset[str]]:
    names = [f"h{number}" for number in range(count)]
    found = [
        frozenset((name, peer))
        for name, probed in probe_plan.peers(names).items()
        for peer in probed
    ]
    assert len(found) == len(set(found)), "an edge twice"
    return set(found)


def neighbours(of: set[frozenset[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for edge in of:
        for name in edge:
            found.setdefault(name, set()).update(edge - {name})
    return found


@pytest.mark.parametrize("count", range(2, 8))
def test_few_followers_all_check_each_other(count: int) -> None:
    names = [f"h{number}" for number in range(count)]
    assert edges(count) == {frozenset(pair) for pair in combinations(names, 2)}


@pytest.mark.parametrize("count", SIZES)
def test_each_host_checks_few_others_and_the_graph_is_connected(count: int) -> None:
    near = neighbours(edges(count))
    assert len(near) == count
    assert max(map(len, near.values())) <= probe_plan.PEERS
    # Any host may fail: all look alike on the ring.
    reached, beyond = {"h0"}, ["h0"]
    failed = {"h1"} if count > 2 else set()
    while beyond:
        new = near[beyond.pop()] - reached - failed
        reached |= new
        beyond += new
    assert len(reached) == count - len(failed)


@pytest.mark.parametrize("count", [size for size in SIZES if size > 2])
def test_each_edge_is_in_a_loop_of_three_without_the_reference(count: int) -> None:
    every = edges(count)
    near = neighbours(every)
    for one, other in map(tuple, every):
        assert near[one] & near[other], f"{one} {other} of {count}"


def test_probes_of_many_hosts_together_are_bounded() -> None:
    assert probe_plan.rate_hz(100, 1) == 100
    assert probe_plan.rate_hz(100, 20) == 100
    assert probe_plan.rate_hz(100, 99) == pytest.approx(2000 / 99)
    assert probe_plan.rate_hz(0.1, 99) == 0.1
    assert probe_plan.rate_hz(0.1, 100_000) == 0.1
    assert probe_plan.rate_hz(1000, 100_000) == probe_plan.LEAST_HZ
    assert probe_plan.edge_hz(21) == 10
    assert probe_plan.edge_hz(len(edges(99))) * len(edges(99)) == pytest.approx(500)


def test_first_and_last_bursts_of_many_hosts_are_bounded() -> None:
    assert probe_plan.burst(100, 1) == probe_plan.burst(100, 200) == 100
    assert probe_plan.burst(7, 1000) == 7
    assert probe_plan.burst(100, 1000) == 20
    assert probe_plan.burst(100, 100_000) == probe_plan.BURST_LEAST
    assert probe_plan.last_bursts(100, 200) == 8
    assert probe_plan.last_bursts(100, 1000) == 40
    assert probe_plan.last_bursts(10_000, 3) == 1


def test_load_does_not_make_many_followers_probe_more_than_it_lets_them() -> None:
    assert probe_plan.load_burst(100, 1) == probe_plan.load_burst(100, 20) == 100
    assert probe_plan.load_burst(10, 20) == 10
    assert probe_plan.load_burst(100, 200) * 200 == probe_plan.LOAD_BURSTS
    assert probe_plan.load_burst(100, 100_000) == probe_plan.LOAD_LEAST


def test_pairs_are_those_of_the_reference_and_of_the_mesh() -> None:
    assert probe_plan.pairs(["r"], mesh=True) == []
    assert probe_plan.pairs(["r", "a"], mesh=True) == [("r", "a")]
    hosts = ["r", *(f"h{at}" for at in range(12))]
    alone = probe_plan.pairs(hosts, mesh=False)
    assert alone == [("r", follower) for follower in hosts[1:]]
    meshed = probe_plan.pairs(hosts, mesh=True)
    assert meshed[: len(alone)] == alone
    assert {frozenset(pair) for pair in meshed[len(alone) :]} == {
        frozenset((later, each))
        for later, before in probe_plan.peers(hosts[1:]).items()
        for each in before
    }
