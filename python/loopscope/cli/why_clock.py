"""``loopscope why --clock``: what delayed the clocks' probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopscope.cli.explained import explained
from loopscope.cli.text_table import printable_lines, text_table
from loopscope.strict_json import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopscope.analysis.probe_delays import ProbeLeg, ProbePair
    from loopscope.timeline import Run

CAUSES = 3
"""Causes of each leg that are listed."""


def of_probes(run: Run, over_ns: int | None, worst: int | None, as_json: bool) -> Iterator[str]:
    """The lines about the exchanges of each pair of hosts, or a JSON object for each."""
    from loopscope.analysis.probe_delays import why_probes

    for pair in why_probes(run, over_ns, worst or 0):
        if as_json:
            yield to_json(pair.to_dict(), ensure_ascii=False)
            continue
        for line in _of_pair(pair):
            yield "\n".join(printable_lines(line))


def _of_pair(pair: ProbePair) -> Iterator[str]:
    from loopscope.analysis.quantity_text import number

    yield f"{pair.host} asks {pair.peer}: {number(pair.exchanges)} exchanges{_left_out(pair)}"
    if not pair.exchanges:
        yield ""
        return
    stamps = (f"{number(count)} by the {by}" for by, count in pair.stamps.items())
    yield f"stamps: {', '.join(stamps)}"
    yield ""
    yield from _of_legs(pair)
    yield ""
    for leg in pair.legs:
        yield from _of_causes(leg)
    yield ""
    for each in pair.worst:
        yield from explained(f"{pair.host} → {pair.peer} → {pair.host}", each, "exchange")


def _left_out(pair: ProbePair) -> str:
    from loopscope.analysis.quantity_text import number

    counts = {
        "while a kernel was not recorded": pair.unrecorded,
        "without all stamps": pair.incomplete,
    }
    texts = [f"{number(count)} {why}" for why, count in counts.items() if count]
    return f"; left out: {', '.join(texts)}" if texts else ""


def _of_legs(pair: ProbePair) -> Iterator[str]:
    from loopscope.analysis.quantity_text import duration

    there, back = f"{pair.host} → {pair.peer}", f"{pair.peer} → {pair.host}"
    where = (there, f"in {pair.peer}", back, f"in {pair.host}")
    rows = [
        (leg.name, place, duration(leg.least_ns), *map(duration, leg.times.values()))
        for leg, place in zip(pair.legs, where, strict=True)
    ]
    names = ("leg", "", "least", "above it: median", "p99", "greatest")
    yield from text_table(names, (False, False, True, True, True, True), rows)


def _of_causes(leg: ProbeLeg) -> Iterator[str]:
    from loopscope.analysis.quantity_text import duration, number

    if not leg.explained:
        yield f"{leg.name}: none took so long"
        return
    count = f"{number(leg.explained)} slowest" if leg.explained > 1 else "slowest"
    of_them = "" if leg.explained == leg.slow else f" of {number(leg.slow)}"
    above = f"{duration(leg.slow_above_ns)} or more above the least"
    yield f"{leg.name}, the {count}{of_them}, {above}:"
    for cause in leg.causes[:CAUSES]:
        yield f"  {100 * cause.share:>3.0f} %  {cause.name}: {cause.cause}"
    rest = leg.causes[CAUSES:]
    if rest:
        yield f"  {100 * sum(each.share for each in rest):>3.0f} %  {len(rest)} more, see --json"
