"""How well packets keep time, and what emulated links do to them."""

from collections.abc import Callable
from typing import Any

from network import links, pacing, testbed
from network.bench import Bench

FIGURES: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "intervals": pacing.compare,
    "stalls": pacing.stalls,
    "rates": pacing.rates,
    "delays": links.delays,
    "impairments": links.impairments,
    "throughput": links.throughput,
    "opportunities": links.opportunities,
    "targets": testbed.targets,
}
