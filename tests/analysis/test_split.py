"""Real delay and emulated delay: every hop's time in three parts, against plain Python."""

import json
import random
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from links_run import ROUTER, segment, write_account, write_events
from synthetic_run import SECOND, Host, Row, SyntheticRun, event, path, with_tables
from test_statistic import plain

from loopscope.analysis import analyse
from loopscope.experiment.measures import key_of
from loopscope.experiment.plan import Emulation
from loopscope.report.link_rows import tables as link_tables
from loopscope.timeline import RunError, open_run

NAMES = ["h3", "h1", "h2"]
"""Of the router's ports, in an order of their own."""
ERR = {"h1": 100, "h2": 300, ROUTER: 40}
LOOP = path("loop", "id", [event("a", "io", "out"), event("b", "io", "in"), event("b", "io", "x")])
HOSTS = [Host("h1", True, 0, 0.0), Host("h2", False, 300, 0.0), Host(ROUTER, False, 40, 50.0)]


def analysed(
    tmp_path, rows, packets, links=None, path=LOOP, err=ERR[ROUTER], ago=0, hosts=HOSTS, **more
):
    """A run whose router told of these packets."""
    root = SyntheticRun(tmp_path, rows, hosts, [path], **more).write()
    links = {("h1", "h2"): [segment({}, len(packets))]} if links is None else links
    write_account(root, NAMES, links)
    write_events(root, packets, err=err, ago=ago)
    return analyse(open_run(root))


def made(tmp_path, *given, **more):
    """The hops of a run whose router told of some packets."""
    hops = analysed(tmp_path, *given, **more).to_dict()["paths"]["loop"]["hops"]
    return [hop["splits"] for hop in hops]


def crossing(id, start, before, emulated, after, number=None, carried=None, fields=()):
    """A message from h1 to h2: its events and its packet."""
    came, left = start + before, start + before + emulated
    rows = [
        Row("a", "io:out", id, start, ERR["h1"], "h1", fields=fields),
        Row("b", "io:in", id, left + after, ERR["h2"], "h2", fields=fields),
        Row("b", "io:x", id, left + after + 50, ERR["h2"], "h2", fields=fields),
    ]
    return rows, (1, 2, number or id + 1, id if carried is None else carried, came, [left])


