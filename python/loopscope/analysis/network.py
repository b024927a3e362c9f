"""The ledgers of a run's kernels: what their network code did with messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.analysis.tcp_ledger import TcpLedger
from loopscope.analysis.udp_ledger import Drop, UdpLedger

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopscope.analysis.ledger import Carried, Traffic
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
        self,
        repeat: int,
        hosts: tuple[str, str],
        sender: int,
        receiver: int,
        within: tuple[int, int | None, int],
        err_ns: int,
        *,
        packets: bool = False,
    ) -> Carried | None:
        """The way of a message from a thread of the first host to one of the second.

        ``within``: when it was sent, when the sender sends its next one (None: it does not), and
        when it was received; the first two on the time line of the sender's kernel, of which the
        receiver's may be ``err_ns`` off. ``packets``: with those that it was in. None where it is
        not known. Raises `RunError`.
        """
        here, there = (self._kernel_of(repeat, host) for host in hosts)
        begin, until, end = within
        apart = 0 if here == there else err_ns
        if self._has_tcp:
            near, far = self._tcp_of(repeat, here), self._tcp_of(repeat, there)
            found = near.carried(sender, begin, until, far, receiver, end, apart, packets)
            if found is not None:
                return found
        if self._has_udp:
            by_udp = self._udp_of(repeat, here), self._udp_of(repeat, there)
            return by_udp[0].carried(sender, begin, until, by_udp[1], receiver, end, apart, packets)
        return None

    def traffic(
        self,
        repeat: int,
        hosts: tuple[str, str],
        sender: int,
        receiver: int,
        within: tuple[int, int | None, int],
        err_ns: int,
    ) -> Traffic | None:
        """The packets of the message that `carried` follows. Raises `RunError`."""
        here, there = (self._kernel_of(repeat, host) for host in hosts)
        begin, until, end = within
        apart = 0 if here == there else err_ns
        found = None
        if self._has_tcp:
            near, far = self._tcp_of(repeat, here), self._tcp_of(repeat, there)
            found = near.traffic(sender, begin, until, far, receiver, end, apart)
        if found is None and self._has_udp:
            by_udp = self._udp_of(repeat, here), self._udp_of(repeat, there)
            found = by_udp[0].traffic(sender, begin, until, by_udp[1], receiver, end, apart)
        return found

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
