"""Measures what recording kernel events costs; prints one JSON object. See bench/README.md.

Not in a PID namespace: the kernel's events have other thread numbers there.
``python -m kernel FIGURE…`` measures some only.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernel import FIGURES


def main(wanted: list[str]) -> int:
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as name:
        for figure in wanted or FIGURES:
            print(f"  {figure} …", file=sys.stderr)
            folder = Path(name) / figure
            folder.mkdir()
            results[figure] = FIGURES[figure](folder)
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