def test_the_three_parts_are_the_hop_and_each_has_its_statistics(tmp_path):
    chance = random.Random(7)
    parts = [tuple(chance.randint(1, 10**6) for _ in range(3)) for _ in range(157)]
    sent = [crossing(i, SECOND + i * 10**7, *each) for i, each in enumerate(parts)]
    rows = [row for each, _ in sent for row in each]
    first, second = made(tmp_path, rows, [packet for _, packet in sent])
    assert second == []  # It stays on h2.
    (split,) = first
    assert (split["from"], split["to"]) == ("h1", "h2")
    assert (split["matched"], split["unseen"], split["ambiguous"]) == (157, 0, 0)
    for name, lengths in zip(
        ("before", "emulated", "after"), zip(*parts, strict=True), strict=True
    ):
        for statistic in ("mean", "p50", "p99"):
            expected = plain(statistic, list(lengths))
            if statistic == "mean":
                expected = float(round(expected, 1))
            assert split[name][f"{statistic}_ns"] == expected
    assert split["before"]["err_ns"] == ERR["h1"] + ERR[ROUTER]
    assert split["after"]["err_ns"] == ERR[ROUTER] + ERR["h2"]
    # On the router only its rate counts: 50 ppm twice over the longest, rounded up, and 1 ns; or
    # both stamps' maximum errors where those are less.
    longest = max(emulated for _, emulated, _ in parts)
    assert split["emulated"]["err_ns"] == min(2 * ERR[ROUTER], -(-longest * 100 // 10**6) + 1)


def test_the_means_of_the_parts_sum_to_that_of_the_hop(tmp_path):
    sent = [crossing(i, SECOND + i * 10**6, 11 * i, 7 * i + 3, i * i) for i in range(40)]
    rows = [row for each, _ in sent for row in each]
    ((split,), _) = made(tmp_path, rows, [packet for _, packet in sent])
    hop = json.loads(analyse(open_run(tmp_path)).to_json())["paths"]["loop"]["hops"][0]
    total = sum(Fraction(split[part]["mean_ns"]) for part in ("before", "emulated", "after"))
    assert float(total) == pytest.approx(hop["mean_ns"], abs=0.16)


def test_what_the_router_wrote_down_later_is_where_it_was(tmp_path):
    """Even after the message was read: the kernel hands it over before it returns to the router."""
    sent = [crossing(i, SECOND + i * 10**6, 10, 2000, 30) for i in range(10)]
    rows = [row for each, _ in sent for row in each]
    ((split,), _) = made(tmp_path, rows, [packet for _, packet in sent], ago=9000)
    assert (split["matched"], split["before"]["p50_ns"], split["after"]["p50_ns"]) == (10, 10, 30)
    # 500 ppm of 9 us.
    assert split["before"]["err_ns"] == ERR["h1"] + ERR[ROUTER] + 5


def test_a_router_whose_rate_does_not_wander_at_all_is_not_one_of_unknown_rate(tmp_path):
    rows, packet = crossing(3, SECOND, 10, 20, 30)
    for drift, err in ((0.0, 1), (None, 2 * ERR[ROUTER])):
        hosts = [*HOSTS[:2], Host(ROUTER, False, 40, drift)]
        ((split,), _) = made(tmp_path / str(drift), rows, [packet], hosts=hosts)
        assert split["emulated"]["err_ns"] == err


def test_the_stay_on_the_link_is_known_no_better_than_what_told_of_it(tmp_path):
    rows, packet = crossing(3, SECOND, 10, 20, 30)
    ((split,), _) = made(tmp_path, rows, [packet], ago=40_000)
    # 500 ppm of 40 us at either end.
    assert split["emulated"]["err_ns"] == 2 * 20 + 2


def test_stamps_of_an_earlier_version_are_refused(tmp_path):
    rows, packet = crossing(3, SECOND, 10, 20, 30)
    made(tmp_path, rows, [packet])
    file = tmp_path / "base/1/timeline/link/departed/part-0.parquet"
    table = pq.read_table(file)
    column = table.column_names.index("counter")
    table = table.set_column(column, "counter", pa.array([7] * len(table), pa.uint64()))
    pq.write_table(table, file)
    with pytest.raises(RunError, match="link.departed was made by an earlier version"):
        with_tables(open_run(tmp_path))


def test_who_is_not_on_the_link_is_counted_and_in_no_part(tmp_path):
    sent = [crossing(i, SECOND + i * 10**6, 10, 20, 30) for i in range(10)]
    rows = [row for each, _ in sent for row in each]
    # One packet is missing; one is of the other direction; one left before its message set out.
    packets = [packet for _, packet in sent]
    packets[0] = (1, 2, 1, 99, SECOND, [SECOND + 1])
    packets[1] = (2, 1, *packets[1][2:])
    packets[2] = (1, 2, 3, 2, SECOND, [SECOND + 1])
    ((split,), _) = made(tmp_path, rows, packets)
    assert (split["matched"], split["unseen"], split["ambiguous"]) == (7, 3, 0)
    assert split["before"]["p99_ns"] == 10


def test_a_number_that_two_packets_had_tells_nothing(tmp_path):
    sent = [crossing(i, SECOND + i * 10**6, 1000, 2000, 3000) for i in range(10)]
    rows = [row for each, _ in sent for row in each]
    start = SECOND + 4 * 10**6
    # Another program's message 4, on its way at the same time, and its message 5, long before.
    others = [(1, 2, 77, 4, start + 500, [start + 900]), (1, 2, 78, 5, 10, [20])]
    ((split,), _) = made(tmp_path, rows, [*(packet for _, packet in sent), *others])
    assert (split["matched"], split["unseen"], split["ambiguous"]) == (9, 0, 1)


def test_of_a_packet_and_its_duplicate_the_first_that_left_counts(tmp_path):
    rows, (a, b, number, id, came, [left]) = crossing(3, SECOND, 10, 20, 5000)
    ((split,), _) = made(tmp_path, rows, [(a, b, number, id, came, [left + 700, left])])
    assert (split["matched"], split["emulated"]["p50_ns"]) == (1, 20)


def test_a_packet_that_was_dropped_and_sent_again_is_one(tmp_path):
    rows, packet = crossing(3, SECOND, 5000, 20, 10)
    dropped = (1, 2, 1, 3, SECOND + 100, [])
    ((split,), _) = made(tmp_path, rows, [dropped, packet])
    assert (split["matched"], split["ambiguous"]) == (1, 0)
    assert split["before"]["p50_ns"] == 5000


def test_stamps_may_be_off_by_their_half_widths(tmp_path):
    # It seems to have come before it was sent, by less than the clocks know.
    rows, packet = crossing(3, SECOND, -(ERR["h1"] + ERR[ROUTER]), 200, -(ERR["h2"] + ERR[ROUTER]))
    ((split,), _) = made(tmp_path / "in", rows, [packet])
    assert (split["matched"], split["before"]["p50_ns"]) == (1, -140)
    off = {
        "early": (-(ERR["h1"] + ERR[ROUTER] + 1), 10),
        "late": (10, -(ERR["h2"] + ERR[ROUTER] + 1)),
    }
    for name, (before, after) in off.items():
        rows, packet = crossing(3, SECOND, before, 2000, after)
        ((split,), _) = made(tmp_path / name, rows, [packet])
        assert (split["matched"], split["unseen"]) == (0, 1)


def test_a_hop_between_hosts_without_an_emulated_link_has_no_parts(tmp_path):
    rows, packet = crossing(3, SECOND, 10, 20, 30)
    assert made(tmp_path, rows, [packet], links={("h2", "h1"): [segment({}, 0)]}) == [[], []]


def of_the_path(results):
    """The problems that are about it."""
    return [problem for problem in results.problems if problem.startswith("path ")]


WITHOUT_SIGN = (1 << 63) - 1
KEYS = {
    "seq": (8, lambda n: n, lambda n: n),
    "large": (8, lambda n: (1 << 63) + 7 * n, lambda n: 7 * n),
    "mixed": (8, lambda n: n if n % 2 else (1 << 64) - n, lambda n: -n if n % 2 == 0 else n),
    "negative": (8, lambda n: -n, lambda n: -n & WITHOUT_SIGN),
    "small": (2, lambda n: -n, lambda n: -n & 0xFFFF),
}
"""Of each the bytes that packets have of it, the key, and what the router tells."""


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_one_whole_number_is_compared_as_packets_carry_it(tmp_path, name):
    width, key, carried = KEYS[name]
    field = name if name == "seq" else "key"
    sent = [
        crossing(
            n,
            SECOND + n * 10**6,
            10 * n,
            2000,
            30,
            carried=carried(n) & WITHOUT_SIGN,
            fields=() if name == "seq" else (("key", key(n)),),
        )
        for n in range(1, 30)
    ]
    rows = [row for each, _ in sent for row in each]
    packets = [packet for _, packet in sent]
    message = {"offset": 0, "width": width, "order": "little"}
    emulation = Emulation("auto", "sleep", 1, True, (), message)
    of_key = path("loop", field, LOOP.events)
    results = analysed(tmp_path, rows, packets, path=of_key, emulation=emulation)
    (split,), _ = (hop.splits for hop in results.paths[0].hops)
    assert (split.matched, split.unseen, split.ambiguous) == (29, 0, 0)
    assert split.before.times["p50"] == 150
    assert of_the_path(results) == [] and results.paths[0].unsplit is None


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("text", "the key text is no whole number"),
        ("raw", "the key raw is no whole number"),
        (key_of(["id", "seq"]), "the key id, seq is of several fields"),
    ],
)
def test_a_key_that_no_packet_carries_is_not_looked_for_and_the_report_says_why(tmp_path, key, why):
    fields = (("text", "m"), ("raw", b"m"))
    rows, packet = crossing(3, SECOND, 10, 20, 30, fields=fields)
    of_key = path("loop", key, LOOP.events)
    links = {("h1", "h2"): [segment({"delay_ns": 20}, 1)]}
    results = analysed(tmp_path, rows, [packet], links=links, path=of_key)
    (found,) = results.paths
    assert [hop.splits for hop in found.hops] == [(), ()]
    assert found.unsplit == results.to_dict()["paths"]["loop"]["unsplit"] is not None
    assert why in found.unsplit
    assert of_the_path(results) == []
    (links,) = link_tables(results)
    assert found.unsplit in links.note
    # There is nothing to say of a path that goes over no such link.
    elsewhere = {("h2", "h1"): [segment({}, 0)]}
    results = analysed(tmp_path / "other", rows, [packet], links=elsewhere, path=of_key)
    assert results.paths[0].unsplit is None


