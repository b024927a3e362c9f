"""Where messages were lost, and what lost them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.analysis.drop_reasons import reason_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loopscope.analysis.hop_decomposition import LinkEvents
    from loopscope.analysis.ledger import Sending
    from loopscope.analysis.messages import Messages
    from loopscope.analysis.network import Network
    from loopscope.experiment import Experiment


class Losses:
    """What lost messages of a path between two of its events."""

    def __init__(
        self,
        experiment: Experiment | None,
        messages: Messages,
        network: Network,
        links: LinkEvents,
    ) -> None:
        self._messages = messages
        self._network = network
        self._links = links
        components = () if experiment is None else experiment.components
        self._hosts = {each.name: each.host for each in components}

    def between(
        self,
        row: int,
        hop: tuple[int, int],
        host: str,
        sender: int | None,
        within: tuple[int, int | None],
        sendings: Sequence[Sending] | None,
    ) -> str:
        """Between which events of a hop a message was lost and, where packets tell it, by what.

        ``host`` and ``sender`` are those of the event at which it was seen, ``within`` is when the
        sender's kernel had that and when the sender's next message. ``sendings``: see `Hop`.
        """
        events = self._messages.path.events
        text = f"between {events[hop[0]]} and {events[hop[1]]}"
        there = self._hosts.get(events[hop[1]].component, host)
        repeat = int(self._messages.repeat[row])
        if self._links.has_lost(self._messages, row, hop[0], (host, there)):
            return f"{text}: the emulated link {host} → {there} lost it"
        if sender is None:
            return text
        drop = self._network.dropped(repeat, (host, there), sender, within, sendings)
        if drop is None:
            return text
        where = host if drop.at_sender else there
        said = reason_text(drop.reason, drop.function)
        return f"{text}: the network's code of {where} dropped it: {said}"
