"""Measures space-time memory; prints one JSON object. See bench/README.md.

``python -m stm FIGURE…`` measures some only.
"""

from __future__ import annotations

import sys

from figures import measured_in_folders

from stm import FIGURES

if __name__ == "__main__":
    measured_in_folders(FIGURES, sys.argv[1:])
