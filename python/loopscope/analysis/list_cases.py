"""The cases of a requirement on the messages of a path.

**Lost messages** are misses of a deadline, of `before` and of `complete`; `in order` and
`symmetric` are about those that arrived. **The tail**: a message that was not seen at its end, and
whose deadline had not passed when the run ended, is neither met nor missed; it is left out and
counted apart. `before` and `complete` set no time, so that what was on its way then is missing.

**Rows** are in the order in which messages set out at the path's first event, by its stamps. They
are of one host, whose clock does not run backwards, however wide they are.

**Order** is that of RFC 4737 (§3.3): the message that comes late is out of order, not those that
overtook it.

**Age of data** is the age of information of Kaul, Yates and Gruteser (2012): at an instant, the
time since the newest of the messages that had arrived set out. It grows until a newer one arrives,
so that its largest values, the peaks (Costa, Codreanu and Ephremides 2014), are those just before.
There is a case for each newer message but a repeat's first, its value the peak that it ended, and
one for what the age had grown to when the run, or the window, ended. That one is left out as long
as it is not missed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.deadline import Cases, Doubt, compare, timed
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.experiment import TimeWindow

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.measured import MeasuredInterval, MeasuredPath
    from loopscope.analysis.messages import Mask, Messages, Rows
    from loopscope.analysis.window import RepeatTimes
    from loopscope.experiment import Requirement


def cases_of(requirement: Requirement, path: MeasuredPath, times: RepeatTimes) -> Cases:
    """Those of the requirement's window. Raises `ValueError` where the path has no such hop."""
    hop = requirement.hop
    ends = path.messages.path.loop if hop is None else (hop.start, hop.end)
    part = path.loop if hop is None else path.part(ends)
    if requirement.kind == "time":
        found = _deadline(requirement, path.messages, ends, part, times)
    elif requirement.kind == "age":
        return _ages(requirement, path, ends, times)
    elif requirement.kind == "before":
        found = _before(requirement, path, ends, part)
    elif requirement.kind == "order":
        found = _order(path.messages, ends, part)
    elif requirement.kind == "complete":
        found = _complete(path, ends)
    else:
        found = _symmetric(requirement, path, part)
    cases, rows = found
    set_out = (path.messages.ts[0][rows], path.messages.err[0][rows])
    inside, unsure = times.within(requirement.window, cases.repeat, set_out)
    return cases.chosen(inside, unsure)


def widened(cases: Cases, requirement: Requirement, by_ns: int) -> Cases:
    """With maximum errors so much larger, as far as the requirement is about a time."""
    if requirement.op is None or requirement.limit_ns is None:
        return cases
    more = compare(cases.value, cases.err + by_ns, requirement.op, requirement.limit_ns)
    return replace(
        cases,
        err=cases.err + by_ns,
        may_meet=more[0] & ~cases.lost,
        may_miss=more[1] | cases.lost,
    )


def _deadline(
    requirement: Requirement,
    messages: Messages,
    ends: tuple[int, int],
    part: MeasuredInterval,
    times: RepeatTimes,
) -> tuple[Cases, Rows]:
    assert requirement.op is not None and requirement.limit_ns is not None
    first, last = ends
    rows = np.flatnonzero(messages.seen[first])
    arrived = messages.seen[last][rows]
    passed, unsure = cut_off(
        times.end(messages.path),
        requirement.limit_ns,
        messages.repeat[rows],
        messages.ts[first][rows],
        messages.err[first][rows],
    )
    # A dropped arrival may have been in time.
    judged = arrived | passed | (part.missing.after > 0)
    unsure = (~arrived & unsure)[judged]
    cut = rows[~judged]
    beyond, _ = times.within(
        requirement.window, messages.repeat[cut], (messages.ts[0][cut], messages.err[0][cut])
    )
    rows, arrived = rows[judged], arrived[judged]
    value, err = _spread(arrived, part.intervals.length), _spread(arrived, part.intervals.err)
    cases = timed(
        repeat=messages.repeat[rows],
        id=messages.id[rows],
        time=messages.ts[first][rows],
        value=value,
        err=err,
        lost=~arrived,
        op=requirement.op,
        limit=requirement.limit_ns,
        doubt=_unseen(part),
        beyond=int(beyond.sum()),
    )
    return replace(cases, optional=unsure), rows


