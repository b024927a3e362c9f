"""For how long a thread had a processor, from the events of its scheduler."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Nanoseconds = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RunningTime:
    """The time that a thread had a processor, summed up to each of its switches."""

    at: Nanoseconds
    """The switches, shape (n,), rising."""
    ran: Nanoseconds
    """How long it had run until each, ns, shape (n,)."""
    untold: Nanoseconds
    """How much of the time until each is not known, ns, shape (n,)."""

    def in_all(self, begin: Nanoseconds, end: Nanoseconds) -> int:
        """The sum over intervals, which have the shape (m,) both, ns."""
        return round(float(np.sum(self._until(self.ran, end) - self._until(self.ran, begin))))

    def untold_in(self, begin: int, end: int) -> int:
        """How much of a time is not known, ns."""
        edges = self._until(self.untold, np.array([begin, end]))
        return round(float(edges[1] - edges[0]))

    def _until(self, summed: Nanoseconds, instants: Nanoseconds) -> npt.NDArray[np.float64]:
        # Differences, since a number of 64 bits with a fraction is not exact to nanoseconds.
        found: npt.NDArray[np.float64] = np.interp(
            instants - self.at[0], self.at - self.at[0], summed
        )
        return found


def running_time(came: Nanoseconds, went: Nanoseconds, last: int) -> RunningTime | None:
    """The sums of a thread that came onto a processor and left it at some instants, both rising.

    ``last``: the last instant of which something is known. Where two events of one kind follow each
    other, the one between is missing, and the time between is not known. None: there is no event.
    """
    at = np.concatenate([came, went])
    if not len(at):
        return None
    begins = np.repeat([True, False], [len(came), len(went)])
    order = np.argsort(at, kind="stable")
    at, begins = at[order], begins[order]
    if begins[-1]:
        at, begins = np.append(at, max(last, int(at[-1]))), np.append(begins, False)
    length = np.diff(at)
    alike = begins[1:] == begins[:-1]
    ran = np.where(begins[:-1] & ~alike, length, 0)
    untold = np.where(alike, length, 0)
    ran, untold = (np.concatenate([[0], np.cumsum(each)]) for each in (ran, untold))
    return RunningTime(at, ran, untold)
