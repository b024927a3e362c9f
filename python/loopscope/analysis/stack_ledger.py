"""What the user-mode stack of an accelerated program did with the bytes of a message.

The events are those of `schema/stack.md`: what the program wrote and read, the segments that its
stack gave to the device and took, and its timers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from loopscope.analysis.kernels import rows_of
from loopscope.analysis.ledger import Rows, Taker, after, coded, groups
from loopscope.analysis.stream_ledger import EARLIER_NS, FULL_WINDOW, UNTOLD, StreamLedger, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy.typing as npt

    from loopscope.analysis.ledger import Held, Hop
    from loopscope.analysis.tcp_drops import Connection
    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

_Key = TypeVar("_Key")

_TAKEN, _WRITE, _READ, _SENT, _RECEIVED = TABLES = tuple(
    f"stack.{name}" for name in ("taken", "write", "read", "segment_sent", "segment_received")
)
"""Those without which nothing can be said."""
_TIMER = "stack.timer"
_WOKEN = "stack.woken"
_CALLS = (_WRITE, _READ, "stack.wait", "stack.sleep", _WOKEN)
"""Those of which each begins or continues a thread's call, or is at the end of one."""
_NUMBERS = {"retransmission": 1, "tail_loss_probe": 2, "reordering": 3, "persist": 4}
_TIME_OUT, _PROBE, _, _PERSIST = _NUMBERS.values()
FULL_WINDOWS = "its congestion window or the receiver's window was full"
UNTIL_MORE = "Nagle's algorithm, until the program wrote more"
TOOK_LATE = "; its program took the acknowledgement late"
_LEAST_SEGMENT = 536
"""Bytes of data that any end takes in a segment (RFC 9293, 3.7.1)."""


class _Owner(NamedTuple):
    """A connection, as its process numbers it."""

    process: str
    pid: int
    number: int


class _Begun(NamedTuple):
    """A connection as the stack took it: when, and its sequence numbers."""

    ts: int
    rcv_nxt: int
    copied_seq: int
    snd_una: int


