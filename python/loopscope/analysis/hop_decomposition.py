"""Where a hop's time goes: before the emulated link, on it, after it.

The router's events carry the message's number and the link, so each message of a hop is looked for
among the packets that its link carried while the message was on its way. Where there are several,
none is taken: other programs number their messages too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from loopscope.analysis.bounded_statistics import Sample
from loopscope.analysis.hop_decomposition_result import SPLIT_TIMES, PartResult, SplitResult
from loopscope.analysis.maximum_error import COUNTER, NO_COUNTER, maximum_errors
from loopscope.analysis.measured_links import ROUTER, ports, routers
from loopscope.analysis.messages import counters
from loopscope.analysis.patterns import SLEW_PPM
from loopscope.analysis.quantity_text import number
from loopscope.analysis.results import LinkResult
from loopscope.experiment.measures import fields_of
from loopscope.timeline import RunError
from loopscope.timeline.relation import literal

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Bracket, Nanoseconds
    from loopscope.analysis.messages import Messages
    from loopscope.experiment import Experiment, MessagePath
    from loopscope.timeline import Run
    from loopscope.timeline.relation import Relation

ENQUEUED, DEPARTED, DROPPED = "link.enqueued", "link.departed", "link.dropped"
Link = tuple[str, str]
"""Names of the sending and of the receiving host."""
NOT_KNOWN = -1
"""In columns of instants: it is not known."""


@dataclass(frozen=True)
class HopDecompositions:
    """The hops of a path, split at emulated links."""

    hops: tuple[tuple[SplitResult, ...], ...]
    problems: tuple[str, ...] = ()
    unsplit: str | None = None
    """Why hops that go over emulated links are not split."""


@dataclass(frozen=True)
class Passage:
    """A message on an emulated link; instants are global ns."""

    link: Link
    came: int
    left: int
    late: int
    """How much later it left than it was to, ns."""
    tid: int
    """The thread that sent it on."""
    losses: int
    """Packets with its number that the link had lost before, since the message was sent."""
    taken: int | None
    """When the thread took it out of its ring. None: that is not known, as no kernel stamped when
    it came into it, and ``came`` is when it was taken."""
    returned: int
    """When the thread's call had returned that sent it on."""

    @property
    def due(self) -> int:
        """When it was to leave."""
        return self.left - self.late

    @property
    def in_hand(self) -> int:
        """From when on the thread could have sent it: it was due, and taken out of the ring."""
        return self.due if self.taken is None else min(max(self.due, self.taken), self.left)

    def described(self, part: str) -> str:
        """A part of it, `link`, `ring`, `late` or `send`, in words that name no thread."""
        link = " → ".join(self.link)
        return {
            "link": f"the emulated link {link}, as it is set",
            "ring": f"in the ring of what emulates {link}",
            "late": f"{link} was late",
            "send": f"what emulates {link} sent it on",
        }[part]

    @property
    def ring_ns(self) -> int | None:
        """For how long it lay in the ring, ns; None: not known."""
        return None if self.taken is None else max(self.taken - self.came, 0)


