"""Measures the network's figures; prints one JSON object. See bench/README.md for each.

Run by bench/run.py in namespaces of its own. ``python -m network FIGURE…`` measures some only.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from network import FIGURES, namespaces
from network.bench import Bench


def main(wanted: list[str]) -> int:
    results: dict[str, Any] = {}
    if why_not := namespaces.missing():
        print(json.dumps({"skipped": why_not}))
        return 0
    # In memory, and of this mount namespace alone.
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-", dir="/dev/shm") as name:
        bench = Bench(Path(name))
        for figure in wanted or FIGURES:
            print(f"  {figure} …", file=sys.stderr)
            results[figure] = FIGURES[figure](bench)
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
