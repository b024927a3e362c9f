"""What was recorded of the kernels of a run, and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loopscope.analysis.results import KernelLoss, KernelResult

if TYPE_CHECKING:
    import pyarrow as pa

    from loopscope.timeline import Run

SHARED = "_kernel"
"""Among the hosts: the kernel of a machine whose hosts share it."""
_SWITCHES = "kernel.sched_switch"


def read_kernels(run: Run) -> tuple[KernelResult | None, list[str]]:
    """Counts of the kernels' events, None if none were asked for; and what is wrong with them."""
    if not run.kernels:
        return None, []
    totals: dict[str, Counter[str]] = {}
    for account in run.kernel_accounts:
        counts = totals.setdefault(account.process.removeprefix("kernel "), Counter())
        counts["emitted"] += account.emitted
        counts["recorded"] += account.recorded
        counts["dropped"] += account.dropped + account.overwritten
    classes = {name: KernelLoss(**counts) for name, counts in sorted(totals.items())}
    problems = [
        problem
        for repeat, kernels in run.kernels.items()
        for name, found in kernels.items()
        for problem in _problems(name, repeat, found)
    ]
    absent = {
        event
        for kernels in run.kernels.values()
        for found in kernels.values()
        for event in found.get("absent", ())
    }
    return KernelResult(classes, tuple(sorted(absent))), problems + _untold(run)


def _problems(name: str, repeat: int, found: Mapping[str, Any]) -> list[str]:
    where = f"{name}, repeat {repeat}"
    if found["error"] is not None:
        return [f"{where}: kernel events: {found['error']}"]
    if not found["threads_known"]:
        return [
            f"{where}: the kernel numbers threads otherwise than the programs see them (they are "
            "in a PID namespace): kernel events cannot be given to threads"
        ]
    return []


def _untold(run: Run) -> list[str]:
    """Processors of which switches from idling are not told, though switches to it are.

    Some virtual machines' kernels are like that.
    """
    if _SWITCHES not in run.tables:
        return []
    counts = run.relation(_SWITCHES).aggregate(
        "repeat, host, cpu, count(*) FILTER (next_tid = 0) AS entered, "
        "count(*) FILTER (prev_tid = 0) AS ended, count(*) AS switches"
    )
    found = counts.filter("ended = 0 AND entered > 0").order("repeat, host, cpu").fetchall()
    return [
        f"{host}, repeat {repeat}: the kernel does not tell when processor {cpu} ends its idling; "
        "when a thread came after that is not observable"
        for repeat, host, cpu, *_ in found
    ]


def rows_of(run: Run, table: str, repeat: int, kernel: str, columns: str) -> pa.Table:
    """The rows of a kernel's table in one repeat, in the counter's order.

    Raises `RunError` where the table cannot be read.
    """
    rows = run.relation(table).filter(f"repeat = {repeat} AND host = '{kernel}'")
    return rows.order("counter").project(columns).to_arrow_table()