class LinkEvents:
    """Events of packets in what emulated the links."""

    def __init__(
        self, run: Run, links: Sequence[LinkResult], experiment: Experiment | None = None
    ) -> None:
        """`experiment` says where packets carry their message's number, and which channels it has.

        Their items are carried between hosts by services, so no packet has an item's number where a
        program's would have it.
        """
        emulation = experiment.network.emulation if experiment is not None else None
        self._channels = {each.name for each in experiment.channels} if experiment else set()
        self.links = sorted({(each.sender, each.receiver) for each in links})
        self._place: dict[str, Any] = {"offset": 0, "width": 8, "order": "little"} | dict(
            (emulation.message if emulation else None) or {}
        )
        self._run = run
        self._packets: Relation | None = None
        self._losses: dict[Link, dict[tuple[int, int], list[int]]] = {}
        passed = packets_of(run) if self.links else None
        if passed is not None:
            self._packets = with_hosts(run, passed.filter('"left" IS NOT NULL'))
            self._counters = counters(run)
            self._routers = routers(run)

    def splits(self, messages: Messages) -> HopDecompositions:
        """The splits of the messages' hops at each emulated link that they went over.

        A hop is between neighbouring events.
        """
        path = messages.path
        over = [self._over(messages, *ends) for ends in path.hops]
        if not any(over):
            return HopDecompositions(((),) * len(over))
        if messages.keys.lowest_bits(messages.id) is None:
            why = "is of several fields" if len(fields_of(path.key)) > 1 else "is no whole number"
            return HopDecompositions(
                ((),) * len(over),
                unsplit=f"The hops of path {path.name} are not split: the key {path.key} {why}, "
                "and packets are known by one.",
            )
        found: list[tuple[SplitResult, ...]] = []
        unknown: dict[Link, list[tuple[str, int]]] = {}
        for (first, last), links in zip(path.hops, over, strict=True):
            of_hop = []
            for link, rows in links.items():
                split, passed = self._split(messages, first, last, link, rows)
                of_hop.append(split)
                if passed:
                    hop = f"{path.events[first]} → {path.events[last]}"
                    unknown.setdefault(link, []).append((hop, split.unseen))
            found.append(tuple(of_hop))
        return HopDecompositions(
            tuple(found),
            tuple(self._unknown(path, link, hops) for link, hops in unknown.items()),
        )

    def passages(self, messages: Messages, first: int, last: int) -> dict[int, Passage]:
        """The messages that were seen on the link between two neighbouring events, by their rows.

        Those that several packets may have been are left out.
        """
        found: dict[int, Passage] = {}
        if messages.keys.lowest_bits(messages.id) is None:
            return found
        both = np.flatnonzero(messages.seen[first] & messages.seen[last])
        for link, over in self._over(messages, first, last).items():
            hop = self._hop(messages, first, last, over)
            column, lost = self._carried(hop, link), self._lost(link)
            places = column["row"]
            of_hop = [hop[name][places].tolist() for name in ("repeat", "id", "not_before")]
            names = ("packets", "came", "left", "late", "tid", "taken", "returned")
            values = [column[name].tolist() for name in names]
            rows = both[over][places].tolist()
            for row, repeat, id, begin, packets, came, left, late, tid, taken, returned in zip(
                rows, *of_hop, *values, strict=True
            ):
                if packets == 1:
                    losses = sum(begin <= at <= came for at in lost.get((repeat, id), ()))
                    seen = None if taken == NOT_KNOWN else taken
                    found[row] = Passage(link, came, left, late, tid, losses, seen, returned)
        return found

    def has_lost(self, messages: Messages, row: int, first: int, link: Link) -> bool:
        """Whether a link lost packets of a message after one of its events."""
        numbers = messages.keys.lowest_bits(messages.id[row : row + 1])
        if link not in self.links or numbers is None or self._is_item(messages, first):
            return False
        number = int(numbers[0]) & self._mask()
        lost = self._lost(link).get((int(messages.repeat[row]), number), ())
        return any(at >= messages.ts[first][row] - messages.err[first][row] for at in lost)

    def _is_item(self, messages: Messages, first: int) -> bool:
        """Whether messages are items of channels on their way from an event to the next one."""
        followed = [last for begin, last in messages.path.hops if begin == first]
        return any(messages.path.events[last].group in self._channels for last in followed)

    def _mask(self) -> int:
        """The router tells no sign, and of narrower numbers nothing beyond their bytes."""
        bits: int = min(8 * self._place["width"], 63)
        return (1 << bits) - 1

    def _lost(self, link: Link) -> dict[tuple[int, int], list[int]]:
        """When the link lost packets, by repeat and number."""
        if link in self._losses:
            return self._losses[link]
        found = self._losses[link] = {}
        if DROPPED not in self._run.tables:
            return found
        dropped = with_hosts(self._run, self._run.relation(DROPPED))
        rows = dropped.filter(_of(link)).project("repeat, id, ts")
        for repeat, id, ts in rows.fetchall():
            found.setdefault((repeat, id), []).append(ts)
        return found

    def _over(self, messages: Messages, first: int, last: int) -> dict[Link, npt.NDArray[np.bool_]]:
        """For each link: whether a message that was at both events went over it."""
        if self._packets is None or self._is_item(messages, first):
            return {}
        both = messages.seen[first] & messages.seen[last]
        found = {
            link: (messages.on(first, link[0]) & messages.on(last, link[1]))[both]
            for link in self.links
        }
        return {link: rows for link, rows in found.items() if rows.any()}

    def _unknown(self, path: MessagePath, link: Link, hops: Sequence[tuple[str, int]]) -> str:
        """Packets passed, and none of them has a number of these messages."""
        place = self._place
        if place["offset"]:
            where = f"{place['width']} bytes from offset {place['offset']} on"
        else:
            where = f"first {place['width']} bytes"
        names, count = ", ".join(name for name, _ in hops), number(sum(n for _, n in hops))
        return (
            f"path {path.name}, {names}: no packet on the link {link[0]} → {link[1]} carries the "
            f"{path.key} of any of {count} messages, so it is not known what the link took of "
            f"their time. It was looked for in the {where}, {place['order']}-endian, of the "
            "payload: say where it is by network: {message: {offset, width, order}}"
        )

    def _split(
        self,
        messages: Messages,
        first: int,
        last: int,
        link: tuple[str, str],
        rows: npt.NDArray[np.bool_],
    ) -> tuple[SplitResult, bool]:
        """`rows` are those of the messages at both ends that went over this link.

        And whether none was seen on it, though packets passed while most of them were on their way.
        """
        hop = self._hop(messages, first, last, rows)
        column = self._carried(hop, link)
        both = messages.seen[first] & messages.seen[last]
        length = messages.intervals(first, last).length[rows]
        start_err, end_err = messages.err[first][both][rows], messages.err[last][both][rows]
        end, repeat = messages.ts[last][both][rows], hop["repeat"]
        once = column["packets"] == 1
        row = column["row"][once]
        came, came_err, left, left_err, own = (
            column[name][once] for name in ("came", "came_err", "left", "left_err", "own")
        )
        emulated, after = left - came, end[row] - left
        split = SplitResult(
            sender=link[0],
            receiver=link[1],
            matched=len(row),
            unseen=len(length) - len(once),
            ambiguous=int((~once).sum()),
            # Where the cost of recording is subtracted, it was the sender's.
            before=_part(length[row] - emulated - after, start_err[row] + came_err),
            emulated=_part(
                emulated, self._on_link(link[0], repeat[row], emulated, came_err + left_err, own)
            ),
            after=_part(after, left_err + end_err[row]),
        )
        assert self._packets is not None
        passed = len(once) == 0 and 2 * _passed(hop, self._packets.filter(_of(link))) > len(length)
        return split, passed

    def _hop(
        self, messages: Messages, first: int, last: int, rows: npt.NDArray[np.bool_]
    ) -> dict[str, npt.NDArray[Any]]:
        """What packets may have been messages of a hop is asked of: a table of these."""
        both = messages.seen[first] & messages.seen[last]
        start, end = messages.ts[first][both][rows], messages.ts[last][both][rows]
        start_err, end_err = messages.err[first][both][rows], messages.err[last][both][rows]
        numbers = messages.keys.lowest_bits(messages.id[both][rows])
        assert numbers is not None
        numbers = numbers & self._mask()
        hop = {"row": np.arange(len(numbers)), "repeat": messages.repeat[both][rows], "id": numbers}
        return hop | {"not_before": start - start_err, "not_after": end + end_err}

    def _carried(
        self, hop: Mapping[str, npt.NDArray[Any]], link: Link
    ) -> dict[str, npt.NDArray[Any]]:
        """The packets that the rows of a hop may have been, see `_candidates`."""
        assert self._packets is not None
        carried = self._packets.filter(_of(link))
        found = _candidates(self._run.relation_of(pa.table(dict(hop))), carried).to_arrow_table()
        return {name: found[name].to_numpy() for name in found.column_names}

    def _on_link(
        self,
        sender: str,
        repeat: npt.NDArray[np.int32],
        length: Nanoseconds,
        err: Nanoseconds,
        own: Nanoseconds,
    ) -> Nanoseconds:
        """Maximum errors of intervals on the router, or on the host that impairs what it sends.

        They are its rate's, where those are less.

        `own` is by how much both ends may be from the readings of its counter that they were told
        by.
        """
        of_repeat = [
            self._counters.get((each, host), NO_COUNTER)
            for each in repeat.tolist()
            for host in (self._routers.get(each, sender),)
        ]
        one_host = np.ones(len(length), np.bool_)
        found: Nanoseconds = np.minimum(
            err, maximum_errors(length, err, np.array(of_repeat, COUNTER), one_host) + own
        )
        return found


