"""Measures what recording kernel events costs; prints one JSON object. See bench/README.md.

Not in a PID namespace: the kernel's events have other thread numbers there.
``python -m kernel FIGURE…`` measures some only.
"""

from __future__ import annotations

import sys

from figures import measured_in_folders

from kernel import FIGURES

if __name__ == "__main__":
    measured_in_folders(FIGURES, sys.argv[1:])
