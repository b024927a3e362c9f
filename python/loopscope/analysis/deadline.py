"""Deadlines that each of many cases has to meet, with allowed misses.

A case is a message, an update of data or an interval. Each was met, was missed, or could be either
within its maximum error; at the edge of a time it may not belong at all. Events that the trace
dropped leave more open (`Doubt`). A *resolution* settles all of that. PASS: the requirement holds
in every resolution. FAIL: in none. UNKNOWN: in some.

No resolution is enumerated. A requirement is a share of cases that must be met, and windows: at
most m misses among any k in succession (the weakly hard constraint of Bernat, Burns and Llamosí
2001; (k − m, k)-firm in the words of Hamdaoui and Ramanathan 1995), of which "no n misses in a row"
is (n − 1, n). Both are monotone: what held goes on to hold when

- a missed case becomes a met one: every count of misses stays or falls;
- a met case is added: a window of k in the longer sequence that has it lies, without it, within a
  window of k of the shorter one, so it has no more misses;
- a missed case is taken away: take any window of k in what is left. If the place lies within it,
  the window was k + 1 long with the case and one miss more; dropping one end case leaves k with at
  least as many misses as now, so the old sequence would have broken the limit first.

Hence one resolution is the worst for every clause at once (whatever may be missed is, whatever
cannot be and may be absent is absent), and its mirror the best. PASS is that the worst one holds,
FAIL that the best one does not.

Of what the trace dropped: `missed` further misses do most harm side by side within the fullest
window of k − `missed`; `changed` cases as misses within the same window. To mend the best
resolution with a limited number of changes, go through the misses in order; whenever a window
becomes too full, change the last of its cases that can be changed, or put met ones just before its
end. That one is in every later window that any other choice is in, so no other choice does with
fewer. Where both are limited at once, further met cases are taken for changes of any case, which do
more: FAIL is then still sure, and some that are FAIL are called UNKNOWN.

Cases are resolved independently of each other. Neighbouring intervals share a stamp, so that some
resolutions cannot be: PASS and FAIL hold all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from loopscope.analysis.deciding_cases import Case, CaseCounts
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.analysis.verdict import Verdict
from loopscope.experiment import Allowed

if TYPE_CHECKING:
    import numpy.typing as npt

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.experiment import MissesIn

    Mask: TypeAlias = npt.NDArray[np.bool_]
    Rows: TypeAlias = npt.NDArray[np.intp]

PPB = 10**9
LISTED = 1000
"""Largest number of cases that decided a verdict and are kept."""
_WORST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Doubt:
    """Uncertainty of a verdict because of events that are missing from the trace."""

    changed: int = 0
    """Number of the cases in `Cases.open` that may be the other way."""
    met: int = 0
    """Largest number of further cases, anywhere, that may have been met."""
    missed: int = 0
    """Largest number of further cases, anywhere, that may have been missed."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.met or self.missed)


@dataclass(frozen=True)
class Cases:
    """One entry per case in each array, in the order of repeats and time.

    Every case `may_meet` or `may_miss`, or both.
    """

    repeat: npt.NDArray[np.int32]
    id: npt.NDArray[np.int64]
    time: Nanoseconds
    value: Nanoseconds
    """`UNKNOWN_NS` where nothing is known of it."""
    err: Nanoseconds
    """Maximum error of `value`."""
    lost: Mask
    """Those that have no value."""
    may_meet: Mask
    may_miss: Mask
    optional: Mask
    """Those that may not belong to what is judged."""
    open: Mask
    """Those that `doubt.changed` is about: all of them, or none that was met."""
    excess: Nanoseconds
    """Excess of each value over the limit, in its unit; larger is worse."""
    doubt: Doubt = Doubt()
    valued: bool = True
    """False where there is nothing to measure."""
    beyond: int = 0
    """Cases left out, because the run ended before they could be met or missed."""
    at_end: Mask | None = None
    """See `Case.at_end`; None: none of them."""

    def __len__(self) -> int:
        return len(self.id)

    def chosen(self, rows: Mask | Rows, optional: Mask) -> Cases:
        """Those in `rows`, in their order; those in `optional` may not belong."""
        return replace(
            self,
            repeat=self.repeat[rows],
            id=self.id[rows],
            time=self.time[rows],
            value=self.value[rows],
            err=self.err[rows],
            lost=self.lost[rows],
            may_meet=self.may_meet[rows],
            may_miss=self.may_miss[rows],
            optional=(self.optional | optional)[rows],
            open=self.open[rows],
            excess=self.excess[rows],
            at_end=None if self.at_end is None else self.at_end[rows],
        )


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    counts: CaseCounts
    deciding: tuple[Case, ...]
    """The first `LISTED` of the cases that decided.

    These are the misses of a FAIL, worst first, or of its first window that is too full; what an
    UNKNOWN leaves open; the misses that a PASS allowed.
    """
    deciding_count: int
    """Number of all cases that decided."""
    broken: str | None
    """Result of a FAIL by a share or a window, for people; else None."""


