"""The controller: takes an experiment through its phases and keeps what it left.

What takes an experiment through its phases is imported at first use, because it needs gRPC, which
comes with the extra `testbed`; what makes time lines is, because Arrow takes 0.1 s.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loopscope.control.failure import RunFailed, RunInterrupted
from loopscope.control.foreign import CannotAdd
from loopscope.control.foreign import add as add_foreign
from loopscope.control.interruption import Interruption
from loopscope.control.progress import Progress, Silent
from loopscope.control.rundir import BASE, RunDirectory, mark_killed, settle
from loopscope.control.spare_time import SpareTime

if TYPE_CHECKING:
    from loopscope.control.run import measure
    from loopscope.control.staged_timeline import drafted
    from loopscope.control.timeline import make_timeline, make_timelines

_AT_FIRST_USE = {
    "drafted": "staged_timeline",
    "make_timeline": "timeline",
    "make_timelines": "timeline",
    "measure": "run",
}

__all__ = [
    "BASE",
    "CannotAdd",
    "Interruption",
    "Progress",
    "RunDirectory",
    "RunFailed",
    "RunInterrupted",
    "Silent",
    "SpareTime",
    "add_foreign",
    "drafted",
    "make_timeline",
    "make_timelines",
    "mark_killed",
    "measure",
    "settle",
]


# mypy would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _AT_FIRST_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_AT_FIRST_USE[name]}"), name)