def packets_of(run: Run) -> Relation | None:
    """One row for each packet that went through a link; None where none is recorded.

    By `repeat`, `from`, `to` and `number`, it has the instants when the kernel saw the packet come,
    and when the first of its copies was given to the device; the latter are NULL where it was lost.
    ``taken`` is when what emulates the link took it out of its ring: `NOT_KNOWN` on hosts that
    emulate what they send or forward, whose kernels do not stamp what comes.
    """
    if not {ENQUEUED, DEPARTED} <= {*run.tables}:
        return None
    link = 'repeat, "from", "to"'
    came = _router_table(run, ENQUEUED).project(
        f"{link}, number, id, ts AS came, err_ns AS came_err, own AS came_own, "
        f"CASE WHEN host = {literal(ROUTER)} THEN recorded ELSE {NOT_KNOWN} END AS taken"
    )
    left = _router_table(run, DEPARTED).aggregate(
        f'{link}, number, min(ts) AS "left", arg_min(err_ns, ts) AS left_err, '
        "arg_min(own, ts) AS left_own, arg_min(late_ns, ts) AS late, arg_min(tid, ts) AS tid, "
        "arg_min(recorded, ts) AS returned"
    )
    return came.join(left, f"{link}, number", how="left").project(
        "* EXCLUDE (came_own, left_own), came_own + left_own AS own"
    )


