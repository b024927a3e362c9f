"""How long paths take from a run's files to their tables."""

from collections.abc import Callable
from typing import Any

from paths import measure

FIGURES: dict[str, Callable[[], dict[str, Any]]] = {
    "path-lists": measure.lists,
    "path-graphs": measure.graphs,
}
