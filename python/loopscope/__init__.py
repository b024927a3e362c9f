"""loopscope builds, runs, instruments and judges distributed control loops on Linux.

`run` runs an experiment and judges it, `check` lists its mistakes, `open_run` opens a finished run,
`runs` lists the runs of a folder, `Experiment` builds an experiment in Python.

>>> import loopscope as ls
>>> run = ls.open_run("runs/pipeline/latest")
>>> run.paths["loop"].messages.latency.max().to_pandas() < 5_000_000
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from loopscope.api import check, open_run, open_sweep, run, runs
    from loopscope.api.experiment import Experiment
    from loopscope.api.figure import Figure
    from loopscope.api.finished import Run, RunPath, Sweep
    from loopscope.api.judgement import ExpectationsFailed, ExpectationsUnknown
    from loopscope.control import RunFailed, RunInterrupted
    from loopscope.experiment import ExperimentErrors, Problem
    from loopscope.extras import MissingExtraError
    from loopscope.report.samples import FigureError
    from loopscope.timeline import RunError

__version__ = "0.1.0"
__all__ = [
    "Experiment",
    "ExperimentErrors",
    "ExpectationsFailed",
    "ExpectationsUnknown",
    "Figure",
    "FigureError",
    "MissingExtraError",
    "Problem",
    "Run",
    "RunError",
    "RunFailed",
    "RunInterrupted",
    "RunPath",
    "Sweep",
    "__version__",
    "check",
    "open_run",
    "open_sweep",
    "run",
    "runs",
]

# The engine behind a run takes a second to import; programs that only use the phase helper should
# not pay for it.
_AT_FIRST_USE: Final = {
    "Experiment": "api.experiment",
    "ExperimentErrors": "experiment",
    "ExpectationsFailed": "api.judgement",
    "ExpectationsUnknown": "api.judgement",
    "Figure": "api.figure",
    "FigureError": "report.samples",
    "MissingExtraError": "extras",
    "Problem": "experiment",
    "Run": "api.finished",
    "RunError": "timeline",
    "RunFailed": "control",
    "RunInterrupted": "control",
    "RunPath": "api.finished",
    "Sweep": "api.finished",
    "check": "api",
    "open_run": "api",
    "open_sweep": "api",
    "run": "api",
    "runs": "api",
}
"""Public names: the modules that they are in."""


# mypy would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _AT_FIRST_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_AT_FIRST_USE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
