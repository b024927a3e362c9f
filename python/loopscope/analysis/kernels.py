"""What was recorded of the kernels of a run, and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from loopscope.analysis.kernel_added import read_added
from loopscope.analysis.kernel_histograms import missed, read_histograms
from loopscope.analysis.kernel_result import (
    KernelCost,
    KernelDrops,
    KernelLoss,
    KernelResult,
    ToldEvents,
)
from loopscope.experiment import kernel_events
from loopscope.timeline.stolen import read_stolen

if TYPE_CHECKING:
    import pyarrow as pa

    from loopscope.analysis.bounded_statistics import Nanoseconds
    from loopscope.analysis.measured import MeasuredPath
    from loopscope.analysis.measured_dag import MeasuredDag
    from loopscope.analysis.messages import Messages
    from loopscope.timeline import Run

_TABLES = "kernel."
_SWITCHES = "kernel.sched_switch"
_DROPPED = "kernel.packet_drop"
_UDP = 17


def read_kernels(
    run: Run, paths: Mapping[str, MeasuredPath | MeasuredDag]
) -> tuple[KernelResult | None, list[str]]:
    """Counts of the kernels' events and what they cost, and what is wrong with them.

    None if none were to be recorded. What they cost messages is told of lists, and of branching
    paths with a single way, see `MeasuredDag.as_list`.
    """
    if not run.kernels:
        return None, []
    totals: dict[str, Counter[str]] = {}
    for account in run.kernel_accounts:
        counts = totals.setdefault(account.process.removeprefix("kernel "), Counter())
        counts["emitted"] += account.emitted
        counts["recorded"] += account.recorded
        counts["dropped"] += account.dropped
        counts["overwritten"] += account.overwritten
    classes = {name: KernelLoss(**counts) for name, counts in sorted(totals.items())}
    kernels = [
        (repeat, name, found)
        for repeat, of_repeat in run.kernels.items()
        for name, found in of_repeat.items()
    ]
    problems = [
        problem for repeat, name, found in kernels for problem in _problems(name, repeat, found)
    ]
    absent = {event for _, _, found in kernels for event in found.get("absent", ())}
    recorded = [found for _, _, found in kernels if found["error"] is None]
    costs = [item for found in recorded for item in found.get("costs", {}).items()]
    emitted = {name for name, each in classes.items() if each.emitted}
    unknown = [
        f"{name}: {cost['unknown']}"
        for name, cost in costs
        if cost["event_ns"] is None and name.partition(":")[0] in emitted
    ]
    if any(each.overwritten for each in classes.values()):
        # This reason does not go away with the machine's noise.
        unknown.insert(0, "a flight recorder wrote a part of the kernel's events")
    event_ns: dict[str, float] = {}
    for name, cost in costs:
        if cost["event_ns"] is not None:
            event_ns[name] = max(cost["event_ns"], event_ns.get(name, 0.0))
    lists = {name: each.as_list for name, each in paths.items()}
    told = {name: each for name, each in lists.items() if each is not None}
    added = read_added(run, told)
    result = KernelResult(
        classes,
        tuple(sorted(absent)),
        {name: why for _, name, found in kernels if (why := _unrecorded(found)) is not None},
        event_ns,
        next(iter(unknown), None),
        {} if unknown or added else _costs(run, told, event_ns),
        () if is_partial(run) else tuple(_untold(run)),
        tuple(_drops(run)),
        _stolen(run),
        added,
        tuple(read_histograms(run)),
        _left_out(run, recorded),
    )
    # Where nobody asked for them it is no problem: the kernels' results alone say it.
    asked = any(found.get("asked", True) for _, _, found in kernels)
    return result, [*problems, *missed(run), *result.unobservable] if asked else []


def _left_out(run: Run, recorded: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    experiment = run.specification
    if experiment is None or all("counts_only" in found for found in recorded):
        return ()
    return kernel_events.left_out(experiment.kernel)


def _stolen(run: Run) -> int | None:
    found = [
        read_stolen(run.repeats[repeat], kernel)
        for repeat, kernels in run.kernels.items()
        for kernel, of in kernels.items()
        if "recorded" in of
    ]
    counted = [each for each in found if each is not None]
    return sum(each.ns for of in counted for each in of) if counted else None


def is_partial(run: Run) -> bool:
    """Whether the kernels' events are those of some times of the run alone, as it was asked for.

    A flight recorder writes some, and a phase may record some classes only.
    """
    experiment = run.specification
    phases = () if experiment is None else experiment.phases
    some = any(phase.kernel is not None for phase in phases)
    some = some or (experiment is not None and experiment.alternate_ns is not None)
    return some or any(each.overwritten for each in run.kernel_accounts)


def _costs(
    run: Run, paths: Mapping[str, Messages], event_ns: Mapping[str, float]
) -> dict[str, KernelCost]:
    classes = {name: kind for kind, name in (each.split(":") for each in kernel_events.named())}
    tables: dict[str, float] = {}
    for table in run.tables:
        event = table.removeprefix(_TABLES)
        of_class = classes.get(event, "")
        cost = event_ns.get(f"{of_class}:{event}", event_ns.get(of_class))
        if table.startswith(_TABLES) and cost is not None:
            tables[table] = cost
    found = {}
    for name, messages in paths.items():
        whole = messages.intervals(*messages.path.loop)
        counts, costs = [], []
        for repeat in np.unique(whole.repeat).tolist():
            of_repeat = whole.repeat == repeat
            begin = whole.start[of_repeat]
            end = begin + whole.length[of_repeat]
            events = [_events(run, table, repeat, begin, end) for table in tables]
            counts.append(np.sum(events, axis=0))
            costs.append(np.dot([*tables.values()], events))
        if tables and counts and len(every := np.concatenate(counts)):
            ns = round(float(np.median(np.concatenate(costs))))
            found[name] = KernelCost(int(np.median(every)), ns)
    return found


def _events(run: Run, table: str, repeat: int, begin: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
    """How many events of the kernels there were within each of some intervals."""
    rows = run.relation(table).filter(f"repeat = {repeat}").project("ts")
    times = np.sort(rows.to_arrow_table()["ts"].to_numpy())
    found: Nanoseconds = np.searchsorted(times, end, side="right") - np.searchsorted(times, begin)
    return found


def _unrecorded(found: Mapping[str, Any]) -> str | None:
    """Why a kernel's events were not recorded; there may be counts of threads in their place."""
    why: str | None = found["error"] or found.get("counts_only")
    return why


