"""What emulates a link had a message: in its ring, too long, and while it sent it on."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kernel_tables import IN_SOFTIRQ, PREEMPTED, SLEEPS, Kernel
from links_run import ROUTER as ROUTER_HOST
from links_run import segment, write_account, write_events
from synthetic_run import SECOND, Host, Row, SyntheticRun, event, path
from test_why import drawn_events

from loopscope.analysis.causes import Causes
from loopscope.analysis.critical_path import Part
from loopscope.analysis.hop_decomposition import LinkEvents, Passage
from loopscope.analysis.kernel_causes import fitted
from loopscope.analysis.ledger import TCP, Carried, Mark
from loopscope.analysis.measured_links import read_links
from loopscope.analysis.messages import read_messages
from loopscope.analysis.network_path import between_kernels, over_link
from loopscope.analysis.scheduling import IDLE
from loopscope.timeline import open_run

pytestmark = pytest.mark.full

SENDER, RECEIVER, HOG, ROUTER = 10, 20, 30, 50
LINK = ("h1", "h2")


def passage(late: int, taken: int | None, returned: int) -> Passage:
    """The passage of a packet that came at 120 and was given to the kernel at 300."""
    return Passage(LINK, 120, 300, late, ROUTER, 0, taken, returned)


def carried(came: int) -> Carried:
    return Carried("TCP", 100, 110, SENDER, came, came, (), Mark(TCP, 1, 2, 3, 4))


def kernel(*preempted: int, served: int | None = None) -> Kernel:
    """The router sleeps until 250, and waits for `HOG` until 280. The message is read at 450.

    ``preempted``: when it waits for `HOG` again, and until when; ``served``: since when it serves
    the soft interrupt in which it wakes the receiver, at 410.
    """
    switches = [
        (2, 0, IDLE, PREEMPTED, ROUTER),
        (5, 0, ROUTER, SLEEPS, IDLE),
        (10, 0, IDLE, PREEMPTED, SENDER),
        (20, 1, RECEIVER, SLEEPS, IDLE),
        (140, 0, SENDER, SLEEPS, HOG),
        (280, 0, HOG, PREEMPTED, ROUTER),
        (430, 1, IDLE, PREEMPTED, RECEIVER),
        (440, 0, ROUTER, SLEEPS, IDLE),
        (500, 1, RECEIVER, SLEEPS, IDLE),
    ]
    pairs = zip(((ROUTER, HOG), (HOG, ROUTER)), preempted, strict=False)
    switches += [(at, 0, goes, PREEMPTED, comes) for (goes, comes), at in pairs]
    wakings = [(250, 0, HOG, ROUTER, 0), (410, 0, ROUTER, RECEIVER, IN_SOFTIRQ)]
    interrupts = [] if served is None else [(0, served, 415)]
    return Kernel(sorted(switches), wakings, served=interrupts)


Brief = tuple[str, int, int, str | None]


def parts(of: Kernel, on_link: Passage, came: int | None = None) -> list[Brief]:
    """The parts of the message, with what the emulating thread did in those of the link."""
    way = None if came is None else carried(came)
    found = over_link(of.scheduling(), SENDER, 100, on_link, RECEIVER, 450, way)
    did = (part.meanwhile.name if part.meanwhile else None for part in found)
    return [(part.name, part.start, part.end, what) for part, what in zip(found, did, strict=True)]


LATE = [
    ("late", 240, 250, "blocked"),
    ("late", 250, 280, "runnable"),
    ("late", 280, 300, "running"),
]
RING = [
    ("ring", 240, 250, "blocked"),
    ("ring", 250, 280, "runnable"),
    ("ring", 280, 290, "running"),
]


@pytest.mark.parametrize(
    ("taken", "wanted"),
    [
        (None, LATE),
        (130, LATE),
        (240, LATE),
        (290, [*RING, ("late", 290, 300, "running")]),
        (300, [*RING[:2], ("ring", 280, 300, "running")]),
    ],
)
def test_a_packet_waits_in_the_ring_from_when_it_was_due(
    taken: int | None, wanted: list[Brief]
) -> None:
    """Until the planned delay is over its wait costs nothing; what is not known is none of it."""
    on_link = passage(60, taken, 300)
    assert on_link.in_hand == max(240, taken or 0)
    found = parts(kernel(), on_link)
    assert found[:2] == [("running", 100, 120, None), ("link", 120, 240, None)]
    assert found[2 : 2 + len(wanted)] == wanted
    assert found[2 + len(wanted)][:2] == ("running", 300)


ENDS = [("wake-up", 410, 430, None), ("running", 430, 450, None)]


@pytest.mark.parametrize(
    ("of", "came", "returned", "wanted"),
    [
        pytest.param(kernel(), None, 420, [("send", 300, 410, "running")], id="until it woke"),
        pytest.param(
            kernel(),
            None,
            350,
            [("send", 300, 350, "running"), ("running", 350, 410, None)],
            id="until its call had returned",
        ),
        pytest.param(
            kernel(served=390),
            None,
            420,
            [("send", 300, 390, "running"), ("softirq", 390, 410, None)],
            id="until the soft interrupt that woke",
        ),
        pytest.param(
            kernel(served=390),
            400,
            420,
            [
                ("send", 300, 390, "running"),
                ("send", 390, 400, "softirq"),
                ("softirq", 400, 410, None),
            ],
            id="until it came",
        ),
        pytest.param(
            kernel(310, 380),
            None,
            420,
            [
                ("send", 300, 310, "running"),
                ("send", 310, 380, "runnable"),
                ("send", 380, 410, "running"),
            ],
            id="kept in its call",
        ),
        pytest.param(
            kernel(310, 380), None, 305, [("held", 300, 410, None)], id="woken by a later packet"
        ),
        pytest.param(
            kernel(310, 380),
            304,
            305,
            [("send", 300, 304, "running"), ("held", 304, 410, None)],
            id="came, and a later packet woke",
        ),
        pytest.param(
            kernel(served=390),
            200,
            420,
            [("send", 300, 390, "running"), ("softirq", 390, 410, None)],
            id="another packet came before",
        ),
    ],
)
def test_what_the_thread_took_to_send_a_packet_on(
    of: Kernel, came: int | None, returned: int, wanted: list[Brief]
) -> None:
    found = parts(of, passage(60, 130, returned), came)
    assert found[: -len(wanted) - 2] == [
        ("running", 100, 120, None),
        ("link", 120, 240, None),
        *LATE,
    ]
    assert found[-len(wanted) - 2 :] == [*wanted, *ENDS]


@pytest.mark.parametrize(
    ("came", "wanted"),
    [(None, [("unknown", 300, 410)]), (330, [("send", 300, 320), ("unknown", 320, 410)])],
)
def test_without_the_packets_arrival_a_way_that_is_not_known_stays_so(
    came: int | None, wanted: list[tuple[str, int, int]]
) -> None:
    """An interrupt of which nothing is recorded woke the receiver, at some time after the call."""
    switches = [(20, 1, RECEIVER, SLEEPS, IDLE), (430, 1, IDLE, PREEMPTED, RECEIVER)]
    of = Kernel([*switches, (500, 1, RECEIVER, SLEEPS, IDLE)], [(410, 1, HOG, RECEIVER, 8)])
    found = [each[:3] for each in parts(of, passage(60, 130, 320), came)]
    assert [each for each in found if 300 <= each[1] < 410] == wanted


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_links_follow_each_other_without_a_gap(seed: int) -> None:
    """Whatever the stamps and the events say: and each of the link's is where its stamps are."""
    drawn = random.Random(seed)
    events = drawn_events(drawn)
    scheduling = Kernel(
        events.switches, events.wakings, events.timers, events.raises, events.served
    ).scheduling()
    for _ in range(30):
        begin = drawn.randrange(1, 600)
        came, due, taken, left, returned, at, end = sorted(
            drawn.sample(range(begin, begin + 350), 7)
        )
        if drawn.random() < 0.5:
            due, taken = taken, due
        on_link = Passage(LINK, came, left, left - due, HOG, 0, taken, returned)
        way = carried(drawn.choice((at, left + 1, begin))) if drawn.random() < 0.7 else None
        found = over_link(scheduling, SENDER, begin, on_link, RECEIVER, end, way)
        assert found[0].start == begin and found[-1].end == end
        assert all(part.end > part.start for part in found)
        assert all(a.end == b.start for a, b in zip(found, found[1:], strict=False))
        lengths = {name: length_of(name, found) for name in ("link", "ring", "late", "send")}
        assert lengths["link"] == due - came
        assert lengths["ring"] == max(taken - due, 0)
        assert lengths["late"] == left - max(taken, due)
        limits = [returned] + ([] if way is None or way.came < left else [way.came])
        assert lengths["send"] <= min(limits) - left


