"""Single messages hop by hop: what the waterfall shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.bounded_statistics import nearest_rank, quantile
from loopscope.analysis.quantity_text import UNKNOWN_NS, duration, maximum_error, number
from loopscope.report.axis import Axis, unit_of
from loopscope.report.chart import Bars, Chart, Panel
from loopscope.report.palette import BLUE, ORANGE
from loopscope.report.samples import FigureError

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.keys import Keys
    from loopscope.analysis.messages import Messages
    from loopscope.experiment import MessagePath

USUAL = ("p50", "p99", "max")
"""The messages that are shown where none is named: by nearest rank of their time."""
_COMPARED = 10_000
"""Largest number of keys that are compared with one that is not there."""
UNKNOWN = "±?"
"""Stands at a hop of which no maximum error is known."""
WHISKERS = f"Whiskers: maximum error of each time, {UNKNOWN} where it is unknown."
CAPTION = (
    "The messages of the median, the p99 and the greatest response time, hop by hop. "
    f"{WHISKERS} loopscope figure RUN waterfall --message KEY draws any other."
)
GRAPH_CAPTION = (
    "The messages of the median, the p99 and the greatest time to the last of the ends that they "
    "reached, each with the edges over which it came to its first uses. "
    f"{WHISKERS} loopscope figure RUN waterfall --message KEY draws any other, 'PATH[EVENT -> "
    "EVENT]' those of one end."
)
KINDS = ((True, "between hosts", BLUE), (False, "on one host", ORANGE))


@dataclass(frozen=True)
class Step:
    """A hop that a message has made, in ns since it set out."""

    first: str
    last: str
    between_hosts: bool
    start: int
    length: int
    err: int | None
    """Maximum error of the length; None where unknown."""

    @property
    def label(self) -> str:
        return f"{self.first} → {self.last}"


@dataclass(frozen=True)
class Fall:
    what: str
    """`p99`, or empty where the message was named."""
    repeat: int
    id: int | str
    """Its key, as a person knows it."""
    steps: tuple[Step, ...]
    total: int | None
    """None where it did not arrive; of several ends to the last that it reached."""
    err: int | None
    fate: str = "lost"
    """Fate of the message where it did not arrive."""
    of: str = ""
    """Where it set out, on a branching path with several beginnings."""
    reached: str = ""
    """Number of ends that it reached, where not all."""
    begin: int = 0
    """When it set out, global ns."""

    @property
    def title(self) -> str:
        which = f"message {_key_text(self.id)}"
        if self.of:
            which = f"{which} of {self.of}"
        if self.what:
            which = f"{self.what}: {which}"
        if self.total is None:
            return f"{which}, {self.fate}"
        doubt = maximum_error(UNKNOWN_NS if self.err is None else self.err)
        reached = f", {self.reached}" if self.reached else ""
        return f"{which}, {duration(self.total)} {doubt}{reached}"


def usual(messages: Messages, repeat: int | None = None) -> tuple[Fall, ...]:
    """The messages of the median, p99 and greatest time, of every repeat or of one.

    Nothing where none arrived.
    """
    chosen = [
        (what, int(messages.repeat[row]), int(messages.id[row]))
        for what, row in usual_rows(messages, repeat)
    ]
    return _falls(messages, chosen)


def usual_rows(messages: Messages, repeat: int | None = None) -> list[tuple[str, int]]:
    """The names and rows of those messages."""
    first, last = messages.path.loop
    loop = messages.intervals(first, last)
    order = np.lexsort((loop.id, loop.repeat, loop.length))
    arrived = np.flatnonzero(messages.seen[first] & messages.seen[last])[order]
    return ranked(arrived if repeat is None else arrived[messages.repeat[arrived] == repeat])


def ranked(order: npt.NDArray[np.intp]) -> list[tuple[str, int]]:
    """The usual ones of what is in order of its times; nothing of nothing."""
    n, found = len(order), []
    for what in USUAL if n else ():
        q = quantile(what)
        rank = n if q is None else nearest_rank(q, n)
        found.append((what, int(order[rank - 1])))
    return found


def named(messages: Messages, key: str, repeat: int | None) -> tuple[Fall, ...]:
    """The message with this key, of every repeat or of one. Raises `FigureError`."""
    here = with_key(messages, key, repeat)
    found = sorted(zip(messages.repeat[here].tolist(), messages.id[here].tolist(), strict=True))
    return _falls(messages, [("", *each) for each in found])


def with_key(messages: Messages, key: str, repeat: int | None) -> npt.NDArray[np.bool_]:
    """The messages with this key, of every repeat or of one.

    Raises `FigureError` where there are none.
    """
    here: npt.NDArray[np.bool_] = np.isin(messages.id, messages.keys.numbers_of(key))
    if repeat is not None:
        here &= messages.repeat == repeat
    if not here.any():
        raise unknown(messages.path, [(messages.id, messages.keys)], key, repeat)
    return here


def unknown(
    path: MessagePath,
    messages: Iterable[tuple[npt.NDArray[np.int64], Keys]],
    key: str,
    repeat: int | None,
) -> FigureError:
    """That there is no message with this key among `messages`, and some keys that there are."""
    of = f" in repeat {repeat}" if repeat is not None else ""
    found = [(each, keys) for numbers, keys in messages for each in np.unique(numbers).tolist()]
    coded = any(keys.values is not None for _, keys in found)
    if coded:
        texts = list(dict.fromkeys(str(keys.shown(each)) for each, keys in found))
        close = get_close_matches(key, texts[:_COMPARED], 3) or texts[:3]
        known = f": of {number(len(texts))} some are {', '.join(map(_key_text, close))}"
    else:
        ids = [each for each, _ in found]
        known = f": they are {min(ids)} to {max(ids)}" if ids else ""
    name = ("key" if coded else "number") if path.edges else path.key
    which = _key_text(key) if coded else key
    return FigureError(f"path {path.name}: no message with {name} {which}{of}{known}")


def _key_text(key: int | str) -> str:
    """A text stands in quotes, so that it is seen where it ends."""
    return f'"{key}"' if isinstance(key, str) else str(key)


def _falls(messages: Messages, chosen: Sequence[tuple[str, int, int]]) -> tuple[Fall, ...]:
    steps: list[list[Step]] = [[] for _ in chosen]
    rows = [
        int(np.flatnonzero((messages.repeat == repeat) & (messages.id == id))[0])
        for _, repeat, id in chosen
    ]
    for first, last in messages.path.hops:
        intervals = messages.intervals(first, last)
        ends = messages.path.events[first], messages.path.events[last]
        for fall, row, (_, repeat, id) in zip(steps, rows, chosen, strict=True):
            at = np.flatnonzero((intervals.repeat == repeat) & (intervals.id == id))
            if not len(at):
                continue
            err = int(intervals.err[at[0]])
            fall.append(
                Step(
                    str(intervals.first),
                    str(intervals.last),
                    ends[0].host != ends[1].host,
                    int(messages.ts[first][row] - messages.ts[0][row]),
                    int(intervals.length[at[0]]),
                    None if err >= UNKNOWN_NS else err,
                )
            )
    loop = messages.intervals(*messages.path.loop)
    found = []
    for fall, row, (what, repeat, id) in zip(steps, rows, chosen, strict=True):
        at = np.flatnonzero((loop.repeat == repeat) & (loop.id == id))
        total = err_ns = None
        if len(at):
            total = int(loop.length[at[0]])
            err_ns = int(loop.err[at[0]])
            err_ns = None if err_ns >= UNKNOWN_NS else err_ns
        found.append(
            Fall(
                what,
                repeat,
                messages.keys.shown(id),
                tuple(fall),
                total,
                err_ns,
                begin=int(messages.ts[0][row]),
            )
        )
    return tuple(found)


def rows(falls: Iterable[Fall]) -> Iterable[Sequence[str | int]]:
    """The lines of the CSV, the heading first."""
    names = ("of", "repeat", "id", "from", "to", "start (ns)", "time (ns)", "clock error (ns)")
    yield names
    for fall in falls:
        for step in fall.steps:
            err = "" if step.err is None else step.err
            of = (fall.what, fall.repeat, fall.id)
            yield [*of, step.first, step.last, step.start, step.length, err]


def chart(falls: Sequence[Fall]) -> Chart:
    """A panel for each message, a lane for each of its hops."""
    panels = []
    for fall in falls:
        ends = [abs(step.start + step.length) for step in fall.steps]
        scale, unit = unit_of(max(ends, default=1))
        lanes = tuple(step.label for step in fall.steps)
        bars = [_bars(fall.steps, *kind) for kind in KINDS]
        panels.append(
            Panel(
                Axis("time since it set out", "ns", scale, unit, from_zero="zero"),
                Axis("", "", 1, "", categories=lanes),
                tuple(each for each in bars if len(each.lanes)),
                fall.title if fall.repeat == 1 else f"{fall.title}, repeat {number(fall.repeat)}",
            )
        )
    most = max(len(fall.steps) for fall in falls)
    every = len({step.label for fall in falls for step in fall.steps})
    beside = min(3, len(falls))
    return Chart(tuple(panels), caption=CAPTION, rows=rows(falls), columns=(beside, beside, 1),
                 inches=(0, 0.7 + 0.27 * max(2, most)), pixels=150 + 28 * every,
                 legend="above")  # fmt: skip


def _bars(steps: Sequence[Step], between_hosts: bool, label: str, colour: str) -> Bars:
    some = [(lane, step) for lane, step in enumerate(steps) if step.between_hosts is between_hosts]
    errs = [UNKNOWN_NS if step.err is None else step.err for _, step in some]
    texts = [duration(step.length) for _, step in some]
    return Bars(
        lanes=[lane for lane, _ in some],
        start=np.array([step.start for _, step in some], dtype=np.float64),
        length=np.array([step.length for _, step in some], dtype=np.float64),
        half_width=np.array([np.nan if e >= UNKNOWN_NS else e for e in errs], dtype=np.float64),
        colour=colour,
        label=label,
        texts=[t if e < UNKNOWN_NS else f"{t} {UNKNOWN}" for t, e in zip(texts, errs, strict=True)],
        details=[maximum_error(err) for err in errs],
    )
