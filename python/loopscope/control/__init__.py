"""The controller: takes an experiment through its phases and keeps what it left."""

from loopscope.control.draft import drafted
from loopscope.control.failure import RunFailed, RunInterrupted
from loopscope.control.foreign import CannotAdd
from loopscope.control.foreign import add as add_foreign
from loopscope.control.interruption import Interruption
from loopscope.control.progress import Progress, Silent
from loopscope.control.run import measure
from loopscope.control.rundir import BASE, RunDirectory, mark_killed, settle
from loopscope.control.timeline import make_timeline, make_timelines

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
