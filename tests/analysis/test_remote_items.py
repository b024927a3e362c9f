"""The way of channels' items to other hosts, against ways that are known."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from synthetic_run import Host, Row, SyntheticRun

from loopscope.analysis.channel_result import RemoteItems, RemotePart
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.analysis.remote_items import read_remote_items
from loopscope.experiment import Channel
from loopscope.timeline import open_run

US = 1000
FRAMES = Channel(
    name="frames",
    home="h1",
    item_bytes=8,
    capacity=4,
    slots=8,
    inputs=4,
    outputs=4,
    loans=1,
    processes=4,
    ahead=4,
    remembered=4,
    full="refuse",
    orphans="keep",
)
HOSTS = (
    Host("h1", reference=True, max_err_ns=0, drift_ppm=0.0),
    Host("h2", max_err_ns=4 * US, drift_ppm=1.0, apart_ns=20),
    Host("h3", max_err_ns=4 * US, drift_ppm=1.0, apart_ns=20),
    Host("h4", max_err_ns=4 * US, drift_ppm=1.0, apart_ns=20),
)
# By how much the clock of the home is ahead, and those of the other hosts are behind; the stamps
# have errors that allow it.
AHEAD, HOME_ERR = 2 * US, 2 * US
BEHIND, ERR = 3 * US, 4 * US
APART = AHEAD + BEHIND


@dataclasses.dataclass
class Way:
    """Instants of an item on its way to readers, by the true time; events that were lost."""

    repeat: int
    time: int
    host: str
    put: int
    sent: int
    """The sending by which it came."""
    sendings: list[int]
    received: int
    got: dict[tuple[str, int], list[int]]
    """By component and thread."""
    lost: set[str] = dataclasses.field(default_factory=set)
    thread: int = 11
    """The thread of the home's service that sent it."""

    def rows(self) -> Iterable[Row]:
        if "put" not in self.lost:
            yield self._row("camera", "put", self.put, "h1", 1)
        if "sent" not in self.lost:
            for at in self.sendings:
                yield self._row("_channels-h1", "sent", at, "h1", self.thread)
        if "received" not in self.lost:
            yield self._row(f"_channels-{self.host}", "received", self.received, self.host, 12)
        for (component, thread), every in self.got.items():
            for at in every:
                yield self._row(component, "got", at, self.host, thread)

    def _row(self, component: str, event: str, at: int, host: str, thread: int) -> Row:
        home = host == "h1"
        at, err = (at + AHEAD, HOME_ERR) if home else (at - BEHIND, ERR)
        own = (("bytes", 8),)
        return Row(component, f"frames:{event}", self.time, at, err, host, self.repeat, own, thread)


def results(
    root: Path, ways: Sequence[Way], more: Sequence[Row] = (), **options: Any
) -> dict[tuple[int, str, str, int], RemoteItems]:
    rows = [row for way in ways for row in way.rows()]
    # A reader at home has no way to another host.
    own = (("bytes", 8),)
    rows += [
        Row("local", "frames:got", way.time, way.put + 1, repeat=way.repeat, fields=own)
        for way in ways
    ]
    run = SyntheticRun(root, [*rows, *more], HOSTS, **options)
    found = read_remote_items(open_run(run.write()), [FRAMES])
    made = {(each.repeat, each.host, each.component, each.tid): each for each in found}
    assert len(made) == len(found)
    return made


def part(part: RemotePart) -> tuple[int, dict[str, int | None], int | None]:
    return part.items, dict(part.times), part.err_ns


def expected(lengths: list[int], error: Callable[[int], int]) -> Any:
    """The number of items, the statistics by nearest rank, and the largest maximum error."""
    lengths, n = sorted(lengths), len(lengths)
    if not n:
        return 0, {"p50": None, "p99": None, "max": None}, None
    ranks = {"p50": math.ceil(0.5 * n), "p99": math.ceil(0.99 * n), "max": n}
    return n, {name: lengths[rank - 1] for name, rank in ranks.items()}, max(map(error, lengths))


def at_home(length: int) -> int:
    """The home's counter does not drift."""
    return 1


def between(length: int) -> int:
    return HOME_ERR + ERR


def elsewhere(length: int) -> int:
    """2·drift·Δ rounded up, what processors' counters are apart, and 1 ns; or that of the stamps.

    Of 1 ppm and 20 ns.
    """
    return min(2 * ERR, math.ceil(2e-6 * abs(length)) + 21)