def cut_off(
    end: Nanoseconds,
    limit_ns: int,
    repeat: npt.NDArray[np.int32],
    start: Nanoseconds,
    err: Nanoseconds,
) -> tuple[Mask, Mask]:
    """The lost messages whose deadline may have passed before the `end` of their repeat.

    The second mask is of those whose deadline may not have passed.
    """
    left = end[repeat] - start
    return left + err >= limit_ns, left - err < limit_ns


def _before(
    requirement: Requirement, path: MeasuredPath, ends: tuple[int, int], part: MeasuredInterval
) -> tuple[Cases, Rows]:
    assert requirement.op is not None
    messages, (first, last) = path.messages, ends
    rows = np.flatnonzero(messages.seen[first] | messages.seen[last])
    both = (messages.seen[first] & messages.seen[last])[rows]
    stamped = np.where(messages.seen[first], messages.ts[first], messages.ts[last])
    unseen, dropped = path.dropped[0], (path.dropped[first] if first else 0, path.dropped[last])
    surely = ~messages.seen[first] & (dropped[0] == 0) | ~messages.seen[last] & (dropped[1] == 0)
    cases = timed(
        repeat=messages.repeat[rows],
        id=messages.id[rows],
        time=stamped[rows],
        value=_spread(both, part.intervals.length),
        err=_spread(both, part.intervals.err),
        lost=~both,
        op=requirement.op,
        limit=0,
        doubt=Doubt(sum(dropped), unseen, unseen),
    )
    return replace(cases, open=cases.lost & ~surely[rows]), rows


def _order(messages: Messages, ends: tuple[int, int], part: MeasuredInterval) -> tuple[Cases, Rows]:
    """Cases of order: a message's value is its delay after the earliest of those sent later."""
    first, last = ends
    rows = np.flatnonzero(messages.seen[first] & messages.seen[last])
    rows = rows[np.lexsort((messages.ts[first][rows], messages.repeat[rows]))]
    arrival, err = messages.ts[last][rows], messages.err[last][rows]
    next_at = np.arange(len(rows))
    surely_after = np.full(len(rows), UNKNOWN_NS)
    for here in _repeats(messages.repeat[rows]):
        next_at[here] = here.start + _earliest_later(arrival[here])
        low = (arrival - err)[here][::-1]
        surely_after[here][:-1] = np.minimum.accumulate(low)[::-1][1:]
    later = next_at != np.arange(len(rows))
    value = np.where(later, arrival - arrival[next_at], 0)
    width = messages.errors_between(last, rows[next_at], last, rows)
    # Where only their own maximum errors bound stamps, another later one may be the earliest.
    loose = width >= err + err[next_at]
    may_miss = later & ((value > -width) | (loose & (arrival + err > surely_after)))
    may_meet = ~later | (value <= width)
    tied = _tied(messages, first, rows)
    doubt = Doubt(met=part.hidden, missed=part.hidden)
    # What a dropped event tells nothing of may have overtaken any number of messages.
    may_miss |= np.bool_(part.hidden > 0)
    cases = Cases(
        repeat=messages.repeat[rows],
        id=messages.id[rows],
        time=messages.ts[first][rows],
        value=value,
        err=np.where(later, width, 0),
        lost=np.zeros(len(rows), np.bool_),
        may_meet=may_meet | tied,
        may_miss=may_miss | tied,
        optional=np.zeros(len(rows), np.bool_),
        open=np.zeros(len(rows), np.bool_),
        excess=value,
        doubt=doubt,
    )
    as_set_out = np.argsort(rows)
    nothing = np.zeros(len(rows), np.bool_)
    return cases.chosen(as_set_out, nothing), rows[as_set_out]


def _complete(path: MeasuredPath, ends: tuple[int, int]) -> tuple[Cases, Rows]:
    messages, (first, last) = path.messages, ends
    rows = np.flatnonzero(messages.seen[first])
    missing, again, surely = np.zeros((3, len(rows)), np.bool_)
    for event in range(first, last + 1):
        absent = ~messages.seen[event][rows]
        missing |= absent
        again |= messages.occurrences[event][rows] > 1
        if not path.dropped[event]:
            surely |= absent
    dropped = sum(path.dropped[first : last + 1])
    unseen = path.dropped[0] + (path.dropped[first] if first else 0)
    nothing = np.zeros(len(rows), np.int64)
    cases = Cases(
        repeat=messages.repeat[rows],
        id=messages.id[rows],
        time=messages.ts[first][rows],
        value=nothing,
        err=nothing,
        lost=missing,
        may_meet=~missing & ~again,
        may_miss=missing | again,
        optional=np.zeros(len(rows), np.bool_),
        # A dropped event may be the one that is missing, or a second one.
        open=~again & ~surely,
        excess=missing.astype(np.int64),
        valued=False,
        doubt=Doubt(dropped, unseen, unseen),
    )
    return cases, rows