class StackLedger(StreamLedger):
    """The connections of a host's accelerated programs in one repeat."""

    PROTOCOL = "user-mode TCP"

    def __init__(
        self, run: Run, repeat: int, host: str, times_of: Callable[[Integers], Integers]
    ) -> None:
        """``times_of``: the times of the host's kernel at values of its counter.

        Raises `RunError` where the tables cannot be read. `recorded` says whether they exist.
        """
        super().__init__()
        self._of = run, repeat, host, times_of
        # Its netns is not known, and a host has one.
        self._named: dict[_Owner, Connection] = {}
        places = "seq", "bytes", '"offset"'
        writes, reads = self._by_owner(_WRITE, *places), self._by_owner(_READ, *places)
        for rows in reads.values():
            rows.columns["copied_seq"] = (rows.columns["seq"] + rows.columns["bytes"]) % (1 << 32)
        segments = "seq", "bytes", "err_ns"
        sent = self._by_owner(_SENT, *segments, "segment", "retransmission", "tcp_flags")
        came = self._by_owner(_RECEIVED, *segments, "ack", '"window"')
        begun = self._begun()
        self._sends, self._reads = self._by_thread(writes), self._by_thread(reads)
        self._written_gaps, self._read_gaps = (
            self._merged({owner: _gaps(rows) for owner, rows in found.items()})
            for found in (writes, reads)
        )
        self._out, self._in = self._merged(sent), self._merged(came)
        self._received = self._merged(
            {owner: _acknowledged(came.get(owner), each) for owner, each in begun.items()}
        )
        self._ready = self._merged(
            {
                owner: _completed(rows, reads.get(owner), begun[owner])
                for owner, rows in came.items()
                if owner in begun
            }
        )
        cases = " ".join(f"WHEN '{name}' THEN {number}" for name, number in _NUMBERS.items())
        timer = f"CASE timer::VARCHAR {cases} ELSE 0 END AS timer"
        self._timers = self._merged(self._by_owner(_TIMER, timer))
        self._acts = self._by_tid(*_CALLS)
        self._woken = self._by_tid(_WOKEN)
        self._small: dict[Connection, Rows] = {}
        self._index()

    @staticmethod
    def recorded(run: Run) -> bool:
        """Whether a run has what it takes."""
        return set(TABLES) <= set(run.tables)

    def _table(self, table: str, *columns: str) -> tuple[Rows, list[str]]:
        """A table's rows, with its processes as numbers, and their names."""
        run, repeat, host, times_of = self._of
        chosen = ("counter", "process::VARCHAR AS process", "pid", "id", "tid", *columns)
        rows = rows_of(run, table, repeat, host, ", ".join(chosen))
        codes, names = coded(rows["process"])
        arrays = {
            name: rows[name].to_numpy().astype(np.int64)
            for name in (each.split()[-1].strip('"') for each in chosen)
            if name != "process"
        }
        return Rows(times_of(arrays.pop("counter")), arrays | {"process": codes}), names

    def _by_owner(self, table: str, *columns: str) -> dict[_Owner, Rows]:
        """The rows of each connection; none where the table was not recorded."""
        if table not in self._of[0].tables:
            return {}
        rows, names = self._table(table, *columns)
        keys = [rows.columns[name] for name in ("process", "pid", "id")]
        return {
            _Owner(names[key[0]], *key[1:]): _some(rows, np.sort(at)) for key, at in groups(keys)
        }

    def _begun(self) -> dict[_Owner, _Begun]:
        """What each connection was like when the stack took it. Notes their names."""
        rows, names = self._table(_TAKEN, "rcv_nxt", "copied_seq", "snd_una")
        run, repeat, host, _ = self._of
        texts = rows_of(run, _TAKEN, repeat, host, "local::VARCHAR, remote::VARCHAR")
        begun = {}
        ends_of = zip(*(each.to_pylist() for each in texts.columns), strict=True)
        for place, ends in enumerate(ends_of):
            row = rows.row(place)
            owner = _Owner(names[row["process"]], row["pid"], row["id"])
            self._named[owner] = 0, *ends
            numbers = (row[name] for name in _Begun._fields[1:])
            begun[owner] = _Begun(int(rows.ts[place]), *numbers)
        return begun

    def _merged(self, found: Mapping[_Owner, Rows]) -> dict[Connection, Rows]:
        """The rows by address: a later connection may have the same ones."""
        return _joined(
            (self._named[owner], rows) for owner, rows in found.items() if owner in self._named
        )

    def _by_thread(self, found: Mapping[_Owner, Rows]) -> dict[tuple[int, Connection], Rows]:
        return _joined(
            ((tid, self._named[owner]), _some(rows, at))
            for owner, rows in found.items()
            if owner in self._named
            for (tid,), at in groups([rows.columns["tid"]])
        )

    def _by_tid(self, *tables: str) -> dict[int, Integers]:
        """The times of each thread's events of some tables, of those that were recorded."""
        found = [self._table(each)[0] for each in tables if each in self._of[0].tables]
        tids = np.concatenate([np.empty(0, np.int64), *(rows.columns["tid"] for rows in found)])
        ts = np.concatenate([np.empty(0, np.int64), *(rows.ts for rows in found)])
        return {tid: np.sort(ts[at]) for (tid,), at in groups([tids])}

    def _taker(self, way: Way) -> Taker | None:
        woken = self._woken.get(way.taker, np.empty(0, np.int64))
        last = int(woken.searchsorted(way.came, "right")) - 1
        return Taker(way.taker, int(woken[last]) if last >= 0 else None)

    def _is_known(self, way: Way, hop: Hop) -> bool:
        near, there, far = way.ends
        if there is self:
            reads = self._reads[hop.receiver, far]
            rows = slice(reads.since(way.given - hop.apart), reads.upto(hop.end))
            whole = after(reads.columns["copied_seq"][rows], way.message[1]) >= 0
            if _in_gap(self._read_gaps, far, way.ready, hop.end):
                return False
            if whole.any() and reads.ts[rows][whole][0] < way.ready:
                return False
        if near not in self._out:
            return True
        is_whole = not _in_gap(self._written_gaps, near, hop.begin, way.sent)
        return is_whole and not self._lacks_a_first_one(way)

    def _lacks_a_first_one(self, way: Way) -> bool:
        """Whether a segment is sent again of which no event says that it was sent before."""
        out = self._out[way.ends[0]]
        rows = range(out.since(way.given), out.upto(way.sent))
        earlier = out.since(way.given - EARLIER_NS)
        for row in rows:
            segment = out.row(row)
            if segment["retransmission"]:
                seq, count = (out.columns[name][earlier:row] for name in ("seq", "bytes"))
                before = (after(segment["seq"], seq) >= 0) & (
                    after(seq + count, segment["seq"]) > 0
                )
                if not before.any():
                    return True
        return False

    def _is_at_once(self, way: Way, hop: Hop, segment: tuple[int, int], by: int, at: Held) -> bool:
        """The thread was in one call, with nothing of another one in between."""
        del way, segment
        acts = self._acts.get(by, np.empty(0, np.int64))
        others = acts.searchsorted(at.end, "left") - acts.searchsorted(at.start, "right")
        return by == hop.sender and int(others) <= 0

    def _resent_by(self, here: Connection, seq: int, first: int, gone: int) -> str:
        del seq
        timers, received = self._timers.get(here), self._received[here]
        kinds = timers.columns["timer"][timers.since(first) : timers.upto(gone)] if timers else ()
        row = len(kinds) - 1
        while row >= 0 and kinds[row] not in (_TIME_OUT, _PROBE):
            row -= 1
        if row >= 0 and kinds[row] == _TIME_OUT:
            return " (retransmission time-out)"
        since = first
        if row >= 0 and timers:
            since = int(timers.ts[timers.since(first) + row])
        if received.upto(gone) > received.since(since):
            return " (fast retransmission)"
        return " (tail loss probe)" if row >= 0 else ""

    def _kept(self, way: Way, hop: Hop, segment: tuple[int, int], at: Held) -> str:
        near = way.ends[0]
        waits = self._waits_for(near, hop.sender, segment, at.start)
        received = self._received[near]
        first, last = received.upto(at.start), received.upto(at.end)
        if first == last:
            return self._kept_without_answer(near, hop.sender, at, is_small=waits is not None)
        ack, window = received.columns["ack"], received.columns["window"]
        before = max(first - 1, 0)
        if (window[before : last - 1] == 0).any():
            return FULL_WINDOW
        released = int(received.ts[last - 1])
        if waits is not None and after(ack[last - 1], waits) >= 0:
            why = self._nagle(way, released, at)
            return why + TOOK_LATE if self._took_late(way, released, at, hop.apart) else why
        if after(ack[last - 1], ack[before]) <= 0:
            return FULL_WINDOW if window[last - 1] > window[before] >= 0 else UNTOLD
        return FULL_WINDOWS if self._under_way(near, int(ack[before]), at.start) else UNTOLD

    def _kept_without_answer(
        self, near: Connection, sender: int, at: Held, *, is_small: bool
    ) -> str:
        """The same, where nothing came from the other end meanwhile."""
        timers = self._timers.get(near)
        expired = slice(timers.upto(at.start), timers.upto(at.end)) if timers else slice(0)
        if timers and (timers.columns["timer"][expired] == _PERSIST).any():
            return FULL_WINDOW
        sends = self._sends[sender, near]
        has_written = sends.upto(at.end) > sends.upto(at.start)
        return UNTIL_MORE if is_small and has_written else UNTOLD

    def _took_late(self, way: Way, released: int, at: Held, apart: int) -> bool:
        """Whether an acknowledgement was on its way, or lay at the sender, for most of a time."""
        _, there, far = way.ends
        out = there._out.get(far)
        last = out.upto(released + apart) - 1 if out else -1
        return out is not None and last >= 0 and 2 * (released - out.ts[last]) > at.end - at.start

    def _under_way(self, here: Connection, ack: int, at: int) -> bool:
        """Whether more was sent until an instant than an acknowledgement is of."""
        out = self._out[here]
        rows = slice(out.since(at - EARLIER_NS), out.upto(at))
        return bool((after(out.columns["seq"][rows] + out.columns["bytes"][rows], ack) > 0).any())

    def _waits_for(
        self, here: Connection, sender: int, segment: tuple[int, int], at: int
    ) -> int | None:
        """The byte up to which an acknowledgement has to come before a segment may go.

        By Nagle's algorithm a small one waits for small ones. None: it need not wait.
        """
        sends = self._sends[sender, here]
        row = sends.upto(at) - 1
        unsent = segment[1]
        if row >= 0:
            written = sends.columns["seq"][row] + sends.columns["bytes"][row]
            unsent = int(after(written, segment[0]))
        small = self._smalls(here)
        upto = small.upto(at)
        is_small = unsent < self._largest(here)
        if upto == 0 or not is_small or small.columns["beyond"][:upto].any():
            return None
        last = int(small.columns["end"][upto - 1])
        return last if self._is_open(here, last, at) else None

    def _is_open(self, here: Connection, end: int, at: int) -> bool:
        """Whether bytes up to one are not acknowledged at an instant."""
        received = self._received[here]
        row = max(received.upto(at) - 1, 0)
        return bool(after(end, received.columns["ack"][row]) > 0)

    def _sizes(self, here: Connection) -> Integers:
        """The bytes in the last segment of each train."""
        columns = self._out[here].columns
        whole, cut = columns["bytes"], columns["segment"]
        found: Integers = np.where(cut > 0, (whole - 1) % np.maximum(cut, 1) + 1, whole)
        return found

    def _largest(self, here: Connection) -> int:
        """The bytes of a full segment, as far as the events tell."""
        cut = self._out[here].columns["segment"]
        return max(_LEAST_SEGMENT, *(int(of.max(initial=0)) for of in (cut, self._sizes(here))))

    def _smalls(self, here: Connection) -> Rows:
        """The small segments with new data: where each ends, and whether it did not wait.

        Where one waited for no acknowledgement of the one before it, the program has set
        TCP_NODELAY.
        """
        if here in self._small:
            return self._small[here]
        out, sizes = self._out[here], self._sizes(here)
        is_small = (
            (sizes > 0) & (sizes < self._largest(here)) & (out.columns["retransmission"] == 0)
        )
        rows = np.flatnonzero(is_small)
        ends = (out.columns["seq"] + out.columns["bytes"])[rows] % (1 << 32)
        beyond = np.zeros(len(rows), np.bool_)
        timers = self._timers.get(here)
        for place in range(1, len(rows)):
            at = int(out.ts[rows[place]])
            since = int(out.ts[rows[place] - 1])
            # A probe does not wait.
            is_probe = timers is not None and timers.upto(at) > timers.upto(since)
            beyond[place] = not is_probe and self._is_open(here, int(ends[place - 1]), at)
        self._small[here] = Rows(out.ts[rows], {"end": ends, "beyond": beyond.astype(np.int64)})
        return self._small[here]


