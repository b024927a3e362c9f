"""Measures the time line's figures; prints one JSON object. See bench/README.md for each.

Run by bench/run.py in namespaces of its own. ``python -m timeline FIGURE…`` measures some only.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from timeline import FIGURES, LONG
from timeline.recorded import Recorded


def main(wanted: list[str]) -> int:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as name:
        recorded = Recorded(Path(name))
        for figure in wanted or (name for name in FIGURES if name not in LONG):
            print(f"  {figure} …", file=sys.stderr)
            results[figure] = FIGURES[figure](recorded)
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
