"""The way of an event's messages to a later event of a branching path, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from loopscope.analysis.message_dag import NEVER
from loopscope.analysis.quantity_text import UNKNOWN_NS

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.message_dag import MessageDag, RepeatDag

    Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sent:
    """The messages of the earlier event, in the order of repeats and time."""

    repeat: npt.NDArray[np.int32]
    id: npt.NDArray[np.int64]
    ts: Nanoseconds
    err: Nanoseconds
    fate: npt.NDArray[np.int8]
    length: Nanoseconds
    """To the first use, 0 where there surely was none."""
    width: Nanoseconds
    """Its maximum error."""


@dataclass(frozen=True)
class Used:
    """The messages of the later event, in the order of repeats and time."""

    repeat: npt.NDArray[np.int32]
    id: npt.NDArray[np.int64]
    ts: Nanoseconds
    err: Nanoseconds
    host: npt.NDArray[np.int16]
    counter: npt.NDArray[np.void]
    times: npt.NDArray[np.int32]
    """Number of occurrences of each."""
    undecided: Mask
    """Those of which the clock leaves open what they used."""
    made: Mask
    """Those that surely used something."""
    age: Nanoseconds
    """Age of the oldest data that they used, ns; `UNKNOWN_NS` where they are not `made`."""
    width: Nanoseconds
    """Its maximum error."""


Columns = TypeVar("Columns", Sent, Used)


def chosen(columns: Columns, rows: Mask) -> Columns:
    """Some of the messages."""
    return replace(columns, **{name: values[rows] for name, values in _arrays(columns).items()})


def flow(graph: MessageDag, ends: tuple[int, int]) -> tuple[Sent, Used]:
    """The messages sent and used between two events in all repeats, after their warm-ups."""
    parts = [flow_of_repeat(each, repeat, ends) for repeat, each in graph.repeats.items()]
    return _joined([sent for sent, _ in parts]), _joined([used for _, used in parts])


def flow_of_repeat(graph: RepeatDag, repeat: int, ends: tuple[int, int]) -> tuple[Sent, Used]:
    """The messages sent and used between two events in one repeat, after its warm-up."""
    first, last = ends
    a, b = graph.messages[first], graph.messages[last]
    here, there = graph.kept(first), graph.kept(last)
    uses, origins = graph.uses(first, last), graph.origins(first, last)
    reached = uses.first[here] != NEVER
    start = np.flatnonzero(reached) + here.start
    end = uses.first[start]
    length, width = np.zeros((2, len(reached)), np.int64)
    length[reached] = b.ts[end] - a.ts[start]
    # An earlier use that is open makes it shorter.
    width[reached] = graph.width(first, start, last, end, length[reached])
    width[reached] += b.ts[end] - b.ts[uses.perhaps[start]]
    sent = Sent(
        repeat=np.full(len(reached), repeat, np.int32),
        id=a.id[here],
        ts=a.ts[here],
        err=a.err[here],
        fate=uses.fate[here],
        length=length,
        width=width,
    )
    made = origins.oldest[there] != NEVER
    user = np.flatnonzero(made) + there.start
    oldest = origins.oldest[user]
    age, spread = np.full((2, len(made)), UNKNOWN_NS)
    age[made] = b.ts[user] - a.ts[oldest]
    spread[made] = graph.width(first, oldest, last, user, age[made])
    used = Used(
        repeat=np.full(len(made), repeat, np.int32),
        id=b.id[there],
        ts=b.ts[there],
        err=b.err[there],
        host=b.host[there],
        counter=graph.counters[b.host[there]],
        times=b.times[there],
        undecided=origins.undecided[there],
        made=made,
        age=age,
        width=spread,
    )
    return sent, used


def _joined(parts: Sequence[Columns]) -> Columns:
    columns = [_arrays(part) for part in parts]
    joined = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    return replace(parts[0], **joined)


def _arrays(columns: Sent | Used) -> dict[str, npt.NDArray[Any]]:
    return {each.name: getattr(columns, each.name) for each in fields(columns)}
