"""What delayed clock probes: each exchange in four legs, and the causes of the slowest of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.cause_words import by_kind, summed_up
from loopscope.analysis.causes import UNKNOWN
from loopscope.analysis.critical_path import Part, prefixed, split
from loopscope.analysis.document import Document
from loopscope.analysis.kernel_causes import Kernels, WhyPart, fitted
from loopscope.analysis.probe_exchanges import LEG_ENDS, read_exchanges
from loopscope.analysis.ranking import MOST, times_of
from loopscope.analysis.recorded_kernels import NoSchedulerError, has_events
from loopscope.analysis.why import WhyHop, WhyMessage
from loopscope.timeline import RunError

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.cause_words import Kind, Words
    from loopscope.analysis.kernel_causes import Caused
    from loopscope.analysis.probe_exchanges import Exchanges
    from loopscope.analysis.scheduling import Scheduling
    from loopscope.timeline import Run

LEGS = ("request", "answer", "reply", "read")
"""From the probe's leaving to its coming, from there to the reply's leaving, from there to its
coming, from there until it was read."""
_SLOWEST = 100
"""One exchange in so many is slow."""
UNTOLD_WAY = "it woke no thread, and by what it was carried is not told"


@dataclass(frozen=True)
class DelayCause(Document):
    """A cause of what the slowest of a leg took above the least."""

    name: str
    """The name of its parts, see `WhyPart`."""
    cause: str
    exchanges: int
    """Slow ones that it held."""
    ns: int
    """Its share in what they took above the least, together."""
    share: float
    """The same, of 1."""


@dataclass(frozen=True)
class ProbeLeg(Document):
    """A leg of the exchanges of a pair of hosts."""

    name: str
    """One of `LEGS`."""
    least_ns: int
    times: Mapping[str, int]
    """What it took above the least, ns by statistic."""
    slow: int
    """The slowest, whose causes these are."""
    explained: int
    """The slowest of them, if there are too many."""
    slow_above_ns: int
    """What each of the explained took above the least, or more."""
    causes: tuple[DelayCause, ...]
    """Those of the most first."""


@dataclass(frozen=True)
class ProbePair(Document):
    """The clock probes by which one host asks another one, of all repeats."""

    host: str
    peer: str
    exchanges: int
    """Those that are looked at."""
    incomplete: int
    """Probes without all stamps, or with one twice: they or their reply were lost, for example."""
    unrecorded: int
    """Exchanges at whose time a kernel of the two was not recorded."""
    stamps: Mapping[str, int]
    """How many stamps were made by the `kernel`, a `program`, a network `interface`."""
    legs: tuple[ProbeLeg, ...]
    """Empty where no exchange is looked at."""
    worst: tuple[WhyMessage, ...]
    """The slowest as a whole, as many as were asked for; a hop is a leg."""


def why_probes(run: Run, over_ns: int | None = None, worst: int = 0) -> list[ProbePair]:
    """What delayed the clock probes of each pair of hosts, the followers' of the reference first.

    Slow is a hundredth of the exchanges for each leg, or what took more than ``over_ns`` above the
    least. Raises NoSchedulerError, and RunError.
    """
    if not has_events(run):
        raise NoSchedulerError(run)
    kernels = Kernels(run)
    pairs: dict[tuple[str, str], list[Exchanges]] = defaultdict(list)
    for exchanges in read_exchanges(run, kernels):
        pairs[exchanges.host, exchanges.peer].append(exchanges)
    if not pairs:
        raise RunError(
            f"{run.path} has no clock probes: they are of runs with several hosts, "
            "and in the folder hosts of each repeat"
        )
    return [_pair(kernels, each, over_ns, worst) for each in pairs.values()]


def _pair(
    kernels: Kernels, found: Sequence[Exchanges], over_ns: int | None, worst: int
) -> ProbePair:
    legs = np.concatenate([np.diff(each.at[:, LEG_ENDS], axis=1) for each in found])
    rows = [(each, row) for each in found for row in range(len(each.at))]
    explained: dict[int, WhyMessage] = {}

    def explain(index: int) -> WhyMessage:
        if index not in explained:
            explained[index] = _explained(kernels, *rows[index])
        return explained[index]

    of_legs = []
    for place, name in enumerate(LEGS if len(rows) else ()):
        least = int(legs[:, place].argmin())
        above = legs[:, place] - legs[least, place]
        slowest = np.argsort(-above, kind="stable")
        slow = -(-len(rows) // _SLOWEST) if over_ns is None else int((above > over_ns).sum())
        chosen = slowest[: min(slow, MOST)].tolist()
        usual = _by_name(explain(least).hops[place].parts)
        parts = [explain(index).hops[place].parts for index in chosen]
        of_legs.append(
            ProbeLeg(
                name,
                int(legs[least, place]),
                {f"above_{each}": ns for each, ns in times_of(above).items()},
                slow,
                len(chosen),
                int(above[chosen[-1]]) if chosen else 0,
                _causes(parts, usual, above[chosen]),
            )
        )
    longest = np.argsort(-legs.sum(axis=1), kind="stable")[:worst].tolist()
    return ProbePair(
        found[0].host,
        found[0].peer,
        len(rows),
        sum(each.incomplete for each in found),
        sum(each.unrecorded for each in found),
        dict(sum((each.stamps for each in found), Counter())),
        tuple(of_legs),
        tuple(explain(index) for index in longest),
    )


def _by_name(parts: Sequence[WhyPart]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for part in parts:
        sums[part.name] += part.ns
    return sums


def _causes(
    slow: Sequence[Sequence[WhyPart]], usual: Counter[str], above: Nanoseconds
) -> tuple[DelayCause, ...]:
    """The causes of what some legs took ``above`` the least one, whose parts are ``usual``.

    Parts of a name count with what they have more than the least leg has of that name.
    """
    held: Counter[Kind] = Counter()
    ns: dict[Kind, float] = defaultdict(float)
    every: dict[Kind, Counter[Words]] = defaultdict(Counter)
    for parts, excess in zip(slow, above.tolist(), strict=True):
        if not excess:
            continue
        took = _by_name(parts)
        more = {name: max(sum_ - usual[name], 0) for name, sum_ in took.items()}
        whole = sum(more.values())
        for kind, causes in by_kind(parts).items():
            name, _ = kind
            if more[name]:
                every[kind] += causes
                held[kind] += 1
                ns[kind] += excess * (more[name] / whole) * (causes.total() / took[name])
    all_ns = sum(ns.values())
    found = [
        DelayCause(kind[0], str(summed_up(every[kind])), held[kind], round(ns[kind]), of / all_ns)
        for kind, of in ns.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.ns, each.cause)))


def _explained(kernels: Kernels, exchanges: Exchanges, row: int) -> WhyMessage:
    """An exchange's legs, each in parts."""
    sent, came, read, answered, returned, taken = exchanges.at[row].tolist()
    host, peer, repeat = exchanges.host, exchanges.peer, exchanges.repeat
    near, far = kernels.of(repeat, host), kernels.of(repeat, peer)
    assert near is not None and far is not None
    asks, answers = exchanges.threads
    events = [
        f"{host}/clock:probe_sent",
        f"{peer}/clock:probe_received",
        f"{peer}/clock:reply_sent",
        f"{host}/clock:reply_received",
        f"{host}, where it was read",
    ]
    if asks is None or answers is None:
        whose = (
            f"which thread of {host} asks" if asks is None else f"which thread of {peer} answers"
        )
        what = f"it is not known {whose}"
        there = [Part(UNKNOWN, sent, answered, None, None, what=what)]
        back = [Part(UNKNOWN, answered, taken, None, None, what=what)]
    else:
        there = over_way((near, asks, sent), came, (far, answers, read), host)
        if answered > read:
            there += split(far, answers, read, answers, answered)
        back = over_way((far, answers, answered), returned, (near, asks, taken), peer)
    caused: list[Sequence[Caused]] = [
        kernels.caused(repeat, peer, there, (host, peer)),
        kernels.caused(repeat, host, back, (peer, host)),
    ]
    at = [sent, came, answered, returned, taken]
    *errors, err = exchanges.err[row].tolist()
    hops = tuple(
        WhyHop(
            events[leg],
            events[leg + 1],
            at[leg + 1] - at[leg],
            errors[leg],
            fitted(caused[leg // 2], at[leg], at[leg + 1]),
            None,
        )
        for leg in range(len(LEGS))
    )
    return WhyMessage(repeat, int(exchanges.id[row]), taken - sent, err, False, hops)


def over_way(
    sender: tuple[Scheduling, int, int],
    came: int,
    receiver: tuple[Scheduling, int, int],
    host: str,
) -> list[Part]:
    """The parts from a packet's leaving ``host`` until it was read.

    Each end is the kernel, the thread and the instant; the packet came at ``came``, which is a
    stamp of the receiver's kernel and of no thread. What the receiver's thread did before tells of
    the packet only if that one woke it.
    """
    near, asks, sent = sender
    far, reads, read = receiver
    woken = far.woken_after(reads, came)
    if woken is not None and sent < woken <= read:
        if near is far:
            return split(far, asks, sent, reads, read)
        return prefixed(split(far, None, sent, reads, read), f"on its way from {host}")
    parts: list[Part] = []
    at = sent
    if near is far:
        # It carries the packet itself as long as it does not sleep.
        slept = near.sleeps_after(asks, sent)
        at = came if slept is None else min(slept, came)
        parts += split(near, asks, sent, asks, at)
    if at < came:
        parts.append(Part(UNKNOWN, at, came, None, None, what=UNTOLD_WAY))
    return parts + split(far, reads, came, reads, read)