def _symmetric(
    requirement: Requirement, path: MeasuredPath, part: MeasuredInterval
) -> tuple[Cases, Rows]:
    assert requirement.op is not None and requirement.limit_ns is not None
    messages = path.messages
    if len(path.hops) < 2:
        raise ValueError(f"{messages.path.name} has no way back")
    legs = (path.messages.path.hops[0], path.messages.path.hops[-1])
    seen = [messages.seen[first] & messages.seen[last] for first, last in legs]
    both = seen[0] & seen[1]
    there, back = (
        (each.length[both[on]], each.err[both[on]])
        for each, on in zip((messages.intervals(*leg) for leg in legs), seen, strict=True)
    )
    rows = np.flatnonzero(both)
    hidden = part.hidden + sum(path.dropped)
    cases = timed(
        repeat=messages.repeat[rows],
        id=messages.id[rows],
        time=messages.ts[0][rows],
        value=np.abs(there[0] - back[0]),
        err=there[1] + back[1],
        lost=np.zeros(len(rows), np.bool_),
        op=requirement.op,
        limit=requirement.limit_ns,
        doubt=Doubt(met=hidden, missed=hidden),
    )
    return cases, rows


def _ages(
    requirement: Requirement, path: MeasuredPath, ends: tuple[int, int], times: RepeatTimes
) -> Cases:
    assert requirement.op is not None and requirement.limit_ns is not None
    messages, (first, last) = path.messages, ends
    known = (messages.err[first] < UNKNOWN_NS) & (messages.err[last] < UNKNOWN_NS)
    seen = messages.seen[first] & messages.seen[last]
    rows = np.flatnonzero(seen & known)
    rows = rows[np.lexsort((messages.ts[last][rows], messages.repeat[rows]))]
    start, arrival = messages.ts[first][rows], messages.ts[last][rows]
    newest = np.arange(len(rows))
    for here in _repeats(messages.repeat[rows]):
        newest[here] = here.start + _newest_so_far(start[here])
    before = np.r_[-1, newest[:-1]] if len(rows) else newest
    opens = np.diff(messages.repeat[rows], prepend=-1) != 0
    updating = (newest == np.arange(len(rows))) & ~opens
    updates = np.flatnonzero(updating)
    data = before[updates]
    close = _newer_or_not(messages, first, rows[data], rows[updates])
    # If arrivals were in the other order, one more may be newer than what was there, or one less.
    # So may one that set out within the clocks' error of the newest.
    tied = _tied(messages, last, rows)
    others = np.flatnonzero(~updating & ~opens & ~tied)
    newer = _newer_or_not(messages, first, rows[newest[others]], rows[others])
    perhaps = int(tied.sum()) + int(newer.sum())
    unsure = tied[updates]
    value = arrival[updates] - start[data]
    err = messages.errors_between(first, rows[data], last, rows[updates])
    inside, edge = times.within(
        requirement.window,
        messages.repeat[rows[updates]],
        (arrival[updates], messages.err[last][rows[updates]]),
    )
    end = _at_the_end(requirement, messages, ends, rows, times)
    of = np.r_[rows[updates][inside], end.rows]
    cases = timed(
        repeat=messages.repeat[of],
        id=messages.id[of],
        time=np.r_[arrival[updates][inside], end.at],
        value=np.r_[value[inside], end.age],
        err=np.r_[err[inside], end.err],
        lost=np.zeros(len(of), np.bool_),
        op=requirement.op,
        limit=requirement.limit_ns,
        beyond=end.beyond,
    )
    unsure = np.r_[unsure[inside], np.zeros(len(end.rows), np.bool_)]
    order = np.lexsort((cases.time, cases.repeat))
    # One that arrived unseen made data fresher; before the first that was seen, it began an age.
    unseen = path.dropped[0] + (path.dropped[first] if first else 0) + path.dropped[last]
    unseen += int((seen & ~known).sum())
    cases = replace(
        cases,
        may_meet=cases.may_meet | unsure,
        may_miss=cases.may_miss | unsure,
        optional=np.r_[(edge | close)[inside], end.optional] | unsure,
        doubt=Doubt(unseen, unseen + perhaps, unseen + perhaps),
        at_end=np.r_[np.zeros(int(inside.sum()), np.bool_), np.ones(len(end.rows), np.bool_)],
    )
    cases = cases.chosen(order, np.zeros(len(of), np.bool_))
    return replace(cases, open=~cases.may_meet)