READERS = (("tracker", 21), ("tracker", 22), ("viewer", 31))


def drawn(draw: random.Random, repeats: int, items: int) -> list[Way]:
    """Items in several repeats, of each of which some readers get some, and of which records lack.

    Every seventh time is put again much later, as in a channel that was made anew; every fifth item
    is sent again, as after a connection was lost, and every eleventh although it has come. Of these
    no record lacks.
    """
    ways = []
    for repeat in range(1, repeats + 1):
        numbers = [*range(items), *range(0, items, 7)]
        for place, time in enumerate(numbers):
            put = 10**9 + place * 1000 * US
            # On its way it may take less than the clocks are wrong by.
            sendings = [put + draw.randrange(1, 90 * US)]
            if time % 5 == 0:
                sendings.append(sendings[0] + draw.randrange(1, 90 * US))
            received = sendings[-1] + draw.randrange(1, 200 * US)
            counts = sendings[-1]
            if time % 11 == 0:
                sendings.append(received + 30 * US)
            got = {}
            for reader in READERS:
                at = received + 40 * US + draw.randrange(1, 300 * US)
                # What it has, it may get again.
                every = [at, at + 200 * US] if draw.random() < 0.3 else [at]
                if draw.random() < 0.8:
                    got[reader] = every
            lost = set()
            if time % 7 and time % 5 and time % 11:
                for event in ("put", "sent", "received"):
                    if draw.random() < 0.1:
                        lost.add(event)
            ways.append(Way(repeat, time, "h2", put, counts, sendings, received, got, lost))
    return ways


def test_each_part_has_the_items_with_both_records_and_their_times(tmp_path: Path) -> None:
    ways = drawn(random.Random(7), repeats=2, items=400)
    found = results(tmp_path, ways, repeats=2)
    assert set(found) == {(r, "h2", *reader) for r in (1, 2) for reader in READERS}
    for (repeat, _, component, thread), result in found.items():
        mine = [way for way in ways if way.repeat == repeat and (component, thread) in way.got]
        lengths = defaultdict(list)
        for way in mine:
            at = {
                "put": way.put + AHEAD,
                "sent": way.sent + AHEAD,
                "received": way.received - BEHIND,
                "got": way.got[component, thread][0] - BEHIND,
            }
            for start, end in (
                ("put", "sent"), ("sent", "received"), ("received", "got"), ("put", "got")
            ):  # fmt: skip
                if not {start, end} & way.lost:
                    lengths[start, end].append(at[end] - at[start])
        lacks = {event: sum(event in way.lost for way in mine) for event in ("put", "sent")}
        assert result.items == len(mine) and result.undecided_sent == 0
        assert min(lacks.values()) > 0 and min(lengths["sent", "received"]) < 0
        assert (result.without_put, result.without_sent) == (lacks["put"], lacks["sent"])
        assert result.without_received == sum("received" in way.lost for way in mine) > 0
        assert part(result.put_to_sent) == expected(lengths["put", "sent"], at_home)
        assert part(result.sent_to_received) == expected(lengths["sent", "received"], between)
        assert part(result.received_to_got) == expected(lengths["received", "got"], elsewhere)
        assert part(result.whole) == expected(lengths["put", "got"], between)


def plain(time: int, host: str, thread: int, transit: int = 500 * US, reader: int = 21) -> Way:
    put = 10**9 + time * 1000 * US
    sent = put + (10 + thread) * US
    received = sent + transit
    got = {(f"reader-{host}", reader): [received + 5 * US]}
    return Way(1, time, host, put, sent, [sent], received, got, set(), thread)


def without_put(ways: Iterable[Way]) -> list[Way]:
    """The ways where, of several of an item, all but the first have no put of their own."""
    seen: set[int] = set()
    found = []
    for way in ways:
        found.append(dataclasses.replace(way, lost={"put"} if way.time in seen else set()))
        seen.add(way.time)
    return found


def test_sendings_to_several_hosts_are_told_by_threads_that_alone_can_have_sent(
    tmp_path: Path,
) -> None:
    """An item that one host alone got shows whose thread it is, and so the other's."""
    ways = [plain(time, host, thread) for time in range(50) for host, thread in HOST_THREADS]
    ways.append(plain(50, "h2", 11))
    found = results(tmp_path, without_put(ways))
    for host, thread in HOST_THREADS:
        result = found[1, host, f"reader-{host}", 21]
        count = 51 if host == "h2" else 50
        assert (result.items, result.undecided_sent, result.without_sent) == (count, 0, 0)
        # Both threads sent the item before either host had it.
        assert result.put_to_sent.times["max"] == (10 + thread) * US
        assert result.sent_to_received.times["max"] == 500 * US - APART


