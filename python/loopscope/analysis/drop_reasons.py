"""Why kernels drop packets, in words."""

from __future__ import annotations

_REASONS = {
    "NETFILTER_DROP": "a rule of the firewall",
    "NO_SOCKET": "there was no socket for it",
    "QDISC_DROP": "the queue of its device had no room",
    "QDISC_OVERLIMIT": "the queue of its device had no room",
    "SOCKET_FILTER": "the filter of its socket",
    "SOCKET_RCVBUFF": "its socket had no room",
}
"""What names of the kernel mean (``include/net/dropreason-core.h``)."""


def reason_text(reason: str, function: str) -> str:
    """Why a packet was dropped: `its socket had no room (SOCKET_RCVBUFF, udp_queue_rcv)`."""
    why, name = _REASONS.get(reason), f"{reason}, {function}"
    return name if why is None else f"{why} ({name})"
