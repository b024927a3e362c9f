"""Analysis of a run's tables: statistics of its paths, and verdicts on its expectations."""

from loopscope.analysis.analyse import AnalysisError, analyse, write_path_tables
from loopscope.analysis.results import Results
from loopscope.analysis.sweep_results import FAILED, PointResult, SweepResults, analyse_sweep
from loopscope.analysis.verdict import Verdict

__all__ = [
    "FAILED",
    "AnalysisError",
    "PointResult",
    "Results",
    "SweepResults",
    "Verdict",
    "analyse",
    "analyse_sweep",
    "write_path_tables",
]
