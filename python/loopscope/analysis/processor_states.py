"""How fast processors ran and how deeply they idled, from the kernel's events of class ``idle``.

All times are ns of the kernel's own place on the global time line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loopscope.analysis.kernels import rows_of

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.timeline import Run

_FREQUENCY, _IDLE = "kernel.cpu_frequency", "kernel.cpu_idle"
_AWAKE = 2**32 - 1
"""What an event of `cpu_idle` has as its state when the processor idles no more."""


class _States(NamedTuple):
    """The states of a processor, each from an instant on."""

    since: Nanoseconds
    state: Nanoseconds

    def at(self, instant: int) -> int | None:
        """The state at an instant; None: that before the first event."""
        place = int(self.since.searchsorted(instant, side="right")) - 1
        return int(self.state[place]) if place >= 0 else None


class ProcessorStates:
    """Frequencies and idle states of a kernel's processors in one repeat."""

    def __init__(self, run: Run, repeat: int, kernel: str) -> None:
        """Raises `RunError` where a table cannot be read."""
        self._frequencies = _read(run, _FREQUENCY, repeat, kernel)
        self._idle = _read(run, _IDLE, repeat, kernel)

    def slowed_to(self, cpu: int, start: int, end: int) -> int | None:
        """The lowest frequency of a processor in a time, kHz.

        None where it is the highest that the run has of that processor, or is not known.
        """
        of = self._frequencies.get(cpu)
        before = None if of is None else of.at(start)
        if of is None or before is None:
            return None
        within = slice(*of.since.searchsorted([start, end]))
        lowest = int(of.state[within].min(initial=before))
        return lowest if lowest < of.state.max() else None

    def idle_state(self, cpu: int, at: int) -> int | None:
        """The number of the state in which a processor idled; None: in none, or it is not known."""
        of = self._idle.get(cpu)
        state = None if of is None else of.at(at)
        return None if state == _AWAKE else state


def _read(run: Run, table: str, repeat: int, kernel: str) -> dict[int, _States]:
    if table not in run.tables:
        return {}
    rows = rows_of(run, table, repeat, kernel, "ts, cpu_id, state")
    names = ("ts", "cpu_id", "state")
    ts, cpus, states = (rows[name].to_numpy().astype(np.int64) for name in names)
    every = {int(cpu): cpus == cpu for cpu in np.unique(cpus)}
    return {cpu: _States(ts[own], states[own]) for cpu, own in every.items()}
