"""Open a finished run and read its tables (`schema/run-directory.md`)."""

from loopscope.timeline.foreign import ForeignTrace
from loopscope.timeline.listing import ListedRun, list_runs
from loopscope.timeline.loss import ProcessLoss, SiteLoss
from loopscope.timeline.manifest import (
    JUDGED_BY,
    KILLED,
    described,
    goes_on,
    read_manifest,
    read_point,
    read_specification,
    run_id,
    write_judged_by,
)
from loopscope.timeline.recording import AllPoints, is_recorded, open_tables
from loopscope.timeline.run import TABLES, Run, UnknownTableError, hops_of, open_run, points_of
from loopscope.timeline.table_error import (
    NothingMeasuredError,
    RunError,
    is_interrupt,
    readable_errors,
    table_error,
)

__all__ = [
    "JUDGED_BY",
    "KILLED",
    "ForeignTrace",
    "ListedRun",
    "NothingMeasuredError",
    "TABLES",
    "AllPoints",
    "ProcessLoss",
    "Run",
    "RunError",
    "SiteLoss",
    "UnknownTableError",
    "described",
    "readable_errors",
    "goes_on",
    "hops_of",
    "is_interrupt",
    "is_recorded",
    "list_runs",
    "open_run",
    "open_tables",
    "points_of",
    "read_manifest",
    "read_point",
    "read_specification",
    "run_id",
    "table_error",
    "write_judged_by",
]
