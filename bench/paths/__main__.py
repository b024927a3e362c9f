"""Measures the paths' figures; prints one JSON object. See bench/README.md for each.

``python -m paths FIGURE…`` measures some only.
"""

from __future__ import annotations

import sys

from figures import measured

from paths import FIGURES

if __name__ == "__main__":
    measured(FIGURES, sys.argv[1:])
