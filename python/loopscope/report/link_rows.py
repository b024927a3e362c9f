"""Emulated links as rows of text, the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from loopscope.analysis.hop_decomposition_result import SPLIT_TIMES, PartResult, SplitResult
from loopscope.analysis.quantity_text import duration, maximum_error, number
from loopscope.analysis.results import IntervalResult, LinkResult, Results, Share
from loopscope.report.rows import ABSENT, Cell

_EMPTY = Cell("", None)


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    heads: bool = False
    """Whether what follows is of it."""


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str


def tables(results: Results) -> list[Table]:
    """Those that have rows; the last one's note says also of which paths nothing is split."""
    found = [table for table in (_links(results), _splits(results)) if table.rows]
    unsplit = " ".join(path.unsplit for path in results.paths if path.unsplit)
    if found and unsplit:
        found[-1] = replace(found[-1], note=f"{found[-1].note} {unsplit}")
    return found


def _links(results: Results) -> Table:
    """A row for each link that packets came to, for each of its settings.

    Plain wires that dropped nothing are left out.
    """
    shown = {
        (link.sender, link.receiver)
        for link in results.links
        if any(link.asked.values()) or any(link.dropped.values())
    }
    links = [
        link for link in results.links if link.packets and (link.sender, link.receiver) in shown
    ]
    # A column in which there is nothing to see is left out.
    columns = [(head, cell) for head, cell in _COLUMNS if any(map(cell, links))]
    ends = _ends(results.links)
    rows = tuple(
        Row(_link(link, ends, results.repeats), tuple(cell(link) or _ABSENT for _, cell in columns))
        for link in links
    )
    return Table(
        name="links",
        title="Emulated links",
        headings=tuple(head for head, _ in columns),
        rows=rows,
        note="Late is what the mover added to what was due. Shares in brackets are the ends of the "
        "99 % interval; ≠ marks one in which what was asked does not lie.",
    )


def _splits(results: Results) -> Table:
    rows: list[Row] = []
    for path in results.paths:
        for hop in path.hops:
            for split in hop.splits:
                rows += _split(hop, split)
    return Table(
        name="splits",
        title="Where the network's time goes",
        headings=("matched", "not seen", "ambiguous", *SPLIT_TIMES, "clock error"),
        rows=tuple(rows),
        note="The three times of a message add up to its time on the hop. They leave out messages "
        "that were not seen on the link (TCP may put several into one packet), and those whose "
        "number several packets had.",
    )


_ABSENT = Cell(ABSENT, None)


Segment = tuple[int, str, str, int]


def _segment(link: LinkResult) -> Segment:
    return link.repeat, link.sender, link.receiver, link.since_ns


def _ends(links: Sequence[LinkResult]) -> dict[Segment, int]:
    """Ends of each link's settings, in ns since the first measured phase began.

    Those of the last ones, which held until the end, are left out.
    """
    ordered = sorted(map(_segment, links))
    return {each: after[3] for each, after in pairwise(ordered) if each[:3] == after[:3]}


def _link(link: LinkResult, ends: Mapping[Segment, int], repeats: int) -> str:
    since = f" from {duration(link.since_ns)}" if link.since_ns > 0 else ""
    end = ends.get(_segment(link))
    until = f" until {duration(end)}" if end is not None else ""
    repeat = f" repeat {link.repeat}" if repeats > 1 else ""
    return f"{link.sender} → {link.receiver}{since}{until}{repeat}"


def _split(hop: IntervalResult, split: SplitResult) -> list[Row]:
    counts = (split.matched, split.unseen, split.ambiguous)
    cells = (*(Cell(number(n), n) for n in counts), *[_EMPTY] * (len(SPLIT_TIMES) + 1))
    parts = {
        "before the link": split.before,
        f"on {split.sender} → {split.receiver}": split.emulated,
        "after the link": split.after,
    }
    rows = [Row(f"    {name}", _part(part)) for name, part in parts.items()]
    return [Row(f"  {hop.first} → {hop.last}", cells, heads=True), *rows]


def _part(part: PartResult) -> tuple[Cell, ...]:
    times = (_time(part.times[name]) for name in SPLIT_TIMES)
    err = part.err_ns
    width = _ABSENT if err is None else Cell(maximum_error(err), err)
    return (_EMPTY, _EMPTY, _EMPTY, *times, width)


def _time(ns: float | None) -> Cell:
    return _ABSENT if ns is None else Cell(duration(ns), ns)


def _share(share: Share) -> Cell | None:
    """`1.02 % (0.94 to 1.11)`; where nobody asked and there is none, nothing."""
    if not share.found and (not share.asked or not share.of):
        return None
    if share.low is None or share.high is None:
        return Cell(number(share.found), share.found)
    part = share.found / share.of
    text = f"{part:.3%} ({share.low * 100:.3f} to {share.high * 100:.3f})".replace("%", " %")
    return Cell(("≠ " if share.inside is False else "") + text, part)


def _asked(share: Share) -> Cell | None:
    return Cell(f"{share.asked * 100:.4g} %", share.asked) if share.asked else None


def _rate(bits_per_s: float | None) -> Cell | None:
    if bits_per_s is None:
        return None
    scale, unit = next(u for u in _RATES if bits_per_s >= u[0] or u[0] == 1)
    return Cell(f"{bits_per_s / scale:.4g} {unit}", bits_per_s)


_RATES = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s"))


def _some(ns: float | None) -> Cell | None:
    return None if ns is None else _time(ns)


def _dropped(link: LinkResult) -> Cell | None:
    """Cell with the drops of other causes than the loss that was asked for."""
    others = {reason: n for reason, n in link.dropped.items() if n and reason != "loss"}
    text = ", ".join(f"{reason} {number(n)}" for reason, n in others.items())
    return Cell(text, sum(others.values())) if others else None


def _count(n: int) -> Cell | None:
    return Cell(number(n), n) if n else None


_COLUMNS: Sequence[tuple[str, Callable[[LinkResult], Cell | None]]] = (
    ("packets", lambda link: Cell(number(link.packets), link.packets)),
    ("delay asked", lambda link: _some(link.asked_delay_ns)),
    ("mean", lambda link: _some(link.delay["mean"])),
    ("late p50", lambda link: _some(link.late["p50"])),
    ("late p99", lambda link: _some(link.late["p99"])),
    ("deviation asked", lambda link: _some(link.asked_deviation_ns)),
    (
        "deviation",
        lambda link: None if link.asked_deviation_ns is None else _some(link.delay["deviation"]),
    ),
    ("loss asked", lambda link: _asked(link.lost)),
    ("loss", lambda link: _share(link.lost)),
    ("dupl. asked", lambda link: _asked(link.duplicated)),
    ("dupl.", lambda link: _share(link.duplicated)),
    ("corrupt asked", lambda link: _asked(link.corrupted)),
    ("corrupt", lambda link: _share(link.corrupted)),
    ("reordered", lambda link: _count(link.reordered)),
    ("rate asked", lambda link: _rate(link.asked_rate_bps)),
    ("rate", lambda link: _rate(link.rate_bps) if link.asked_rate_bps else None),
    ("dropped", _dropped),
    ("waiting", lambda link: _count(link.queued)),
)
