"""The ledgers of a run's kernels: what their network code did with messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.analysis.tcp_ledger import TcpLedger
from loopscope.analysis.udp_ledger import Drop, UdpLedger

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopscope.analysis.ledger import Carried, Hop, Traffic
    from loopscope.timeline import Run


class Network:
    """The ledgers of all kernels in all repeats, each read once."""

    def __init__(self, run: Run, kernel_of: Callable[[int, str], str]) -> None:
        """``kernel_of``: the name of a host's kernel in a repeat."""
        self._run = run
        self._kernel_of = kernel_of
        self._has_tcp, self._has_udp = TcpLedger.recorded(run), UdpLedger.recorded(run)
        self._tcp: dict[tuple[int, str], TcpLedger] = {}
        self._udp: dict[tuple[int, str], UdpLedger] = {}

    @staticmethod
    def recorded(run: Run) -> bool:
        """Whether a run has packets of a protocol."""
        return TcpLedger.recorded(run) or UdpLedger.recorded(run)

    def carried(
        self, repeat: int, hosts: tuple[str, str], hop: Hop, *, packets: bool = False
    ) -> Carried | None:
        """The way of a message from a thread of the first host to one of the second.

        ``packets``: with those that it was in. None where it is not known. Raises `RunError`.
        """
        tcp, udp, hop = self._of(repeat, hosts, hop)
        found = tcp and tcp[0].carried(hop, tcp[1], packets=packets)
        return found or (udp and udp[0].carried(hop, udp[1], packets=packets))

    def traffic(self, repeat: int, hosts: tuple[str, str], hop: Hop) -> Traffic | None:
        """The packets of the message that `carried` follows. Raises `RunError`."""
        tcp, udp, hop = self._of(repeat, hosts, hop)
        found = tcp and tcp[0].traffic(hop, tcp[1])
        return found or (udp and udp[0].traffic(hop, udp[1]))

    def _of(
        self, repeat: int, hosts: tuple[str, str], hop: Hop
    ) -> tuple[tuple[TcpLedger, TcpLedger] | None, tuple[UdpLedger, UdpLedger] | None, Hop]:
        """The ledgers of two hosts, and the hop: a kernel's clock is not apart from itself."""
        here, there = (self._kernel_of(repeat, host) for host in hosts)
        tcp = (self._tcp_of(repeat, here), self._tcp_of(repeat, there)) if self._has_tcp else None
        udp = (self._udp_of(repeat, here), self._udp_of(repeat, there)) if self._has_udp else None
        return tcp, udp, hop._replace(apart=0) if here == there else hop

    def dropped(
        self,
        repeat: int,
        hosts: tuple[str, str],
        sender: int,
        within: tuple[int, int | None],
    ) -> Drop | None:
        """What is told of the drop of a message that a thread sent by UDP to the second host.

        ``within``: when it was sent, and the sender's next one. None where it is not known. Raises
        `RunError`.
        """
        if not self._has_udp:
            return None
        here, there = (self._udp_of(repeat, self._kernel_of(repeat, host)) for host in hosts)
        return here.dropped(sender, *within, there)

    def _tcp_of(self, repeat: int, kernel: str) -> TcpLedger:
        if (repeat, kernel) not in self._tcp:
            self._tcp[repeat, kernel] = TcpLedger(self._run, repeat, kernel)
        return self._tcp[repeat, kernel]

    def _udp_of(self, repeat: int, kernel: str) -> UdpLedger:
        if (repeat, kernel) not in self._udp:
            self._udp[repeat, kernel] = UdpLedger(self._run, repeat, kernel)
        return self._udp[repeat, kernel]
