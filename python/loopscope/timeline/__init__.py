"""Open a finished run and read its tables (`schema/run-directory.md`)."""

from loopscope.timeline.foreign import ForeignTrace
from loopscope.timeline.interrupt import is_interrupt
from loopscope.timeline.loss import ProcessLoss, SiteLoss
from loopscope.timeline.run import (
    TABLES,
    Run,
    RunError,
    UnknownTableError,
    hops_of,
    open_run,
    points_of,
    read_manifest,
)

__all__ = [
    "ForeignTrace",
    "TABLES",
    "ProcessLoss",
    "Run",
    "RunError",
    "SiteLoss",
    "UnknownTableError",
    "hops_of",
    "is_interrupt",
    "open_run",
    "points_of",
    "read_manifest",
]