def _problems(name: str, repeat: int, found: Mapping[str, Any]) -> list[str]:
    where = f"{name}, repeat {repeat}"
    if (why := _unrecorded(found)) is not None:
        return [f"{where}: kernel events: {why}"]
    if found.get("without"):
        return [f"{where}: {text}" for text in kernel_events.without(found["without"])]
    if not found["threads_known"]:
        return [
            f"{where}: the kernel numbers threads otherwise than the programs see them (they are "
            "in a PID namespace): kernel events cannot be given to threads"
        ]
    return []


def _untold(run: Run) -> list[str]:
    """Processors and threads of which some switches are not told.

    Some virtual machines' kernels record nothing while some threads have a processor: switches to
    them are told, and none away from them.
    """
    if _SWITCHES not in run.tables:
        return []
    idle = run.relation(_SWITCHES).aggregate(
        "repeat, host, cpu, count(*) FILTER (next_tid = 0) AS entered, "
        "count(*) FILTER (prev_tid = 0) AS ended"
    )
    found = idle.filter("ended = 0 AND entered > 0").order("repeat, host, cpu").fetchall()
    texts = [
        f"{host}, repeat {repeat}: the kernel does not tell when processor {cpu} ends its idling; "
        "when a thread came after that is not observable"
        for repeat, host, cpu, *_ in found
    ]
    came = (
        run.relation(_SWITCHES)
        .filter("next_tid <> 0")
        .aggregate(
            "repeat, host, next_tid AS tid, max(next_comm::VARCHAR) AS name, count(*) AS entered"
        )
    )
    went = run.relation(_SWITCHES).aggregate("repeat, host, prev_tid AS tid, count(*) AS ended")
    # A thread that came twice has gone in between.
    untold = came.filter("entered > 1").join(went, "repeat, host, tid", "anti")
    return texts + [
        f"{host}, repeat {repeat}: the kernel does not tell when thread {tid} ({name}) leaves a "
        "processor; how long it had one is not observable"
        for repeat, host, tid, name, _ in untold.order("repeat, host, tid").fetchall()
    ]


def told_events(run: Run) -> tuple[ToldEvents, ...]:
    """The events of programs that were told from the kernels', by group."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for of_repeat in run.told.values():
        for name, events in of_repeat.items():
            found.setdefault(name, []).append(events)
    return tuple(_told(name, repeats) for name, repeats in found.items())


def _told(name: str, repeats: list[Mapping[str, Any]]) -> ToldEvents:
    counts = {of: sum(each[of]["events"] for each in repeats) for of in repeats[0]}
    by_kernel = [each[of]["missing"] for each in repeats for of in counts]
    missing = [count for each in by_kernel for count in each.values()]
    known = all(by_kernel) and None not in missing
    number = next(iter(repeats[0].values())).get("number")
    numberless = sum(each.get("numberless", 0) for told in repeats for each in told.values())
    most = sum(missing) if known else None
    return ToldEvents(name, counts, most, number, numberless)


def _drops(run: Run) -> list[KernelDrops]:
    """The datagrams that were dropped, those of the most first."""
    if _DROPPED not in run.tables:
        return []
    # What a switch sends to all its ports is dropped where it is for somebody else.
    of_udp = f"protocol = {_UDP} AND fragment_offset = 0 AND reason::VARCHAR <> 'OTHERHOST'"
    named = ("target", "reason", "function")
    texts = ", ".join(f'"{name}"::VARCHAR AS "{name}"' for name in named)
    found = run.relation(_DROPPED).filter(of_udp).project(texts)
    found = found.aggregate("*, count(*) AS count").order("count DESC, target, reason, function")
    return [KernelDrops(*row) for row in found.fetchall()]


def rows_of(run: Run, table: str, repeat: int, kernel: str, columns: str) -> pa.Table:
    """The rows of a kernel's table in one repeat, in the counter's order.

    Raises `RunError` where the table cannot be read.
    """
    rows = run.relation(table).filter(f"repeat = {repeat} AND host = '{kernel}'")
    return rows.order("counter").project(columns).to_arrow_table()