def test_a_link_on_which_no_packet_has_a_messages_number_is_a_problem(tmp_path):
    """Said once, with what to do; the packets carry 70 and more."""
    sent = [crossing(i, SECOND + i * 10**6, 10, 20, 30, carried=i + 70) for i in range(10)]
    rows = [row for each, _ in sent for row in each]
    packets = [packet for _, packet in sent]
    results = analysed(tmp_path, rows, packets)
    (problem,) = of_the_path(results)
    assert "path loop, a/io:out → b/io:in" in problem and "link h1 → h2" in problem
    assert "the id of any of 10 messages" in problem
    assert "network: {message: {offset, width, order}}" in problem
    assert "first 8 bytes, little-endian" in problem
    message = {"offset": 4, "width": 2, "order": "big"}
    emulation = Emulation("auto", "sleep", 1, True, (), message)
    (problem,) = of_the_path(analysed(tmp_path / "other", rows, packets, emulation=emulation))
    assert "2 bytes from offset 4 on, big-endian" in problem


def test_one_message_that_was_seen_on_its_link_is_no_problem(tmp_path):
    sent = [
        crossing(i, SECOND + i * 10**6, 10, 20, 30, carried=i + 70 * (i > 0)) for i in range(10)
    ]
    results = analysed(tmp_path, [r for each, _ in sent for r in each], [p for _, p in sent])
    assert of_the_path(results) == [] and results.paths[0].hops[0].splits[0].matched == 1


def test_a_link_that_carried_nothing_while_messages_were_on_their_way_is_no_problem(tmp_path):
    sent = [crossing(i, SECOND + i * 10**6, 10, 20, 30) for i in range(10)]
    rows = [row for each, _ in sent for row in each]
    # One long before, one that came in time and left too late, one that the other direction had.
    others = [
        (1, 2, 1, 99, 10, [20]),
        (1, 2, 2, 99, SECOND + 5, [SECOND + 10**5]),
        (2, 1, 3, 99, SECOND + 5, [SECOND + 6]),
    ]
    for packets in ([], others):
        results = analysed(tmp_path / str(len(packets)), rows, packets)
        assert of_the_path(results) == []
        assert results.paths[0].hops[0].splits[0].matched == 0


def test_without_the_routers_events_there_are_no_parts(tmp_path):
    rows, _ = crossing(3, SECOND, 10, 20, 30)
    root = SyntheticRun(tmp_path, rows, HOSTS, [LOOP]).write()
    write_account(root, NAMES, {("h1", "h2"): [segment({}, 1)]})
    hops = analyse(open_run(root)).to_dict()["paths"]["loop"]["hops"]
    assert [hop["splits"] for hop in hops] == [[], []]
