"""The events that the trace itself lost, and what that leaves open about a path.

A message that is missing at an event was lost by the network, or its event was dropped by the
instrumentation. Where no event was dropped, what is missing was lost: an exact fact. Where some
were, the account of loss bounds how many.

What is not bounded: that the first of several occurrences of one event was dropped and a later one
taken for it. A path's events occur once per message unless something duplicates messages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from loopscope.analysis.endings import unfinished
from loopscope.analysis.kernel_result import SHARED
from loopscope.analysis.measured_links import PROCESS, ROUTER
from loopscope.timeline import Run
from loopscope.timeline.loss import UNACCOUNTED as UNACCOUNTED
from loopscope.timeline.relation import literals


@dataclass(frozen=True)
class Missing:
    """Numbers of events that may be missing between two events of a path."""

    before: int
    """Messages that may have been at the first end and are not known there."""
    after: int
    """Dropped events of the last end."""

    def unseen_arrivals(self, lost: int) -> int:
        """The most messages that were at both ends and are not known to have been."""
        return self.before + min(lost, self.after)


def missing_events(run: Run, component: str, entity: str) -> int:
    """The most occurrences of an entity that may be missing from the time line, of all repeats.

    They are those at one component.
    """
    total = 0
    table = entity.replace(":", ".", 1)
    cut_short = unfinished(run)
    group, _, name = entity.partition(":")
    for repeat in run.repeats:
        if (told := run.told.get(repeat, {}).get(group)) is not None:
            of_event = told[name]
            missing = of_event["missing"]
            kernel = _host(run, component)
            there = missing.get(kernel, missing.get(SHARED))
            if there is None:
                return UNACCOUNTED
            total += there
            if (number := of_event.get("number")) is not None:
                # What has lost its number is not known.
                unnumbered = missing_events(run, component, number)
                if unnumbered == UNACCOUNTED:
                    return UNACCOUNTED
                total += unnumbered
            continue
        if (repeat, component) in cut_short:
            return UNACCOUNTED
        foreign = [each for each in run.foreign if each.repeat == repeat]
        kinds = {each.kind for each in foreign if table in each.tables}
        if kinds:
            # It is unknown which of its events a tool has lost, and which tool would have had them.
            lost = [each.lost for each in foreign if each.kind in {*kinds, None}]
            if None in lost:
                return UNACCOUNTED
            total += sum(each or 0 for each in lost)
            continue
        accounts = [
            each for each in run.accounts if each.repeat == repeat and each.process == component
        ]
        if not accounts:
            return UNACCOUNTED
        total += sum(each.missing_at(entity) for each in accounts)
    return total


def _host(run: Run, component: str) -> str | None:
    """The host of a component; None where the run does not say it."""
    experiment = run.specification
    components = () if experiment is None else experiment.components
    return next((each.host for each in components if each.name == component), None)


def contradictions(run: Run) -> list[str]:
    """Accounts that do not balance, and those that differ from what is on the time line."""
    found = []
    recorded: Counter[tuple[int, str, str]] = Counter()
    for each in (*run.accounts, *run.kernel_accounts):
        recorded[each.repeat, each.host, each.process] += each.recorded + each.final
        if not each.balanced:
            found.append(
                f"{each.process} on {each.host}, repeat {each.repeat}: emitted {each.emitted} is "
                f"not recorded {each.recorded} + overwritten {each.overwritten} + "
                f"dropped {each.dropped}"
            )
    on_time_line = _recount(run)
    for key in sorted({*recorded, *on_time_line}):
        if recorded[key] != on_time_line[key]:
            repeat, host, process = key
            account = (
                f"its account says {recorded[key]}" if key in recorded else "it has no account"
            )
            found.append(
                f"{process} on {host}, repeat {repeat}: {on_time_line[key]} events are on the time "
                f"line; {account}"
            )
    return found


def without_account(run: Run) -> list[str]:
    """Hosts whose components' events are in no account although other hosts' are.

    A sum over all accounts is without them. Of the router nothing may be recorded, as where the
    kernel moves the packets.
    """
    recorded = any(any(each.glob("hosts/*/loss.json")) for each in run.repeats.values())
    return [
        f"{host.name}, repeat {repeat}: there is no account of its events, because nothing of them "
        "could be written; all numbers of events are without them"
        for repeat, directory in run.repeats.items()
        for host in sorted(directory.glob("hosts/*"))
        if recorded
        and host.name != ROUTER
        and any(host.glob("components/*"))
        and not (host / "loss.json").exists()
    ]


def _recount(run: Run) -> Counter[tuple[int, str, str]]:
    # What other tools recorded has no counter, and is in no account. Nor has what a router told of
    # afterwards, which is.
    counted: Counter[tuple[int, str, str]] = Counter()
    of_accounts = f"counter IS NOT NULL OR starts_with(process, {literals(PROCESS)})"
    for name in run.tables:
        rows = run.relation(name).filter(of_accounts)
        for *key, count in rows.aggregate("repeat, host, process, count(*)").fetchall():
            counted[key[0], key[1], key[2]] += count
    return counted
