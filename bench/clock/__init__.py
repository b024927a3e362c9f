"""What the clock costs, and how right it is compared with others."""

from collections.abc import Callable
from typing import Any

from clock import compare, page, probes

FIGURES: dict[str, Callable[[], dict[str, Any]]] = {
    "page": page.measure,
    "probes": probes.measure,
    "comparison": compare.measure,
}
