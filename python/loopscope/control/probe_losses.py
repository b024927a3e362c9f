"""Losses of clock probes, in a few lines however many hosts there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

# Hosts, or pairs of them, that have a line each; of more there is one line for all.
FEW = 3


@dataclass(frozen=True)
class Loss:
    """Lost ones of the ``sent`` probes of ``subject``, by cause."""

    subject: str
    sent: int
    lost: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.lost.values())


@dataclass
class ProbeLosses:
    """Collects losses and remarks of the same kind, to tell them together."""

    _lost: dict[str, list[Loss]] = field(default_factory=dict)
    _remarks: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def lose(self, kind: str, subject: str, what: str, sent: int, lost: Mapping[str, int]) -> None:
        """``subject`` lost probes.

        ``what`` they are is told where it has a line of its own, else ``kind``.
        """
        # A follower asks again if it gets no session because others ask at the same time.
        lost = {cause: count for cause, count in lost.items() if cause != "unknown-session"}
        if lost:
            loss = Loss(subject, sent, lost)
            self._lost.setdefault(kind, []).append(loss)
            self.remark(kind, subject, f"{loss.total} of {sent} {what} lost ({_causes(lost)})")

    def remark(self, kind: str, subject: str, text: str) -> None:
        """``text`` about ``subject``, one of perhaps many of the same ``kind``."""
        self._remarks.setdefault(kind, []).append((subject, text))

    def lines(self) -> list[str]:
        """Lines for people."""
        told = []
        for kind, remarks in self._remarks.items():
            if len(remarks) <= FEW:
                told += [f"{subject}: {text}" for subject, text in sorted(remarks)]
            elif kind in self._lost:
                told.append(_together(kind, self._lost[kind]))
            else:
                named = "; ".join(f"{subject}: {text}" for subject, text in sorted(remarks)[:FEW])
                told.append(f"{kind}, {len(remarks)} times: {named}; …")
        return told


def _together(kind: str, losses: list[Loss]) -> str:
    causes: Counter[str] = Counter()
    for loss in losses:
        causes.update(loss.lost)
    most = max(losses, key=lambda loss: (loss.total / max(1, loss.sent), loss.subject))
    return (
        f"{causes.total()} of {sum(loss.sent for loss in losses)} {kind} lost "
        f"({_causes(causes)}), of {len(losses)} senders; the largest share, {most.total} of "
        f"{most.sent}, of {most.subject}"
    )


def _causes(lost: Mapping[str, int]) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in sorted(lost.items()))