def _some(rows: Rows, at: Integers) -> Rows:
    return Rows(rows.ts[at], {name: column[at] for name, column in rows.columns.items()})


def _joined(found: Iterable[tuple[_Key, Rows]]) -> dict[_Key, Rows]:
    """The rows of each key together, by time."""
    parts: dict[_Key, list[Rows]] = {}
    for key, rows in found:
        parts.setdefault(key, []).append(rows)
    joined = {}
    for key, of_key in parts.items():
        if len(of_key) == 1:
            joined[key] = of_key[0]
            continue
        ts = np.concatenate([rows.ts for rows in of_key])
        columns = {
            name: np.concatenate([rows.columns[name] for rows in of_key])
            for name in of_key[0].columns
        }
        joined[key] = _some(Rows(ts, columns), np.argsort(ts, kind="stable"))
    return joined


def _gaps(rows: Rows) -> Rows:
    """The times in which an event of a connection's calls is lost: when each ended, and began.

    Each call says how many bytes were transferred before.
    """
    offset, count = rows.columns["offset"], rows.columns["bytes"]
    expected = np.concatenate(([0], (offset + count)[:-1]))
    at = np.flatnonzero(offset != expected)
    since = np.where(at > 0, rows.ts[at - 1], np.iinfo(np.int64).min)
    return Rows(rows.ts[at], {"since": since})


