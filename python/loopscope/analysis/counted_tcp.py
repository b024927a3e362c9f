"""What TCP did between two programs, by the kernel's counts of their connections.

They are looked at every few ms where events are not recorded
(`crates/kernel/src/samples/connections.rs`), so an interval has bounds only. The kernel counts
these times in ticks, so one that goes on may be off by one. All times are global ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.kernels import rows_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.timeline import Run

    Integers = npt.NDArray[np.int64]

TABLE = "kernel.tcp_info"
_COUNTS = ("total_retrans", "rwnd_limited_us", "busy_us", "bytes_acked", "packets_out", "rtt_us")
_LATE_RTTS = 2
"""An acknowledgement that takes more of the usual round trips is one of what was sent again."""


class Kept(NamedTuple):
    """For how long TCP surely kept bytes of a connection in an interval, and why."""

    ns: int
    why: str


@dataclass(frozen=True)
class _Connection:
    """Looks at a connection, rising. Between two of them that are apart nothing changed."""

    root: int
    """The first process of the program that has it."""
    ends: tuple[str, str]
    """Its own address and the other's."""
    begun: Integers
    ended: Integers
    counts: dict[str, Integers]

    def within(self, begin: int, end: int) -> slice:
        """The looks that began and ended in an interval."""
        last = int(self.ended.searchsorted(end, side="right"))
        return slice(int(self.begun.searchsorted(begin)), last)


class Connections:
    """The connections of a host's components in one repeat."""

    def __init__(self, run: Run, repeat: int, host: str) -> None:
        """Raises `RunError` where the table cannot be read."""
        self.found: list[_Connection] = []
        self._tick_us = 0
        if TABLE not in run.tables:
            return
        names = ("ts", "took_ns", "root", *_COUNTS)
        texts = "local::VARCHAR AS local, remote::VARCHAR AS remote"
        rows = rows_of(run, TABLE, repeat, host, f"{', '.join(names)}, {texts}")
        columns = {name: rows[name].to_numpy().astype(np.int64) for name in names}
        times = np.concatenate([columns["busy_us"], columns["rwnd_limited_us"]])
        self._tick_us = int(np.gcd.reduce(times))
        keys = zip(rows["local"].to_pylist(), rows["remote"].to_pylist(), strict=True)
        places: dict[tuple[int, str, str], list[int]] = {}
        for row, (root, ends) in enumerate(zip(columns["root"].tolist(), keys, strict=True)):
            places.setdefault((root, *ends), []).append(row)
        for (root, local, remote), at in places.items():
            begun = columns["ts"][at]
            counts = {name: columns[name][at] for name in _COUNTS}
            ended = begun + columns["took_ns"][at]
            self.found.append(_Connection(root, (local, remote), begun, ended, counts))

    def kept(self, root: int, there: Connections, other: int, begin: int, end: int) -> Kept | None:
        """For how long TCP kept bytes from a program to another one, which runs on ``there``.

        Both are known by their first process. None where it is not told: there is no connection
        between the two, or there are several, or it was not looked at.
        """
        far = {each.ends for each in there.found if each.root == other}
        between = [each for each in self.found if each.root == root and each.ends[::-1] in far]
        if len(between) != 1:
            return None
        (connection,) = between
        within = connection.within(begin, end)
        if within.stop - within.start < 2:
            return None
        counts = {name: column[within] for name, column in connection.counts.items()}
        limited = counts["rwnd_limited_us"]
        full = 1_000 * (int(limited[-1] - limited[0]) - self._tick_us)
        stalled = _stalled(connection, within)
        longest = max((full, "the receiver's window was full"), (stalled, "sent again"))
        return Kept(*longest) if longest[0] > 0 else None


def _stalled(connection: _Connection, within: slice) -> int:
    """For how long surely nothing was acknowledged of what was sent, until it was sent again."""
    acked, under_way = (connection.counts[name] for name in ("bytes_acked", "packets_out"))
    again = connection.counts["total_retrans"]
    longest, first = 0, within.start
    for row in range(within.start + 1, within.stop):
        if acked[row] != acked[row - 1] or not under_way[row]:
            if under_way[row - 1] and again[row] > again[row - 1]:
                # Between two looks it was both sent again and acknowledged.
                longest = max(longest, _unacknowledged(connection, first, row - 1))
            first = row
        elif again[row] > again[first]:
            longest = max(longest, int(connection.begun[row] - connection.ended[first]))
    last, after = within.stop - 1, within.stop
    # The first look that tells of it may be one after the interval.
    if after < len(again) and under_way[last] and again[after] > again[last]:
        longest = max(longest, _unacknowledged(connection, first, last))
    return longest


def _unacknowledged(connection: _Connection, first: int, last: int) -> int:
    """For how long nothing was acknowledged between two looks; 0: no longer than usual."""
    waited = int(connection.begun[last] - connection.ended[first])
    usual = 1_000 * int(connection.counts["rtt_us"][last])
    return waited if waited > _LATE_RTTS * usual else 0
