"""Least and greatest over spans, and onto what lies in them, against plain loops."""

import random

import numpy as np
import pytest

from loopscope.analysis.fan_in import Spans

NOTHING = {np.minimum: 10**6, np.maximum: -1}
PLAIN = {np.minimum: min, np.maximum: max}


@pytest.mark.parametrize("reduce", [np.minimum, np.maximum], ids=["least", "greatest"])
@pytest.mark.parametrize("seed", range(8))
def test_spans_of_any_length(seed, reduce):
    chance = random.Random(seed)
    size, users = chance.choice([(1, 3), (5, 9), (70, 40), (64, 64)])
    spans = []
    for _ in range(users):
        start = chance.randint(0, size)
        spans.append((start, chance.randint(start, size)))
    spans[0] = (0, size)
    made = Spans(np.array([a for a, _ in spans]), np.array([b for _, b in spans]))
    values = [chance.randint(0, 99) for _ in range(size)]
    over = made.over(np.array(values), reduce, NOTHING[reduce])
    pick = PLAIN[reduce]
    assert over.tolist() == [pick(values[a:b], default=NOTHING[reduce]) for a, b in spans]
    theirs = [chance.randint(0, 99) for _ in range(users)]
    onto = made.onto(np.array(theirs), size, reduce, NOTHING[reduce])
    assert onto.tolist() == [
        pick(
            (theirs[i] for i, (a, b) in enumerate(spans) if a <= place < b), default=NOTHING[reduce]
        )
        for place in range(size)
    ]
    assert made.empty.tolist() == [a == b for a, b in spans]


def test_nothing_is_in_no_span():
    nothing = np.empty(0, np.int64)
    spans = Spans(np.zeros(2, np.int64), np.zeros(2, np.int64))
    assert spans.over(nothing, np.minimum, 7).tolist() == [7, 7]
    assert Spans(nothing, nothing).onto(nothing, 3, np.maximum, -1).tolist() == [-1, -1, -1]
