"""Runs written from plain Python, and traces that babeltrace2 prints.

The runs are those of the tests of analyses, the traces those of the tests of imports.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "analysis"), str(TESTS / "imports")]
