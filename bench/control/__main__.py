"""Measures how runs are made, controlled and ended; prints one JSON object. See bench/README.md.

Run by bench/run.py in namespaces of its own. ``python -m control FIGURE…`` measures some only.
"""

from __future__ import annotations

import sys

from figures import measured_in_folders

from control import FIGURES

if __name__ == "__main__":
    measured_in_folders(FIGURES, sys.argv[1:])