def timed(
    *,
    repeat: npt.NDArray[np.integer],
    id: npt.NDArray[np.int64],
    time: Nanoseconds,
    value: Nanoseconds,
    err: Nanoseconds,
    lost: Mask,
    op: str,
    limit: int,
    doubt: Doubt = Doubt(),
    beyond: int = 0,
) -> Cases:
    """Cases whose value compares with a limit; the lost ones are missed."""
    may_meet, may_miss = compare(value, err, op, limit)
    return Cases(
        repeat=repeat.astype(np.int32),
        id=id,
        time=time,
        value=value,
        err=err,
        lost=lost,
        may_meet=may_meet & ~lost,
        may_miss=may_miss | lost,
        optional=np.zeros(len(id), np.bool_),
        open=lost,
        excess=np.where(lost, _WORST, value if op in ("<", "<=") else -value),
        doubt=doubt,
        beyond=beyond,
    )


def compare(value: Nanoseconds, err: Nanoseconds, op: str, limit: int) -> tuple[Mask, Mask]:
    """Whether each true value may compare so with the limit, and whether it may not."""
    low, high = value - err, value + err
    if op == "<":
        return low < limit, high >= limit
    if op == "<=":
        return low <= limit, high > limit
    if op == ">":
        return high > limit, low <= limit
    if op == ">=":
        return high >= limit, low < limit
    raise ValueError(f"no order {op!r}: < <= > >=")


@dataclass
class Tally:
    """Counts of cases that all belong, as they come, where their order does not matter."""

    met: int = 0
    missed: int = 0
    undecided: int = 0

    def __len__(self) -> int:
        return self.met + self.missed + self.undecided

    def add(self, cases: Cases) -> None:
        met, missed = int((~cases.may_miss).sum()), int((~cases.may_meet).sum())
        self.met += met
        self.missed += missed
        self.undecided += len(cases) - met - missed

    def verdict(self, misses: int) -> Verdict:
        """Whether no more than so many were missed; UNKNOWN of no case."""
        if not len(self):
            return Verdict.UNKNOWN
        if self.missed + self.undecided <= misses:
            return Verdict.PASS
        return Verdict.FAIL if self.missed > misses else Verdict.UNKNOWN


def judge(cases: Cases, allowed: Allowed) -> Judgement:
    """Whether no more is missed than is allowed.

    UNKNOWN of no case that surely belongs.
    """
    least = PPB if allowed == Allowed() else (allowed.met_ppb or 0)
    doubt = cases.doubt
    # What may be absent and may be changed as well: the better or the worse of both.
    both = cases.optional & cases.open if doubt.changed else np.zeros(len(cases), np.bool_)
    may_miss, may_meet = cases.may_miss | both, cases.may_meet | both

    worst = _Resolution(cases, may_miss, present=~cases.optional | may_miss)
    more = min(doubt.changed, worst.changeable(missed=False))
    met = worst.met - more
    share_held = met * PPB >= least * (worst.met + worst.missed + doubt.missed)
    crowds = [worst.crowded(row, doubt.missed, more) for row in allowed.rows]

    best = _Resolution(cases, ~may_meet, present=~cases.optional | may_meet)
    fewer = min(doubt.changed, best.changeable(missed=True))
    most_met = best.met + fewer + doubt.met
    share_broken = most_met * PPB < least * (best.met + best.missed + doubt.met)
    rows_broken = not best.mendable(allowed.rows, fewer, doubt.met)

    missed = best.missed - fewer
    counts = CaseCounts(met, missed, len(cases) - met - missed, cases.beyond)
    broken = None
    either = (may_meet & may_miss) | cases.optional | (cases.open & (doubt.changed > 0))
    surely = ~may_meet & ~cases.optional
    if bool(cases.optional.all()):
        verdict, chosen = Verdict.UNKNOWN, _worst_first(cases, either)
    elif share_held and not any(crowds):
        verdict, chosen = Verdict.PASS, _worst_first(cases, surely | either & may_miss)
    elif share_broken:
        verdict, chosen = Verdict.FAIL, _worst_first(cases, surely)
        if allowed.met_ppb is not None:
            of = best.met + best.missed + doubt.met
            at_most = "at most " if most_met > met else ""
            broken = f"{at_most}{100 * most_met / of:.4g} % were met"
    elif rows_broken:
        verdict = Verdict.FAIL
        chosen, broken = best.first_crowd(allowed.rows)
    else:
        verdict = Verdict.UNKNOWN
        chosen = _worst_first(cases, either)
        if share_held and any(crowds):
            window, _ = worst.first_crowd(allowed.rows)
            chosen = window if len(window) else chosen
    return Judgement(
        verdict=verdict,
        counts=counts,
        deciding=tuple(_case(cases, int(row), bool(either[row])) for row in chosen[:LISTED]),
        deciding_count=len(chosen),
        broken=broken,
    )


