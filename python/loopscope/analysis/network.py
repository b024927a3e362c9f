"""The ledgers of a run: what its kernels' network code did with messages, and programs' own TCP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.analysis import item_ledger
from loopscope.analysis.stack_ledger import StackLedger
from loopscope.analysis.tcp_ledger import TcpLedger
from loopscope.analysis.udp_ledger import Drop, UdpLedger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loopscope.analysis.ledger import Carried, Hop, Sending, Traffic
    from loopscope.analysis.recorded_kernels import RecordedKernels
    from loopscope.analysis.stream_ledger import StreamLedger
    from loopscope.timeline import Run


class Network:
    """The ledgers of all kernels in all repeats, each read once."""

    def __init__(self, run: Run, kernels: RecordedKernels) -> None:
        self._run = run
        self._kernels = kernels
        self._kernel_of = kernels.name_of
        self._has_stack = StackLedger.recorded(run)
        self._stacks: dict[tuple[int, str], StackLedger | None] = {}
        self._has_tcp, self._has_udp = TcpLedger.recorded(run), UdpLedger.recorded(run)
        self._tcp: dict[tuple[int, str], TcpLedger] = {}
        self._udp: dict[tuple[int, str], UdpLedger] = {}

    @staticmethod
    def recorded(run: Run) -> bool:
        """Whether a run has packets of a protocol of its kernels."""
        return TcpLedger.recorded(run) or UdpLedger.recorded(run)

    @staticmethod
    def needed(hop: Hop) -> tuple[str, ...]:
        """The classes of events without which the way of a message is not known.

        What the kernel dropped would be taken for a datagram of the item that came.
        """
        return ("tcp", "udp") if hop.sendings is None else ("tcp", "udp", "drop")

    def carried(
        self, repeat: int, hosts: tuple[str, str], hop: Hop, *, packets: bool = False
    ) -> Carried | None:
        """The way of a message from a thread of the first host to one of the second.

        ``packets``: with those that it was in. None where it is not known. Raises `RunError`.
        """
        tcp, udp, hop = self._of(repeat, hosts, hop)
        for here, there in self._streams(repeat, hosts, tcp):
            if found := here.carried(hop, there, packets=packets):
                return found
        if not udp:
            return None
        if hop.sendings is not None:
            return item_ledger.carried(hop, *udp, packets=packets)
        return udp[0].carried(hop, udp[1], packets=packets)

    def traffic(self, repeat: int, hosts: tuple[str, str], hop: Hop) -> Traffic | None:
        """The packets of the message that `carried` follows, without those of programs' own TCP.

        Raises `RunError`.
        """
        tcp, udp, hop = self._of(repeat, hosts, hop)
        found = tcp and tcp[0].traffic(hop, tcp[1])
        if found or not udp:
            return found
        if hop.sendings is not None:
            return item_ledger.traffic(hop, *udp)
        return udp[0].traffic(hop, udp[1])

    def _streams(
        self, repeat: int, hosts: tuple[str, str], tcp: tuple[TcpLedger, TcpLedger] | None
    ) -> Iterator[tuple[StreamLedger, StreamLedger]]:
        """The ledgers of a connection's ends, each of which may be a program's or a kernel's."""
        of_kernels = tcp or (None, None)
        if self._has_stack:
            stacks = [self._stack_of(repeat, host) for host in hosts]
            yield from (
                (here, there)
                for here, there in (
                    (stacks[0], stacks[1]),
                    (stacks[0], of_kernels[1]),
                    (of_kernels[0], stacks[1]),
                )
                if here is not None and there is not None
            )
        if tcp is not None:
            yield tcp

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
        sendings: Sequence[Sending] | None = None,
    ) -> Drop | None:
        """What is told of the drop of a message that a thread sent by UDP to the second host.

        ``within``: when it was sent, and the sender's next one. ``sendings``: see `Hop`. None where
        it is not known. Raises `RunError`.
        """
        if not self._has_udp:
            return None
        here, there = (self._udp_of(repeat, self._kernel_of(repeat, host)) for host in hosts)
        if sendings is not None:
            return item_ledger.dropped(sendings, here, there)
        return here.dropped(sender, *within, there)

    def _stack_of(self, repeat: int, host: str) -> StackLedger | None:
        """None: the host's kernel was not recorded, by whose time the events are asked for."""
        key = repeat, host
        if key not in self._stacks:
            kernel = self._kernels.of(*key)
            found = None if kernel is None else StackLedger(self._run, *key, kernel.times_of)
            self._stacks[key] = found
        return self._stacks[key]

    def _tcp_of(self, repeat: int, kernel: str) -> TcpLedger:
        if (repeat, kernel) not in self._tcp:
            self._tcp[repeat, kernel] = TcpLedger(self._run, repeat, kernel)
        return self._tcp[repeat, kernel]

    def _udp_of(self, repeat: int, kernel: str) -> UdpLedger:
        if (repeat, kernel) not in self._udp:
            self._udp[repeat, kernel] = UdpLedger(self._run, repeat, kernel)
        return self._udp[repeat, kernel]
