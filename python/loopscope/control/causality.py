"""Messages of the programs themselves, as bounds on clocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loopscope import layout
from loopscope.experiment import Experiment, PathEvent
from loopscope.experiment.measures import fields_of

Bounds = dict[str, list[tuple[bool, int, int]]]
"""Bounds by follower: whether it sent the message, its own counter, the reference's."""


def messages_of(experiment: Experiment, made: Path) -> Bounds:
    """The messages between a follower and the reference of the paths of ``clock.messages``.

    They are told by their keys, from the folder in which a repeat's time line was made.

    A key that occurs twice at one end is left out: which of them belongs to which is not known.
    """
    reference = experiment.hosts[0]
    bounds: Bounds = {}
    for path in experiment.paths:
        if path.name not in experiment.clock.messages:
            continue
        for first, last in path.hops:
            sender, receiver = path.events[first], path.events[last]
            if (sender.host == reference) == (receiver.host == reference):
                continue
            fields = fields_of(path.key)
            sent, came = (_counters(made, event, fields) for event in (sender, receiver))
            both = sent.join(came, "key", join_type="inner", right_suffix="_there")
            both = both.sort_by("counter")
            columns = both["counter"].to_pylist(), both["counter_there"].to_pylist()
            follows = receiver.host == reference
            follower = sender.host if follows else receiver.host
            own, others = columns if follows else columns[::-1]
            found = bounds.setdefault(follower, [])
            found += [(follows, at, there) for at, there in zip(own, others, strict=True)]
    return bounds


def _counters(made: Path, event: PathEvent, fields: Sequence[str]) -> pa.Table:
    """``key``, a text, and ``counter`` of each message that was seen once."""
    tables = [
        pq.read_table(file, columns=[*{"process", "counter", *fields}])
        for file in sorted(layout.event_files(made, event.group, event.name))
    ]
    if not tables:
        return pa.table({"key": pa.array([], pa.string()), "counter": pa.array([], pa.uint64())})
    table = pa.concat_tables(tables)
    # What other tools recorded has no counter, and bounds nothing.
    known = pc.and_(pc.equal(table["process"], event.component), pc.is_valid(table["counter"]))
    for field in fields:
        known = pc.and_(known, pc.is_valid(table[field]))
    table = table.filter(known)
    # Numbers of all widths and signs compare as texts; bytes do by their digits.
    parts = [_text(table[field]) for field in fields]
    key = pc.binary_join_element_wise(*parts, "\0")
    keyed = pa.table({"key": key, "counter": table["counter"]})
    grouped = keyed.group_by("key").aggregate([("counter", "min"), ("counter", "count")])
    once = grouped.filter(pc.equal(grouped["counter_count"], 1))
    return pa.table({"key": once["key"], "counter": once["counter_min"]})


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type):
        return pa.chunked_array([[each.as_py().hex() for each in column]], pa.string())
    return column.cast(pa.string())
