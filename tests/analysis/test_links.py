"""What links did, compared with what they were asked to do."""

import itertools
import json
import math
import random

import pytest
from links_run import ROUTER, segment, times, write_account
from synthetic_run import Host, pipeline, with_tables

from loopscope.analysis import analyse
from loopscope.analysis.measured_links import share
from loopscope.timeline import RunError, open_run


def judged(tmp_path, *segments):
    """The run's results, its router having one link with these segments."""
    root = pipeline(tmp_path, messages=5).write()
    write_account(root, ["h1", "h2"], {("h1", "h2"): segments})
    return analyse(open_run(root))


def of(results):
    (link,) = results.to_dict()["links"]
    return link


def test_a_run_without_a_router_has_no_links(tmp_path):
    results = analyse(open_run(pipeline(tmp_path, messages=5).write()))
    assert results.links == ()
    assert results.to_dict()["links"] == []


def test_delay_deviation_and_rate_stand_beside_what_was_asked(tmp_path):
    jitter = {"distribution": "uniform", "ns": 3_000_000}
    asked = {"delay_ns": 20_000_000, "jitter": jitter}
    moved = times(20_004_000.5, 1_730_000.0, 20_000_000, 23_000_000)
    given = segment(
        asked,
        1001,
        delay_ns=moved,
        late_ns=times(4_000.5, 900.0, 3_000, 21_000),
        first_ns=1_000_000_000,
        last_ns=3_000_000_000,
    )
    link = of(judged(tmp_path, given))
    assert (link["from"], link["to"], link["mover"], link["wait"]) == ("h1", "h2", "xdp", "sleep")
    assert link["asked"]["jitter"] == jitter
    assert link["delay_error_ns"] == 4_000.5
    # Half the width of a uniform distribution is √3 deviations.
    assert link["asked_deviation_ns"] == pytest.approx(1_732_050.8, abs=0.1)
    assert link["late_ns"]["p99"] == 21_000
    assert link["rate_bps"] == 1001 * 100 * 8 / 2
    assert (link["packets"], link["departed"], link["queued"]) == (1001, 1001, 0)


def test_a_queue_adds_to_the_delay_so_there_is_no_error_of_the_mean(tmp_path):
    for key, value in (("rate_bps", 10**6), ("opportunities", "trace"), ("delays", "trace")):
        asked = {"delay_ns": 10_000_000, key: value}
        link = of(judged(tmp_path / key, segment(asked, 10, delay_ns=times(11e6, 0.0, 1, 2))))
        assert link["asked_delay_ns"] is link["delay_error_ns"] is None


def test_nothing_that_came_measures_nothing(tmp_path):
    link = of(judged(tmp_path, segment({"loss": {"kind": "independent", "probability": 0.1}})))
    assert link["delay_ns"]["mean"] is link["delay_error_ns"] is link["rate_bps"] is None
    assert link["lost"] == {
        "found": 0,
        "of": 0,
        "low": None,
        "high": None,
        "asked": 0.1,
        "inside": None,
    }


def test_loss_is_of_the_packets_that_fit_and_duplicates_of_what_was_not_lost(tmp_path):
    asked = {"loss": {"kind": "independent", "probability": 0.1}, "duplicate": 0.05, "corrupt": 0.5}
    given = segment(asked, 1000, {"mtu": 100, "loss": 90}, queued=10, duplicated=40, corrupted=420)
    link = of(judged(tmp_path, given))
    assert (link["lost"]["found"], link["lost"]["of"], link["lost"]["inside"]) == (90, 900, True)
    assert (link["duplicated"]["found"], link["duplicated"]["of"]) == (40, 800)
    assert (link["corrupted"]["found"], link["corrupted"]["of"]) == (420, 840)
    assert link["duplicated"]["inside"] and link["corrupted"]["inside"]
    assert link["dropped"]["mtu"] == 100


def by_netem(tmp_path, given):
    root = pipeline(tmp_path, messages=5).write()
    write_account(root, ["h1", "h2"], {("h1", "h2"): [given]}, mover="netem")
    return analyse(open_run(root))


def test_what_netem_does_not_say_is_compared_with_nothing(tmp_path):
    loss = {"kind": "independent", "probability": 0.1}
    given = segment({"loss": loss, "rate_bps": 10**6}, 1000, {"kernel": 300})
    results = by_netem(tmp_path / "both", given)
    link = of(results)
    assert link["lost"]["inside"] is link["lost"]["low"] is None
    assert link["dropped"]["kernel"] == 300
    assert results.problems == ()
    # It is not known either where it threw away what was in a queue.
    link = of(by_netem(tmp_path / "some", segment({"loss": loss}, 1000, {"loss": 99, "kernel": 1})))
    assert link["lost"]["inside"] is None


def test_of_netem_only_what_came_out_or_cannot_any_more_shows_a_fate(tmp_path):
    asked = {"loss": {"kind": "independent", "probability": 0.1}, "duplicate": 0.05}
    given = segment(asked, 1000, {"loss": 90}, queued=100, duplicated=40)
    link = of(by_netem(tmp_path, given))
    assert (link["lost"]["found"], link["lost"]["of"], link["lost"]["inside"]) == (90, 900, True)
    assert (link["duplicated"]["found"], link["duplicated"]["of"]) == (40, 810)
    assert link["late_ns"]["p50"] is None


