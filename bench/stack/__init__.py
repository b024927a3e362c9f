"""What a connection does by the user-mode TCP stack and by the kernel's sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stack import exchange, floor, lost, many, others

FIGURES: dict[str, Callable[[], dict[str, Any]]] = {
    "stack-round-trip": exchange.round_trips,
    "stack-udp-round-trip": exchange.datagrams,
    "stack-bulk": exchange.bulk,
    "stack-many": many.many,
    "stack-lost": lost.lost,
    "stack-idle": exchange.idle,
    "stack-others": others.others,
    "stack-floor": floor.floor,
}