def _in_gap(gaps: Mapping[Connection, Rows], here: Connection, since: int, until: int) -> bool:
    rows = gaps.get(here)
    return rows is not None and bool(((rows.ts >= since) & (rows.columns["since"] <= until)).any())


def _acknowledged(came: Rows | None, begun: _Begun) -> Rows:
    """The acknowledgements of a connection, the first of which is that of its beginning.

    The window of that is not known: -1.
    """
    first = Rows(np.array([begun.ts]), {"ack": np.array([begun.snd_una]), "window": np.array([-1])})
    if came is None:
        return first
    columns = {name: np.concatenate((of, came.columns[name])) for name, of in first.columns.items()}
    return Rows(np.concatenate((first.ts, came.ts)), columns)


def _completed(came: Rows, reads: Rows | None, begun: _Begun) -> Rows:
    """The byte up to which a connection had all, after each segment that came.

    What was read had come: an event of a segment may be lost.
    """
    seq, count = came.columns["seq"], came.columns["bytes"]
    # Places in the stream: it may have more bytes than there are numbers.
    steps = after(seq, np.concatenate(([begun.rcv_nxt], seq[:-1])))
    first = np.cumsum(steps)
    read_at: list[int] = []
    read_upto: list[int] = []
    if reads is not None:
        read_at = reads.ts.tolist()
        upto_in_stream = reads.columns["offset"] + reads.columns["bytes"]
        read_upto = (upto_in_stream + after(begun.copied_seq, begun.rcv_nxt)).tolist()
    waiting: list[tuple[int, int]] = []
    found, upto, read = [], 0, 0
    for ts, begin, size in zip(came.ts.tolist(), first.tolist(), count.tolist(), strict=True):
        while read < len(read_at) and read_at[read] < ts:
            upto = max(upto, read_upto[read])
            read += 1
        if size:
            waiting.append((begin, begin + size))
        waiting.sort()
        while waiting and waiting[0][0] <= upto:
            upto = max(upto, waiting.pop(0)[1])
        found.append(upto)
    return Rows(came.ts, {"rcv_nxt": (np.array(found, np.int64) + begun.rcv_nxt) % (1 << 32)})