def test_a_loss_that_nobody_asked_for_is_outside(tmp_path):
    found = of(judged(tmp_path, segment({}, 1000, {"loss": 1})))["lost"]
    assert found["asked"] == 0
    assert found["inside"] is False


def test_what_the_mover_lost_itself_is_a_problem(tmp_path):
    results = judged(tmp_path, segment({}, 1000, {"moving": 3}), segment({}, 10, {"moving": 4}))
    (problem,) = results.problems
    assert problem.startswith("link h1 → h2, repeat 1: the mover itself lost 7 packets")


def test_what_the_router_says_of_its_ports_is_a_problem(tmp_path):
    root = pipeline(tmp_path, messages=5).write()
    write_account(root, ["h1", "h2"], {}, problems=["d1: 3 frames were lost"])
    assert analyse(open_run(root)).problems == ("_router, repeat 1: d1: 3 frames were lost",)


def test_an_account_that_does_not_balance_is_a_problem(tmp_path):
    given = segment({}, 1000)
    given["out"]["packets"] -= 1
    (problem,) = judged(tmp_path, given).problems
    assert "1000 packets came, 999 went on or are waiting, 0 were dropped" in problem


def test_a_router_without_an_account_is_a_problem(tmp_path):
    root = pipeline(tmp_path, messages=5).write()
    (root / "base" / "1" / "hosts" / ROUTER).mkdir()
    (problem,) = analyse(open_run(root)).problems
    assert "left no account" in problem


def test_an_account_of_another_version_is_an_error(tmp_path):
    root = pipeline(tmp_path, messages=5).write()
    write_account(root, ["h1", "h2"], {})
    (file,) = root.rglob("links.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 2}))
    with pytest.raises(RunError, match="links.json: not an account of links: version 2"):
        with_tables(open_run(root))


def tails(of, asked):
    """By number found: the probabilities of as few and of as many."""
    weights = [
        math.exp(
            math.lgamma(of + 1)
            - math.lgamma(k + 1)
            - math.lgamma(of - k + 1)
            + k * math.log(asked)
            + (of - k) * math.log1p(-asked)
        )
        for k in range(of + 1)
    ]
    few = list(itertools.accumulate(weights))
    many = list(itertools.accumulate(reversed(weights)))[::-1]
    return list(zip(few, many, strict=True))


def test_the_interval_has_the_shares_that_99_of_100_runs_would_show():
    # Half a percent in each tail, by the binomial distribution itself; Wilson's is close to that.
    for of_, asked in ((200, 0.05), (1000, 0.3), (3000, 0.01)):
        for found, tail in enumerate(tails(of_, asked)):
            inside = share(found, of_, asked).inside
            assert inside or min(tail) < 0.02, (found, of_, asked)
            assert not inside or min(tail) > 0.0005, (found, of_, asked)


def test_no_share_is_ruled_out_by_rounding():
    assert share(0, 50, 0.0).inside
    assert share(50, 50, 1.0).inside


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ({"kind": "gilbert-elliott", "p": 0.01, "r": 0.09, "good": 0.0, "bad": 1.0}, 0.1),
        ({"kind": "gilbert-elliott", "p": 0.01, "r": 0.09, "good": 0.02, "bad": 0.7}, 0.088),
        ({"kind": "independent", "probability": 0.1, "correlation": 0.8}, 0.1),
        ({"kind": "independent", "probability": 0.1}, 0.1),
    ],
)
def test_the_interval_allows_for_bursts(tmp_path, loss, expected):
    """One in a hundred seeded chains of losses may lie outside, and it is not far too wide."""
    packets, chains = 4000, 300
    chance = random.Random(1)
    losses = [sum(chain(loss, packets, chance)) for _ in range(chains)]
    given = [segment({"loss": loss}, packets, {"loss": lost}) for lost in losses]
    links = judged(tmp_path, *given).to_dict()["links"]
    assert {round(link["lost"]["asked"], 12) for link in links} == {expected}
    outside = sum(not link["lost"]["inside"] for link in links)
    assert outside <= 12
    # The deviation of the numbers is what the interval's width says, by half.
    mean = sum(losses) / chains
    deviation = math.sqrt(sum((each - mean) ** 2 for each in losses) / chains)
    width = packets * (links[0]["lost"]["high"] - links[0]["lost"]["low"]) / 2 / 2.576
    assert 0.67 < width / deviation < 1.5


def chain(loss, packets, chance):
    """Whether each packet is lost, from the definition of each kind of loss."""
    bad, before = False, None
    for _ in range(packets):
        if loss["kind"] == "independent":
            lost = chance.random() < loss["probability"]
            if before is not None and chance.random() < loss.get("correlation", 0.0):
                lost = before
            before = lost
        else:
            lost = chance.random() < loss["bad" if bad else "good"]
            if chance.random() < loss["r" if bad else "p"]:
                bad = not bad
        yield lost


def test_a_router_may_be_a_host_of_the_run(tmp_path):
    synthetic = pipeline(tmp_path, messages=5)
    synthetic.hosts = [*synthetic.hosts, Host(ROUTER, drift_ppm=0.05)]
    root = synthetic.write()
    write_account(root, ["h1", "h2"], {("h1", "h2"): [segment({}, 1)]})
    assert len(analyse(open_run(root)).links) == 1
