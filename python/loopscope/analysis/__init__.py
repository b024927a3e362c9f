"""From the tables of a run to the statistics of its paths and the verdicts on its expectations."""

from loopscope.analysis.analyse import AnalysisError, analyse
from loopscope.analysis.expectation import Verdict
from loopscope.analysis.results import Results

__all__ = [
    "AnalysisError",
    "Results",
    "Verdict",
    "analyse",
]
