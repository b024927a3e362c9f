"""Runs written from plain Python, as the analysis' tests have them, and traces that babeltrace2
prints, as those of imports have them."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "analysis"), str(TESTS / "imports")]