def length_of(name: str, found: list[Part]) -> int:
    return sum(part.end - part.start for part in found if part.name == name)


def test_between_two_kernels_the_stamps_alone_decide() -> None:
    here, there = (kernel().scheduling() for _ in range(2))
    cases: list[tuple[int, int, list[tuple[str, int]]]] = [
        (290, 360, [("ring", 50), ("late", 10), ("send", 60), ("wire", 40)]),
        (130, 420, [("late", 60), ("send", 100)]),
    ]
    for taken, returned, wanted in cases:
        given = here, SENDER, 100, carried(400), there, RECEIVER, 450
        near, far = between_kernels(*given, passage(60, taken, returned))
        assert near[-1].end == far[0].start and far[-1].end == 450
        names = [(part.name, part.end - part.start) for part in far]
        assert names[:2] == [("wire", 10), ("link", 120)]
        assert names[2 : 2 + len(wanted)] == wanted


class Named:
    """Threads by their numbers."""

    def named(self, tid: int, name: str, *, at: int) -> str:
        del name, at
        return f"t{tid}"

    def component(self, tid: int, at: int) -> str | None:
        del tid, at
        return None


def test_causes_say_what_the_emulating_thread_did(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduling = kernel(310, 380).scheduling()
    on_link = passage(60, 290, 420)
    nothing: Any = None
    named: Any = Named()

    class Slept:
        def on(self, *_: object) -> str:
            return ""

    sleeps: Any = Slept()
    causes = Causes(scheduling, named, sleeps, nothing, nothing, on_link, "", *LINK)
    monkeypatch.setattr(Causes, "page_faults", lambda *_: None)
    monkeypatch.setattr(Causes, "slowed_to", lambda *_: None)
    monkeypatch.setattr(Causes, "idle_state", lambda *_: None)
    found = over_link(scheduling, SENDER, 100, on_link, RECEIVER, 450)
    told = fitted([(part, causes) for part in found], 100, 450)
    said = {(part.name, part.cause): part for part in told}
    of = "t50, which emulates h1 → h2,"
    assert ("ring", f"{of} left it in its ring: it waited on cpu0 behind t30") in said
    assert ("late", f"{of} was late: it ran on cpu0") in said
    assert ("send", f"{of} sent it on: it waited on cpu0 behind t30") in said
    # How long it lay in the ring is told with the link, the planned delay included.
    rings = {part.name: part.ring_ns for part in told if part.ring_ns is not None}
    assert rings == {"link": 290 - 120} and sum(part.ns for part in told) == 350
    assert "ring_ns" not in told[0].to_dict()


@pytest.mark.parametrize("host", [ROUTER_HOST, "h1"])
def test_only_what_a_kernel_stamped_has_waited_in_a_ring(tmp_path: Path, host: str) -> None:
    """Where hosts emulate what they send, a packet's arrival is when it was taken."""
    loop = path("loop", "id", [event("a", "io", "out"), event("b", "io", "in")])
    rows = [
        Row("a", "io:out", 7, SECOND, 100, "h1"),
        Row("b", "io:in", 7, SECOND + 900, 300, "h2"),
    ]
    hosts = [Host("h1", True, 0, 0.0), Host("h2", False, 300, 0.0)]
    if host == ROUTER_HOST:
        hosts.append(Host(host, False, 40, 0.0))
    root = SyntheticRun(tmp_path, rows, hosts, [loop]).write()
    write_account(root, [*LINK], {LINK: [segment({}, 1)]}, host=host)
    write_events(root, [(0, 1, 1, 7, SECOND + 200, [SECOND + 700])], ago=150, host=host)
    run = open_run(root)
    messages, _ = read_messages(run, loop)
    links, _ = read_links(run)
    (found,) = LinkEvents(run, links).passages(messages, 0, 1).values()
    assert (found.came, found.left, found.returned) == (SECOND + 200, SECOND + 700, SECOND + 850)
    known = host == ROUTER_HOST
    assert found.taken == (SECOND + 350 if known else None)
    assert found.ring_ns == (150 if known else None)


@pytest.mark.parametrize(("channels", "known"), [(["other"], True), (["io"], False)])
def test_a_packet_that_has_an_items_number_by_chance_is_not_the_item(
    tmp_path: Path, channels: list[str], known: bool
) -> None:
    """Items of channels are carried by services, with others and in several packets."""
    loop = path("loop", "id", [event("a", "io", "put"), event("b", "io", "got")])
    rows = [
        Row("a", "io:put", 7, SECOND, 100, "h1"),
        Row("b", "io:got", 7, SECOND + 900, 300, "h2"),
    ]
    hosts = [Host("h1", True, 0, 0.0), Host("h2", False, 300, 0.0), Host(ROUTER_HOST, False, 40, 0)]
    root = SyntheticRun(tmp_path, rows, hosts, [loop]).write()
    write_account(root, [*LINK], {LINK: [segment({}, 1)]})
    write_events(root, [(0, 1, 1, 7, SECOND + 200, [SECOND + 700])], ago=150)
    run = open_run(root)
    messages, _ = read_messages(run, loop)
    links, _ = read_links(run)
    network = SimpleNamespace(emulation=None)
    experiment: Any = SimpleNamespace(
        network=network, channels=[SimpleNamespace(name=each) for each in channels]
    )
    events = LinkEvents(run, links, experiment)
    assert bool(events.passages(messages, 0, 1)) is known
    assert any(events.splits(messages).hops) is known
