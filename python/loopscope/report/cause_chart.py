"""What held single messages, and messages by how long they took: what the page shows of causes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.cause_words import by_kind, summed_up
from loopscope.analysis.quantity_text import duration, maximum_error, number
from loopscope.analysis.recorded_kernels import has_events
from loopscope.analysis.why import slowest, why
from loopscope.report.axis import Axis, unit_of
from loopscope.report.chart import Bars, Chart, Panel
from loopscope.report.waterfall import usual_rows, with_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loopscope.analysis.messages import Messages
    from loopscope.analysis.why import WhyMessage
    from loopscope.report.chart import Row
    from loopscope.timeline import Run

COLOURS = {
    "running": "#2b8cc4",
    "runnable": "#d55e00",
    "wake-up": "#e69f00",
    "throttled": "#7b4f2a",
    "blocked": "#cc79a7",
    "interrupt": "#b0307a",
    "softirq": "#56b4e9",
    "pending": "#009e73",
    "held": "#882255",
    "network": "#44aa99",
    "wire": "#ddcc77",
    "link": "#999933",
    "ring": "#b3de69",
    "late": "#661100",
    "send": "#332288",
    "unknown": "#808080",
}
"""By name of the part."""
CAPTION = (
    "The messages of the median, the p99 and the greatest response time, each hop in the "
    "parts that held it. Under the pointer: the cause. loopscope why RUN prints them, "
    "loopscope why RUN --rank which cause made most messages late."
)
BANDS = ((0.0, 0.5), (0.5, 0.9), (0.9, 0.99), (0.99, 1.0))
"""Bands of messages by how long they took, as quantiles."""
_EXPLAINED = 40
"""Messages of a band that are explained."""


def of_path(run: Run, messages: Messages) -> tuple[Chart | None, list[tuple[str, ...]]] | None:
    """`usual_causes`, and where the time goes: a row for each band of messages by their times.

    At most `_EXPLAINED` messages of each band, evenly spaced, are explained. Counts of threads do
    not tell where a part was, so there is no chart of them. None where no message arrived. Raises
    `RunError`.
    """
    usual = usual_rows(messages, None)
    if not usual:
        return None
    if not has_events(run):
        usual = []
    of_bands = list(_of_bands(messages))
    rows = sorted({row for _, row in usual}.union(*(rows for *_, rows in of_bands)))
    found = dict(zip(rows, why(run, messages, rows), strict=True))
    table = [_band(name, [found[row] for row in rows], count) for name, count, rows in of_bands]
    drawn = _panels(messages, usual, [found[row] for _, row in usual]) if usual else None
    return drawn, table


def usual_causes(run: Run, messages: Messages, repeat: int | None = None) -> Chart | None:
    """A panel for each of the usual messages; None where none arrived. Raises `RunError`."""
    chosen = usual_rows(messages, repeat)
    return _explained(run, messages, chosen) if chosen else None


def named_causes(run: Run, messages: Messages, key: str, repeat: int | None) -> Chart:
    """A panel for the message with this key in each repeat, or in one.

    Raises `FigureError` where there is none, and `RunError`.
    """
    rows = np.flatnonzero(with_key(messages, key, repeat)).tolist()
    return _explained(run, messages, [("", row) for row in rows])


def _explained(run: Run, messages: Messages, chosen: Sequence[tuple[str, int]]) -> Chart:
    return _panels(messages, chosen, why(run, messages, [row for _, row in chosen]))


def _panels(
    messages: Messages, chosen: Sequence[tuple[str, int]], found: Sequence[WhyMessage]
) -> Chart:
    starts = [
        {str(messages.path.events[first]): int(messages.ts[first][row] - messages.ts[0][row])
         for first, _ in messages.path.hops}
        for _, row in chosen
    ]  # fmt: skip
    names = [what for what, _ in chosen]
    return chart(list(zip(names, found, starts, strict=True)))


def chart(messages: Sequence[tuple[str, WhyMessage, dict[str, int]]]) -> Chart:
    """A panel for each message, a lane for each hop; `starts` of hops by their first event, ns."""
    panels = [_panel(*each) for each in messages]
    most = max(len(message.hops) for _, message, _ in messages)
    beside = min(3, len(panels))
    return Chart(tuple(panels), caption=CAPTION, rows=rows(messages), columns=(beside, beside, 1),
                 inches=(0, 0.7 + 0.27 * max(2, most)), pixels=150 + 28 * most,
                 legend="above")  # fmt: skip


def rows(messages: Iterable[tuple[str, WhyMessage, dict[str, int]]]) -> Iterator[Row]:
    """The lines of the CSV, the heading first."""
    yield ("of", "repeat", "id", "from", "to", "part", "start (ns)", "time (ns)", "cause")
    for what, message, starts in messages:
        for hop in message.hops:
            at = starts[hop.first]
            for part in hop.parts:
                of = (what, message.repeat, message.id, hop.first, hop.last)
                yield [*of, part.name, at, part.ns, part.cause]
                at += part.ns


def _panel(what: str, message: WhyMessage, starts: dict[str, int]) -> Panel:
    whole = max(sum(hop.ns for hop in message.hops), 1)
    scale, unit = unit_of(whole)
    found: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    for lane, hop in enumerate(message.hops):
        at = starts[hop.first]
        for part in hop.parts:
            found[part.name].append((lane, at, part.ns, part.told()))
            at += part.ns
        if hop.unknown is not None:
            found["unknown"].append((lane, at, hop.ns, hop.unknown))
    bars = [
        Bars(
            lanes=[lane for lane, *_ in found[name]],
            start=np.array([start for _, start, *_ in found[name]], dtype=np.float64),
            length=np.array([length for *_, length, _ in found[name]], dtype=np.float64),
            half_width=None,
            colour=colour,
            label=name,
            # They would be on each other's bars.
            texts=[""] * len(found[name]),
            details=[f"{name}: {cause}" for *_, cause in found[name]],
        )
        for name, colour in COLOURS.items()
        if name in found
    ]
    took = "lost" if message.lost else f"{duration(message.ns)} {maximum_error(message.err_ns)}"
    which = f"{what}: " if what else ""
    which += f"message {message.id}, {took}"
    lanes = tuple(f"{hop.first} → {hop.last}" for hop in message.hops)
    return Panel(
        Axis("time since it set out", "ns", scale, unit, from_zero="zero"),
        Axis("", "", 1, "", categories=lanes),
        tuple(bars),
        which if message.repeat == 1 else f"{which}, repeat {number(message.repeat)}",
    )


def band_headings() -> list[str]:
    return ["messages", "explained", "mean time", "where the time goes", "longest cause"]


def _of_bands(messages: Messages) -> Iterator[tuple[str, int, list[int]]]:
    """Yields of each band the name, the number of its messages, and the rows to explain."""
    order = slowest(messages, messages.path.loop)[::-1]
    for low, high in BANDS:
        of_band = order[round(low * len(order)) : round(high * len(order))]
        if len(of_band):
            spaced = np.arange(_EXPLAINED) * (len(of_band) - 1) // (_EXPLAINED - 1)
            yield _band_name(low, high), len(of_band), of_band[np.unique(spaced)].tolist()


def _band_name(low: float, high: float) -> str:
    last = "slowest" if high == 1 else f"p{100 * high:g}"
    return f"{'fastest' if low == 0 else f'p{100 * low:g}'} to {last}"


def _band(name: str, messages: Sequence[WhyMessage], count: int) -> tuple[str, ...]:
    by_name: Counter[str] = Counter()
    causes = by_kind(part for message in messages for part in message.parts())
    for (part, _), held in causes.items():
        by_name[part] += held.total()
    total = sum(by_name.values())
    shares = (
        f"{part} {duration(ns / len(messages))} ({100 * ns / total:.0f} %)"
        for part, ns in by_name.most_common()
        if ns >= 0.01 * total
    )
    longest = max(causes, key=lambda kind: causes[kind].total(), default=None)
    cause = "" if longest is None else f"{longest[0]}: {summed_up(causes[longest])}"
    mean = sum(message.ns for message in messages) / len(messages)
    explained = f"{number(len(messages))} of {number(count)}"
    return name, explained, duration(mean), ", ".join(shares), cause
