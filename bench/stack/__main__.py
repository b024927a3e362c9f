"""Measures the user-mode TCP stack; prints one JSON object. See bench/README.md.

``python -m stack FIGURE…`` measures some only.
"""

from __future__ import annotations

import sys

from figures import measured

from stack import FIGURES

if __name__ == "__main__":
    measured(FIGURES, sys.argv[1:])
