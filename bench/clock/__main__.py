"""Measures the clock's figures; prints one JSON object. See bench/README.md for each.

Run by bench/run.py in namespaces of its own. ``python -m clock FIGURE…`` measures some only.
"""

from __future__ import annotations

import sys

from figures import measured

from clock import FIGURES

if __name__ == "__main__":
    measured(FIGURES, sys.argv[1:])