def with_hosts(run: Run, packets: Relation) -> Relation:
    """Packets with the hosts of their ports: `sender`, `receiver`."""
    names = _names(run, ports(run))
    senders = names.project('repeat, port AS "from", name AS sender')
    receivers = names.project('repeat, port AS "to", name AS receiver')
    return packets.join(senders, 'repeat, "from"').join(receivers, 'repeat, "to"')


def _of(link: Link) -> str:
    """The condition on `with_hosts` that a packet is of a link."""
    return f"sender = {literal(link[0])} AND receiver = {literal(link[1])}"


def _router_table(run: Run, name: str) -> Relation:
    """The events of a link with the kernel's part of `err_ns`, and when each was recorded.

    That is `ago_ns` after the event, and the kernel may slew its clock meanwhile.

    Raises `RunError` where the stamps are still those of the telling.
    """
    events = run.relation(name)
    if len(events.filter("counter IS NOT NULL").limit(1)):
        raise RunError(
            f"{run.path}: {name} was made by an earlier version, with other stamps; make it again: "
            f"loopscope report {run.path}"
        )
    own = f"ceil(ago_ns * {SLEW_PPM / 1e6}::DOUBLE)::BIGINT"
    if "within_ns" in events.columns:
        own += " + within_ns::BIGINT"
    return events.project(f"*, {own} AS own, (ts + ago_ns)::BIGINT AS recorded")


def _names(run: Run, hosts: Mapping[int, list[str]]) -> Relation:
    """The name of each port's host: `repeat`, `port`, `name`."""
    rows = [
        (repeat, port, name) for repeat, names in hosts.items() for port, name in enumerate(names)
    ]
    types = {"repeat": pa.int32(), "port": pa.uint16(), "name": pa.string()}
    columns = zip(*rows, strict=True) if rows else [()] * len(types)
    arrays = (pa.array(each, kind) for each, kind in zip(columns, types.values(), strict=True))
    return run.relation_of(pa.table(dict(zip(types, arrays, strict=True))))


def _candidates(hop: Relation, carried: Relation) -> Relation:
    """The number of packets that a row of `hop` may have been, and the first.

    Rows without any are left out.
    """
    joined = hop.join(carried, "repeat, id").filter(
        'came >= not_before - came_err AND "left" <= not_after + left_err'
    )
    return joined.aggregate(
        '"row", count(*) AS packets, min(came) AS came, arg_min(came_err, came) AS came_err, '
        'min("left") AS "left", arg_min(left_err, "left") AS left_err, max(own) AS own, '
        'arg_min(late, "left") AS late, arg_min(tid, "left") AS tid, '
        'arg_min(taken, came) AS taken, arg_min(returned, "left") AS returned'
    ).order('"row"')


def _passed(hop: Mapping[str, npt.NDArray[Any]], carried: Relation) -> int:
    """Number of rows of `hop` that any packet may have been, whatever its number."""
    columns = ("repeat", "came", "came_err", "left", "left_err")
    packets = carried.to_arrow_table()
    repeat, came, came_err, left, left_err = (packets[name].to_numpy() for name in columns)
    count = 0
    for each in np.unique(repeat):
        of_repeat, here = repeat == each, hop["repeat"] == each
        latest_arrival, earliest = (came + came_err)[of_repeat], (left - left_err)[of_repeat]
        order = np.argsort(latest_arrival)
        # The first departure among the packets from one on.
        departure = np.minimum.accumulate(earliest[order][::-1])[::-1]
        place = np.searchsorted(latest_arrival[order], hop["not_before"][here])
        soonest = np.r_[departure, np.iinfo(np.int64).max][place]
        count += int((soonest <= hop["not_after"][here]).sum())
    return count


def _part(length: Nanoseconds, err: Nanoseconds) -> PartResult:
    sample = Sample(length, err)
    times = {name: _printed(sample.bracket(name)) for name in SPLIT_TIMES}
    return PartResult(times, sample.largest_error)


def _printed(bracket: Bracket | None) -> int | float | None:
    if bracket is None:
        return None
    return bracket.value if isinstance(bracket.value, int) else float(round(bracket.value, 1))
