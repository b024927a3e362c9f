"""How the user-mode stack transfers a component's TCP connections, as it is planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Acceleration:
    """The connections that the stack transfers in a component's own processes.

    Those with a port of ``only`` at either end (such as 80,8000-8010), None: all. ``receive``:
    how its threads wait. ``rto_min_ns``: the least retransmission time-out, None: the kernel's.
    """

    only: str | None
    receive: Literal["adaptive", "spin", "block"]
    rto_min_ns: int | None = None


def service(host: str) -> str:
    """The name of the component that serves the accelerated components of a host.

    >>> service("h1")
    '_stack-h1'
    """
    return f"_stack-{host}"
