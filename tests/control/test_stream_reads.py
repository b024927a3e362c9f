"""The reads that had the last bytes of calls, against streams that are made by chance."""

from __future__ import annotations

import random

import pytest

from loopscope.control.stream_reads import Call, Read, written

NEAR, FAR = "10.77.0.1:4000", "10.77.0.2:7002"
WRITER, READER = (100, ("h1", 1), (NEAR, FAR)), (200, ("h2", 1), (FAR, NEAR))
"""Socket, network and ends."""


@pytest.mark.parametrize("seed", range(100))
def test_each_call_is_read_by_the_one_that_came_to_its_end(seed: int) -> None:
    """Also past 2**32, in calls that copy piece by piece, and in reads that stop anywhere."""
    drawn = random.Random(seed)
    first = at = drawn.choice([7, (1 << 32) - 5_000, drawn.randrange(1 << 32)])
    calls, ends = [], []
    for number in range(drawn.randint(1, 200)):
        left = length = drawn.choice([1, 8, 100, 300_000])
        while left:
            calls.append(Call(*WRITER, at % (1 << 32), left, number))
            copied = min(left, drawn.choice([left, 60_000]))
            at += copied
            left -= copied
        ends.append((at, length))
    reads, upto, last = [], first, at - drawn.choice([0, 0, 50])
    while upto < last:
        upto = min(upto + drawn.choice([1, 50, 1_000, 200_000]), last)
        reads.append(Read(*READER, upto % (1 << 32), upto))
    found = list(written(calls, reads))
    assert [each.call.bytes for each in found] == [length for _, length in ends]
    assert [(each.place, each.call.what) for each in found] == [(n, n) for n in range(len(ends))]
    stops = [read.what for read in reads]
    for each, (end, _) in zip(found, ends, strict=True):
        read = next((stop for stop in stops if stop >= end), None)
        assert each.known and (each.read.what if each.read else None) == read


def test_who_reads_is_not_known_where_several_sockets_may_be_the_other_end() -> None:
    calls = [Call(*WRITER, 0, 10)]
    read = Read(*READER, 10)
    (known,) = written(calls, [read])
    assert known.read == read
    for other in ({"socket": 201}, {"network": ("h3", 1)}):
        (found,) = written(calls, [read, read._replace(**other)])
        assert found.read is None and not found.known
    # The same addresses again, by another socket of the writer's.
    again = [*calls, calls[0]._replace(socket=101)]
    assert [each.known for each in written(again, [read])] == [False, False]
    # Nobody read, which is known.
    (found,) = written(calls, [])
    assert found.read is None and found.known
    # On loopback both ends are in the same network.
    (found,) = written(calls, [read._replace(network=("h1", 1))])
    assert found.read is not None
