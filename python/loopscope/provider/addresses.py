"""The addresses that hosts use for each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from loopscope.provider.interface import DATA, Host, Network, TestbedError

Family = Literal["IPv4", "IPv6"]

# What needs addresses of one family.
EMULATED_LINKS = "emulated links between the hosts"


def family(address: str) -> Family:
    """The family of an IP address."""
    return "IPv6" if ":" in address else "IPv4"


def families(host: Host, network: Network) -> frozenset[Family]:
    """The families of a host's addresses on a network; empty: it is not on it."""
    return frozenset(map(family, host.addresses.get(network, ())))


def common_family(hosts: Sequence[Host], network: Network) -> Family | None:
    """The family that all hosts have addresses of; of two the one that the first host prefers.

    None: there is no such family, or there are no hosts.
    """
    if not hosts:
        return None
    common = frozenset.intersection(*(families(host, network) for host in hosts))
    preferred = (family(address) for address in hosts[0].addresses.get(network, ()))
    return next((each for each in preferred if each in common), None)


def of_one_family(hosts: Iterable[Host], network: Network, purpose: str) -> dict[str, str]:
    """An address of each host on a network, all of the same family, by the hosts' names.

    Of its addresses of that family it is the one that the host prefers. Raises TestbedError where
    there is no family that all hosts have; ``purpose`` is what needs one, for people.
    """
    every = list(hosts)
    if not every:
        return {}
    chosen = common_family(every, network)
    if chosen is None:
        raise TestbedError(
            f"{purpose}: the hosts have no {network} addresses of the same family: "
            f"{_by_family(every, network)}; `{network}` in `machines` takes a list: give each of "
            "these hosts an address of the same family"
        )
    return {
        host.name: next(each for each in host.addresses[network] if family(each) == chosen)
        for host in every
    }


def _by_family(hosts: Iterable[Host], network: Network) -> str:
    """The hosts by the families that they have, for people."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        has = " and ".join(sorted(families(host, network))) or "none"
        found.setdefault(has, []).append(host.name)
    return ", ".join(f"{has} on {', '.join(names)}" for has, names in found.items())


class DataAddresses:
    """The addresses at which the programs of hosts reach each other.

    All use the family that all hosts have. Where there is none, each pair of hosts uses what both
    have.
    """

    def __init__(self, hosts: Mapping[str, Host], linked: Mapping[str, str] | None = None) -> None:
        """``linked``: the only address of each host that is used, None: any of them.

        Hosts that emulate links for what they send do so for one address of each other host.
        """
        self._hosts = hosts
        self._linked = linked
        on = [host for host in hosts.values() if DATA in host.addresses]
        self._common = common_family(on, DATA)

    def view(self, host: str) -> frozenset[Family]:
        """The families that the programs of a host use for others."""
        if self._common is not None:
            return frozenset({self._common})
        return families(self._hosts[host], DATA)

    def seen(self, host: str, view: frozenset[Family]) -> Sequence[str]:
        """The addresses of a host, the one first that programs with this view use for it.

        That is the first one of these families. Where there is none it is the one that the host
        prefers.
        """
        if self._linked is not None:
            return [self._linked[host]]
        return sorted(self._hosts[host].addresses[DATA], key=lambda each: family(each) not in view)

    def unreachable(self, hosts: Iterable[str]) -> str | None:
        """A text for people where programs on some of these hosts cannot reach those on others."""
        every = [self._hosts[name] for name in dict.fromkeys(hosts)]
        only = {families(host, DATA) for host in every}
        if not {frozenset({"IPv4"}), frozenset({"IPv6"})} <= only:
            return None
        return (
            "not all programs can reach each other at the data addresses of their hosts, which are "
            f"{_by_family(every, DATA)}; `data` in `machines` takes a list"
        )
