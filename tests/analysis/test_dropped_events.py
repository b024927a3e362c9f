"""However the trace drops events, a verdict is the true one or UNKNOWN."""

import json
import tempfile
from collections import Counter
from pathlib import Path as FilePath

from effort import SOAK, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import Row, SyntheticRun, event, expectation, path

from loopscope.analysis import Verdict, analyse
from loopscope.timeline import open_run

EVENTS = [("a", "io", "out"), ("b", "io", "in"), ("c", "io", "in")]
LOOP = path("loop", "id", [event(*each) for each in EVENTS])
LIMITS = {"count": (1, 2, 3, 5), "lost": (0, 1), "min": (2, 12), "p50": (5, 15), "max": (8, 25)}
EXPECTATIONS = [
    expectation(f"{hop} {stat} {op} {value}", stat, op, value, hop, stat not in COUNTS)
    for COUNTS in [("count", "lost")]
    for hop in (None, 0, 1)
    for stat, values in LIMITS.items()
    for value in values
    for op in ("<", ">=", "==")
]
MESSAGE = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 3))
"""The time of each hop, and how many events the message reaches."""


def verdicts(rows, drops):
    with tempfile.TemporaryDirectory() as folder:
        made = SyntheticRun(FilePath(folder), rows, components="abc", drops=drops)
        results = analyse(open_run(made.write()), [LOOP], EXPECTATIONS)
    return {each.text: each.verdict for each in results.expectations}


@settings(max_examples=cases(12, 300), deadline=None, derandomize=not SOAK)
@given(st.data(), st.lists(MESSAGE, min_size=1, max_size=8))
def test_no_verdict_is_wrong(data, messages):
    rows = []
    for message, (first, second, reached) in enumerate(messages):
        stamps = (0, first, first + second)
        for (component, group, name), ts in list(zip(EVENTS, stamps, strict=False))[:reached]:
            rows.append(Row(component, f"{group}:{name}", message, 100 * message + ts))
    droppable = data.draw(st.sets(st.sampled_from("abc"), min_size=1))
    dropped = {row for row in rows if row.component in droppable and data.draw(st.booleans())}
    recorded = [row for row in rows if row not in dropped]
    drops = Counter((row.component, row.entity) for row in dropped)

    truth, found = verdicts(rows, {}), verdicts(recorded, drops)
    for text, verdict in found.items():
        assert verdict in (truth[text], Verdict.UNKNOWN), text


def test_an_account_that_is_not_whole_decides_nothing():
    """A recorder could not read all of one process: what it counted is all that is known of it."""
    rows = [
        Row(component, f"{group}:{name}", message, 100 * message + hop)
        for message in range(5)
        for hop, (component, group, name) in enumerate(EVENTS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        run = SyntheticRun(FilePath(folder), rows, components="abc").write()
        lost = [each for each in EXPECTATIONS if each.text == "None lost == 0"]
        assert analyse(open_run(run), [LOOP], lost).expectations[0].verdict is Verdict.PASS
        for file in FilePath(folder).rglob("loss.json"):
            account = json.loads(file.read_text())
            for process in account["processes"]:
                if process["process"] == "a":
                    process["unknown"] = ["ring-0-0-1: its file was cut short"]
            file.write_text(json.dumps(account))
        results = analyse(open_run(run), [LOOP], lost)
        assert results.expectations[0].verdict is Verdict.UNKNOWN