class _Resolution:
    """One way in which all cases are settled: those that are there, and which were missed."""

    def __init__(self, cases: Cases, missed: Mask, present: Mask) -> None:
        self._rows = np.flatnonzero(present)
        self._is_missed = missed[present]
        self._open = cases.open[present]
        self._repeat = cases.repeat[present]
        self.missed = int(self._is_missed.sum())
        self.met = len(self._rows) - self.missed

    def changeable(self, missed: bool) -> int:
        """Number of the missed cases, or of the met ones, that are open."""
        return int((self._open & (self._is_missed == missed)).sum())

    def crowded(self, row: MissesIn, missed: int, changed: int) -> bool:
        """Whether a window is too full, once more cases are missed.

        `missed` more misses are put into it, and `changed` of its other cases are missed as well.
        """
        needed = row.most + 1 - missed - changed
        if needed <= 0:
            return True
        places = self._places(row.of)
        return len(_too_near(places, needed, row.of - missed)) > 0

    def mendable(self, rows: Sequence[MissesIn], changed: int, met: int) -> bool:
        """Whether no window is too full, once more cases are met.

        `changed` of the open misses were met then, and `met` more met cases are put in.
        """
        longest = max((row.of for row in rows), default=0)
        places = self._places(longest)
        can_change = self._open[self._is_missed]
        if changed and changed >= int(can_change.sum()):
            places, can_change, changed = places[~can_change], can_change[~can_change], 0
        if not any(len(_too_near(places, row.most + 1, row.of)) for row in rows):
            return True
        if not changed:
            return met > 0 and _spread(places, rows) <= met
        if met:
            can_change, changed = np.ones(len(places), np.bool_), changed + met
        return _changed(places, can_change, rows, changed) <= changed

    def first_crowd(self, rows: Sequence[MissesIn]) -> tuple[Rows, str | None]:
        """The misses of the first window that is too full, as rows of the cases, and in words."""
        for row in rows:
            places = self._places(row.of)
            found = _too_near(places, row.most + 1, row.of)
            if len(found):
                window = slice(int(found[0]), int(found[0]) + row.most + 1)
                across = int(places[window][-1] - places[window][0]) + 1
                n = row.most + 1
                how = "in a row" if across == n else f"among {across} in succession"
                words = f"{n} misses {how}"
                return self._rows[self._is_missed][window], words
        return np.empty(0, np.intp), None

    def _places(self, gap: int) -> npt.NDArray[np.int64]:
        """The places of the misses among the cases that are there; repeats are `gap` apart."""
        at = np.flatnonzero(self._is_missed)
        begun = np.cumsum(np.diff(self._repeat, prepend=self._repeat[:1]) != 0)
        places: npt.NDArray[np.int64] = at + begun[at] * gap
        return places


def _too_near(places: npt.NDArray[np.int64], n: int, span: int) -> Rows:
    """Where n in succession lie within less than `span`."""
    if len(places) < n:
        return np.empty(0, np.intp)
    return np.flatnonzero(places[n - 1 :] - places[: len(places) - n + 1] < span)


def _changed(
    places: npt.NDArray[np.int64], can_change: Mask, rows: Sequence[MissesIn], most: int
) -> int:
    """The fewest misses that must be met instead; more than `most` where those do not do."""
    kept: list[tuple[int, bool]] = []
    used = 0
    for miss in zip(places.tolist(), can_change.tolist(), strict=True):
        kept.append(miss)
        for row in rows:
            while len(kept) > row.most and kept[-1][0] - kept[-1 - row.most][0] < row.of:
                last = next((i for i in range(1, row.most + 2) if kept[-i][1]), None)
                used += 1
                if last is None or used > most:
                    return most + 1
                del kept[-last]
    return used


def _spread(places: npt.NDArray[np.int64], rows: Sequence[MissesIn]) -> int:
    """The fewest met cases that must be put in between."""
    shifted: list[int] = []
    used = 0
    for place in places.tolist():
        shifted.append(place + used)
        for row in rows:
            if len(shifted) > row.most:
                short = row.of - (shifted[-1] - shifted[-1 - row.most])
                if short > 0:
                    shifted[-1] += short
                    used += short
    return used


def _worst_first(cases: Cases, chosen: Mask) -> Rows:
    rows = np.flatnonzero(chosen)
    ordered: Rows = rows[np.argsort(-cases.excess[rows], kind="stable")]
    return ordered


def _case(cases: Cases, row: int, either: bool) -> Case:
    lost = bool(cases.lost[row])
    valued = cases.valued and not lost and cases.value[row] < UNKNOWN_NS
    return Case(
        repeat=int(cases.repeat[row]),
        id=int(cases.id[row]),
        at_ns=int(cases.time[row]),
        lost=lost,
        value_ns=int(cases.value[row]) if valued else None,
        err_ns=int(cases.err[row]) if valued and cases.err[row] < UNKNOWN_NS else None,
        undecided=either,
        at_end=cases.at_end is not None and bool(cases.at_end[row]),
    )