HOST_THREADS = (("h2", 11), ("h3", 13))


def test_where_threads_cannot_be_told_apart_their_sendings_are_open(tmp_path: Path) -> None:
    ways = [plain(time, host, thread) for time in range(50) for host, thread in HOST_THREADS]
    found = results(tmp_path, without_put(ways))
    for host, _ in HOST_THREADS:
        result = found[1, host, f"reader-{host}", 21]
        assert (result.items, result.undecided_sent, result.without_sent) == (50, 50, 0)
        assert result.put_to_sent.items == result.sent_to_received.items == 0
        assert result.put_to_sent.times["p50"] is None
        # The rest is known all the same.
        assert result.received_to_got.items == result.whole.items == 50


def test_a_host_whose_thread_is_known_has_no_other_where_there_is_one_for_each(
    tmp_path: Path,
) -> None:
    """Where there is another thread, it may be a further connection of that host."""
    each = (*HOST_THREADS, ("h4", 15))
    ways = [plain(time, host, thread) for time in range(50) for host, thread in each]
    ways.append(plain(50, "h2", 11))
    opened = {
        key[1]: result.undecided_sent
        for key, result in results(tmp_path / "three", without_put(ways)).items()
    }
    assert opened == {"h2": 0, "h3": 50, "h4": 50}
    more = [Row("_channels-h1", "frames:sent", 7, 10**9 + 7010 * US, HOME_ERR, thread=17)]
    more = [dataclasses.replace(each, fields=(("bytes", 8),)) for each in more]
    found = results(tmp_path / "four", without_put(ways), more)
    result = found[1, "h2", "reader-h2", 21]
    assert result.undecided_sent == 50 and result.sent_to_received.items == 1


def test_where_records_of_sendings_may_lack_no_thread_is_told(tmp_path: Path) -> None:
    """The sending that seems to be the only one need not be."""
    ways = [plain(time, host, thread) for time in range(50) for host, thread in HOST_THREADS]
    ways.append(plain(50, "h2", 11))
    drops = {("_channels-h1", "frames:sent"): 1}
    result = results(tmp_path, without_put(ways), drops=drops)[1, "h2", "reader-h2", 21]
    assert (result.undecided_sent, result.put_to_sent.items) == (51, 0)


def test_what_was_not_recorded_at_all_lacks_and_is_not_made_up(tmp_path: Path) -> None:
    ways = [plain(time, "h2", 11) for time in range(9)]
    for way in ways:
        way.lost = {"sent", "received"}
    (result,) = results(tmp_path, ways).values()
    assert (result.items, result.without_sent, result.without_received) == (9, 9, 9)
    for lacks in (result.put_to_sent, result.sent_to_received, result.received_to_got):
        assert part(lacks) == (0, {"p50": None, "p99": None, "max": None}, None)
    assert result.whole.items == 9


def test_what_a_reader_may_have_got_without_a_record_is_counted(tmp_path: Path) -> None:
    ways = [plain(time, "h2", 11) for time in range(9)]
    drops = {("reader-h2", "frames:got"): 4}
    (result,) = results(tmp_path / "dropped", ways, drops=drops).values()
    assert result.missing == 4
    (result,) = results(tmp_path / "none", ways, unaccounted=["reader-h2"]).values()
    assert result.missing is None


def test_an_unknown_clock_leaves_the_error_between_hosts_open(tmp_path: Path) -> None:
    """On one host it is the counter's."""
    ways = [plain(time, "h2", 11) for time in range(9)]
    rows = [row for way in ways for row in way.rows()]
    disturbed = [dataclasses.replace(row, err=UNKNOWN_NS) if row.err else row for row in rows]
    run = SyntheticRun(tmp_path, disturbed, HOSTS)
    (result,) = read_remote_items(open_run(run.write()), [FRAMES])
    assert result.sent_to_received.err_ns is None and result.whole.err_ns is None
    assert result.received_to_got.err_ns == 22
    document = result.to_dict()
    assert document["sent_to_received"]["err_ns"] is None
    assert document["sent_to_received"]["p50_ns"] == 500 * US - APART
