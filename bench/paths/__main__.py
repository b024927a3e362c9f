"""Measures the paths' figures; prints one JSON object. See bench/README.md for each.

``python -m paths FIGURE…`` measures some only.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from paths import FIGURES


def main(wanted: list[str]) -> int:
    results: dict[str, Any] = {}
    for figure in wanted or FIGURES:
        print(f"  {figure} …", file=sys.stderr)
        results[figure] = FIGURES[figure]()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
