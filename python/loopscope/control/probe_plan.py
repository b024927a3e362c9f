"""The plan of clock probes: which host probes which, and how often.

Its size grows with the number of hosts, not with its square.
"""

from __future__ import annotations

from collections.abc import Sequence

# Others that one host's time is checked against at most. On the local testbed each edge costs a
# permanent entry in the kernel's neighbour table at both ends.
PEERS = 6
# Exchanges a second with the reference, of all followers together.
PROBES_HZ = 2000.0
# Exchanges a second between followers, of all edges together, and of one edge.
MESH_HZ = 500.0
EDGE_HZ = 10.0
# The least of one follower or edge: still some hundred messages a minute.
LEAST_HZ = 1.0
# Exchanges of the first bursts of all followers together, as of the last ones, and of one at least.
BURST_EXCHANGES = 20_000
BURST_LEAST = 10
# Exchanges of the bursts of all followers together when load is seen, and of one at least.
LOAD_BURSTS = 2000
LOAD_LEAST = 2
# Hosts whose first burst goes on at the same time.
FIRST_BURSTS = 8
# Exchanges of last bursts that go on at the same time.
LAST_EXCHANGES = 800


def peers(followers: Sequence[str]) -> dict[str, list[str]]:
    """The followers that each follower probes, all of them before it in ``followers``.

    Those that probe nobody are left out.

    Up to seven followers all check each other. Of more, each checks those that are 1, 2 and 4
    places away on the ring of all followers (a circulant graph). Any one of them may fail and the
    others are still connected. Each edge closes a loop of three hosts with the reference, and
    another one without it: 1 and 1 are 2 places, 2 and 2 are 4.
    """
    count = len(followers)
    if count - 1 <= PEERS:
        strides = set(range(1, count))
    else:
        strides = {1 << power for power in range(PEERS // 2)}
    found: dict[str, list[str]] = {}
    for later in range(count):
        before = [e for e in range(later) if strides & {later - e, count - (later - e)}]
        if before:
            found[followers[later]] = [followers[each] for each in before]
    return found


def pairs(hosts: Sequence[str], *, mesh: bool) -> list[tuple[str, str]]:
    """The pairs of hosts that exchange probes; the reference is the first of ``hosts``."""
    reference, followers = hosts[0], hosts[1:]
    found = [(reference, follower) for follower in followers]
    if mesh and len(followers) > 1:
        found += [(a, b) for a, others in peers(followers).items() for b in others]
    return found


def rate_hz(asked_hz: float, followers: int) -> float:
    """Exchanges a second of each follower: as asked, or less where one reference has many."""
    return _share(asked_hz, PROBES_HZ, followers)


def burst(asked: int, followers: int) -> int:
    """Exchanges of a follower's first and last burst: as asked, or less where there are many.

    One reference answers all of them, and each burst waits for others.
    """
    return min(asked, max(BURST_LEAST, BURST_EXCHANGES // max(1, followers)))


def last_bursts(asked: int, followers: int) -> int:
    """Hosts whose last burst goes on at the same time."""
    return max(1, LAST_EXCHANGES // burst(asked, followers))


def load_burst(asked: int, followers: int) -> int:
    """Exchanges of a follower's burst when load is seen: as asked, or less where there are many.

    Load is seen by all at once. More probes must not add to it.
    """
    return min(asked, max(LOAD_LEAST, LOAD_BURSTS // max(1, followers)))


def edge_hz(edges: int) -> float:
    """Exchanges a second of each edge between followers."""
    return _share(EDGE_HZ, MESH_HZ, edges)


def _share(asked_hz: float, total_hz: float, among: int) -> float:
    """Rate of one of ``among``, Hz: an equal share, at least ``LEAST_HZ``, at most ``asked_hz``."""
    return min(asked_hz, max(LEAST_HZ, total_hz / max(1, among)))
