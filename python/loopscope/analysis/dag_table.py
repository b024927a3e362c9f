"""`tables/path-<name>.parquet` of a branching path: a row for each message of its ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from loopscope.analysis.message_dag import NEVER
from loopscope.analysis.path_table import ROWS, write_table

if TYPE_CHECKING:
    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.keys import Keys
    from loopscope.analysis.message_dag import Mask, MessageDag, Origins, RepeatDag, Uses
    from loopscope.analysis.occurrences import Integers, Places
    from loopscope.timeline import Run


def write_dag_table(run: Run, messages: MessageDag) -> None:
    """The table of each repeat. Raises `RunError` where a file cannot be written."""
    path = messages.path
    keys = [messages.keys_at(event) for event in range(len(path.events))]
    for repeat, graph in messages.repeats.items():
        pieces = [piece for sink in path.sinks for piece in _pieces(repeat, graph, sink, keys)]
        write_table(run, repeat, path.name, pieces)


def _pieces(
    repeat: int, graph: RepeatDag, sink: int, keys: Sequence[Keys]
) -> list[partial[dict[str, pa.Array]]]:
    """Rows of one sink, as columns in pieces."""
    kept = graph.kept(sink)
    origins = graph.all_origins(sink)
    sources = [source for source, end in graph.path.ends if end == sink]
    firsts = {source: graph.uses(source, sink) for source in sources}
    starts = range(kept.start, kept.stop, ROWS) or [kept.start]
    return [
        partial(
            _rows, repeat, graph, sink, origins, firsts, slice(a, min(a + ROWS, kept.stop)), keys
        )
        for a in starts
    ]


def _rows(
    repeat: int,
    graph: RepeatDag,
    sink: int,
    origins: Mapping[int, Origins],
    uses: Mapping[int, Uses],
    rows: slice,
    keys: Sequence[Keys],
) -> dict[str, pa.Array]:
    path, end = graph.path, np.arange(rows.start, rows.stop)
    size = len(end)
    columns = {
        "repeat": pa.array(np.full(size, repeat, np.int32)),
        "sink": pa.array([str(path.events[sink])] * size, pa.string()),
    }
    places = {event: found.oldest[rows] for event, found in origins.items()} | {sink: end}
    nothing = np.full(size, NEVER)
    for event, messages in enumerate(graph.messages):
        place = places.get(event, nothing)
        columns[f"key_{event}"] = numbers = _taken(messages.id, place)
        values = keys[event].column(numbers)
        if values is not None:
            columns[f"key_value_{event}"] = values
        columns[f"ts_{event}"] = _taken(messages.ts, place)
        columns[f"err_{event}"] = _taken(messages.err, place)
    for number, edge in enumerate(path.edges):
        place = places.get(edge.end, nothing) if edge.start in places else nothing
        there = place != NEVER
        length, width = np.zeros(size, np.int64), np.zeros(size, np.int64)
        made = there.copy()
        length[there], width[there], made[there] = graph.hop(number, place[there])
        name = f"{edge.start}_{edge.end}"
        columns[f"hop_{name}"] = pa.array(length, mask=~made)
        columns[f"hop_err_{name}"] = pa.array(width, mask=~made)
        if edge.use == "window":
            spans = graph.links[number].sure
            columns[f"n_{name}"] = _taken(spans.stop - spans.start, np.where(made, place, NEVER))
    age, age_err, known, first = _oldest_data(graph, sink, origins, uses, rows)
    columns |= {
        "latency": pa.array(age, mask=~(known & first)),
        "latency_err": pa.array(age_err, mask=~(known & first)),
        "age": pa.array(age, mask=~known),
        "age_err": pa.array(age_err, mask=~known),
        "undecided": pa.array(np.any([origins[each].undecided[rows] for each in uses], axis=0)),
    }
    return columns


def _oldest_data(
    graph: RepeatDag,
    sink: int,
    origins: Mapping[int, Origins],
    uses: Mapping[int, Uses],
    rows: slice,
) -> tuple[Nanoseconds, Nanoseconds, Mask, Mask]:
    """The age of the oldest data of any source in each message of a sink, and its maximum error.

    The masks say whether the age is known, and whether this was the first use of that data.
    """
    end = np.arange(rows.start, rows.stop)
    age, width = np.zeros(len(end), np.int64), np.zeros(len(end), np.int64)
    known, first = np.zeros(len(end), np.bool_), np.zeros(len(end), np.bool_)
    for source, use in uses.items():
        oldest = origins[source].oldest[rows]
        at = np.flatnonzero(oldest != NEVER)
        length = graph.messages[sink].ts[end[at]] - graph.messages[source].ts[oldest[at]]
        older = ~known[at] | (length > age[at])
        here, length = at[older], length[older]
        start = oldest[here]
        age[here], known[here] = length, True
        width[here] = graph.width(source, start, sink, end[here], length)
        first[here] = (use.first[start] == end[here]) & (use.perhaps[start] == end[here])
    # Where one source's data is not known it may have been the oldest.
    known &= ~np.any([origins[each].undecided[rows] for each in uses], axis=0)
    return age, width, known, first


def _taken(values: Integers, place: Places) -> pa.Array:
    """The values at places, null where there is none."""
    there = place != NEVER
    found = np.zeros(len(place), np.int64)
    found[there] = values[place[there]]
    return pa.array(found, mask=~there)