def _newer_or_not(messages: Messages, first: int, older: Rows, newer: Rows) -> Mask:
    """Where the clocks leave open which of two messages set out first."""
    apart = messages.ts[first][newer] - messages.ts[first][older]
    unknown: Mask = np.abs(apart) <= messages.errors_between(first, older, first, newer)
    return unknown


@dataclass(frozen=True)
class _AtTheEnd:
    """Ages when the run or the window ended.

    There is an entry for each repeat in which that surely was a miss.
    """

    rows: Rows
    """The newest messages that had arrived; where none had, the first ones that set out."""
    at: Nanoseconds
    age: Nanoseconds
    err: Nanoseconds
    optional: Mask
    beyond: int
    """Number that are no miss."""


def _at_the_end(
    requirement: Requirement,
    messages: Messages,
    ends: tuple[int, int],
    arrived: Rows,
    times: RepeatTimes,
) -> _AtTheEnd:
    first, last = ends
    assert requirement.op is not None and requirement.limit_ns is not None
    until, spread = times.until(requirement.window, messages.path)
    newest: list[int] = []
    for repeat in np.unique(messages.repeat):
        here = arrived[messages.repeat[arrived] == repeat]
        here = here[messages.ts[last][here] <= until[repeat]]
        set_out = messages.seen[first] & (messages.ts[first] < until[repeat])
        out = np.flatnonzero(set_out & (messages.repeat == repeat))
        if len(here):
            newest.append(int(here[messages.ts[first][here].argmax()]))
        elif len(out):
            newest.append(int(out[messages.ts[first][out].argmin()]))
    rows = np.array(newest, dtype=np.intp)
    repeats = messages.repeat[rows]
    age = until[repeats] - messages.ts[first][rows]
    err = messages.err[first][rows] + spread[repeats]
    begin = TimeWindow(requirement.window.after_ns) if requirement.window is not None else None
    inside, edge = times.within(begin, repeats, (until[repeats], spread[repeats]))
    missed = inside & ~compare(age, err, requirement.op, requirement.limit_ns)[0]
    return _AtTheEnd(
        rows=rows[missed],
        at=until[repeats][missed],
        age=age[missed],
        err=err[missed],
        optional=edge[missed],
        beyond=int((inside & ~missed).sum()),
    )


def _unseen(part: MeasuredInterval) -> Doubt:
    """The doubt about a part's messages: those missing at its end may have been there, and more."""
    missing = part.missing
    return Doubt(min(part.lost, missing.after), missing.before, missing.before)


def _spread(where: Mask, values: Nanoseconds) -> Nanoseconds:
    """One value per place, 0 where there is none."""
    found = np.zeros(len(where), np.int64)
    found[where] = values
    return found


def _repeats(repeat: npt.NDArray[np.int32]) -> list[slice]:
    """Where each repeat's rows are, which are together."""
    begins = np.flatnonzero(np.diff(repeat, prepend=-1))
    return [slice(a, b) for a, b in pairwise([*begins.tolist(), len(repeat)])]


def _earliest_later(arrival: Nanoseconds) -> Rows:
    """For each arrival: the index of the earliest one after it; for the last arrival, its own."""
    n = len(arrival)
    least = _newest_so_far(-arrival[::-1])[::-1]
    later: Rows = np.r_[n - 1 - least[1:], n - 1]
    return later


def _newest_so_far(start: Nanoseconds) -> Rows:
    """For each place: the place of the largest value up to there, the first of several."""
    largest = np.maximum.accumulate(start)
    new = np.r_[True, largest[1:] > largest[:-1]][: len(start)]
    found: Rows = np.maximum.accumulate(np.where(new, np.arange(len(start)), 0))
    return found


def _tied(messages: Messages, event: int, rows: Rows) -> Mask:
    """Those whose order among their neighbours at an event is not known."""
    tied = np.zeros(len(rows), np.bool_)
    if len(rows) < 2:
        return tied
    before, after = rows[:-1], rows[1:]
    apart = messages.ts[event][after] - messages.ts[event][before]
    near = apart <= messages.nearest_in_order(event, before, after)
    near &= messages.repeat[before] == messages.repeat[after]
    tied[1:] |= near
    tied[:-1] |= near
    return tied
