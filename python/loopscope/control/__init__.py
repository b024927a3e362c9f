"""The controller: takes an experiment through its phases and keeps what it left."""

from loopscope.control.failure import RunFailed, RunInterrupted
from loopscope.control.foreign import CannotAdd
from loopscope.control.foreign import add as add_foreign
from loopscope.control.progress import Progress, Silent
from loopscope.control.run import make_timeline, run_experiment
from loopscope.control.rundir import RunDirectory

__all__ = [
    "CannotAdd",
    "Progress",
    "RunDirectory",
    "RunFailed",
    "RunInterrupted",
    "Silent",
    "add_foreign",
    "make_timeline",
    "run_experiment",
]
