"""The cases of a requirement on a path, also on a branching one.

Where every message goes on by its number, a part of a branching path is like a list: a message's
stamp at an event is that of the first message there that was made of it. Where an event **joins**,
the age of data is that of the oldest data at each use, and there is a case for each use that had
any. Where it **samples** (`latest`, `window`) it leaves messages out: the time of a message is that
to its first use, one that was superseded is no case, and nothing that has to do with every message
can be said.

A message that came and after which nothing was used yet when the run ended is left out as long as
its deadline had not passed; after that it may still be that a newer one was used instead.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from loopscope.analysis.deadline import Cases, Doubt, timed
from loopscope.analysis.list_cases import cases_of as cases_of_list
from loopscope.analysis.list_cases import cut_off
from loopscope.analysis.measured import MeasuredPath
from loopscope.analysis.measured_dag import MeasuredDag
from loopscope.analysis.message_dag import Fate
from loopscope.analysis.missing_events import UNACCOUNTED
from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.experiment.measures import SAMPLING

if TYPE_CHECKING:
    from loopscope.analysis.measured_dag import MeasuredFlow
    from loopscope.analysis.window import RepeatTimes
    from loopscope.experiment import MessagePath, Requirement


def cases_of(
    requirement: Requirement, path: MeasuredPath | MeasuredDag, times: RepeatTimes
) -> Cases:
    """Those of the requirement's window.

    Raises `ValueError` where the path has no such part, or where the part cannot meet it.
    """
    if isinstance(path, MeasuredPath):
        return cases_of_list(requirement, path, times)
    hop = requirement.hop
    flow = path.loop if hop is None else path.part((hop.start, hop.end))
    if requirement.kind == "symmetric":
        raise ValueError("symmetric is said of paths that are lists")
    if requirement.kind == "age" and flow.joins:
        cases = _ages(requirement, flow, times)
    elif not path.messages.path.uses(*flow.ends) & SAMPLING:
        times = times.of_parts(path.messages.path)
        cases = cases_of_list(replace(requirement, hop=None), _as_list(path, flow), times)
    elif requirement.kind == "time":
        cases = _first_uses(requirement, flow, path.messages.path, times)
    else:
        raise ValueError(f"{requirement.kind} is said of parts that take every message")
    return _open(cases) if flow.doubtful else cases


def _as_list(path: MeasuredDag, flow: MeasuredFlow) -> MeasuredPath:
    way = sorted(path.messages.path.between(*flow.ends))
    # What a dropped event was made of is not known at the events after it either.
    after = accumulate(path.dropped[each] for each in way[1:])
    return MeasuredPath(path.messages.along(way), [path.dropped[way[0]], *after])


def _first_uses(
    requirement: Requirement, flow: MeasuredFlow, path: MessagePath, times: RepeatTimes
) -> Cases:
    assert requirement.op is not None and requirement.limit_ns is not None
    sent = flow.sent
    used, undecided = sent.fate == Fate.USED, sent.fate == Fate.UNDECIDED
    inside, edge = times.within(requirement.window, sent.repeat, (sent.ts, sent.err))
    inside &= sent.fate != Fate.SUPERSEDED
    end = times.end(path)
    passed, unsure = cut_off(end, requirement.limit_ns, sent.repeat, sent.ts, sent.err)
    judged = used | undecided | passed
    beyond = int((inside & ~judged).sum())
    cases = timed(
        repeat=sent.repeat,
        id=sent.id,
        time=sent.ts,
        value=np.where(undecided, UNKNOWN_NS, sent.length),
        err=np.where(undecided, UNKNOWN_NS, sent.width),
        lost=~used & ~undecided,
        op=requirement.op,
        limit=requirement.limit_ns,
        beyond=beyond,
    )
    loose = edge | undecided | (sent.fate == Fate.UNUSED) | (unsure & cases.lost)
    return cases.chosen(inside & judged, loose)


def _ages(requirement: Requirement, flow: MeasuredFlow, times: RepeatTimes) -> Cases:
    assert requirement.op is not None and requirement.limit_ns is not None
    used = flow.used
    inside, edge = times.within(requirement.window, used.repeat, (used.ts, used.err))
    inside &= used.made | used.undecided
    cases = timed(
        repeat=used.repeat,
        id=used.id,
        time=used.ts,
        value=used.age,
        err=used.width,
        lost=np.zeros(len(used.id), np.bool_),
        op=requirement.op,
        limit=requirement.limit_ns,
    )
    # What it used may be nothing.
    return cases.chosen(inside, edge | used.undecided)


def _open(cases: Cases) -> Cases:
    """The cases, all open: a dropped message may have been used in place of any other."""
    return replace(
        cases,
        open=np.ones(len(cases), np.bool_),
        doubt=Doubt(UNACCOUNTED, UNACCOUNTED, UNACCOUNTED),
    )
