"""What the clocks of few and of many hosts come to in a line."""

from __future__ import annotations

from dataclasses import replace

from loopscope.analysis.results import ClockResult
from loopscope.report.rows import MOST_CLOCKS, clock_texts

REFERENCE = ClockResult("h1", 0, True, 100, 0, None)


def clocks(count):
    """The reference and followers whose errors are 1001, 1002, … ns."""
    follower = replace(REFERENCE, reference=False)
    others = (replace(follower, host=f"h{n}", max_err_ns=999 + n) for n in range(2, count + 1))
    return [REFERENCE, *others]


def test_few_hosts_are_listed():
    texts = clock_texts(clocks(MOST_CLOCKS))
    assert len(texts) == MOST_CLOCKS and texts[0] == "h1 reference"
    assert texts[1] == "h2 ± 1.1 µs"


def test_of_many_hosts_the_widest_is_named_and_none_is_left_out():
    many = clocks(300)
    many[7] = replace(many[7], max_err_ns=98_000, rejected=5)
    many[9] = replace(many[9], max_err_ns=None, rejected=2)
    many[11] = replace(many[11], max_err_ns=None)
    assert clock_texts(many) == [
        "h1 reference",
        "297 others ± 1.1 µs to ± 98 µs (h8)",
        "error unknown of h10 and 1 more",
        "7 messages of probes rejected",
    ]
