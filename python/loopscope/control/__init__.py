"""The controller: takes an experiment through its phases and keeps what it left.

`measure` is imported at first use: it needs gRPC, which comes with the extra `testbed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopscope.control.failure import RunFailed, RunInterrupted
from loopscope.control.foreign import CannotAdd
from loopscope.control.foreign import add as add_foreign
from loopscope.control.interruption import Interruption
from loopscope.control.progress import Progress, Silent
from loopscope.control.rundir import BASE, RunDirectory, mark_killed, settle
from loopscope.control.staged_timeline import drafted
from loopscope.control.timeline import make_timeline, make_timelines

if TYPE_CHECKING:
    from loopscope.control.run import measure

__all__ = [
    "BASE",
    "CannotAdd",
    "Interruption",
    "Progress",
    "RunDirectory",
    "RunFailed",
    "RunInterrupted",
    "Silent",
    "add_foreign",
    "drafted",
    "make_timeline",
    "make_timelines",
    "mark_killed",
    "measure",
    "settle",
]


def __getattr__(name: str) -> Any:
    if name != "measure":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from loopscope.control.run import measure

    return measure
