"""The account of a recording: every entity's records and drops, last states, and where they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from loopscope import layout

if TYPE_CHECKING:
    from loopscope.control import Progress

# Triggers that are told one by one.
_TOLD = 10


def account_of(folder: Path, progress: Progress) -> dict[str, Any]:
    """Makes the tables of one stream and says what is in it, in JSON's types. Raises ValueError."""
    from loopscope import _native
    from loopscope.control import drafted

    with drafted(folder) as draft:
        summary: dict[str, Any] = json.loads(_native.build_record(folder, draft, progress.amount))
    loss = json.loads((folder / "loss.json").read_text(encoding="utf-8"))
    triggers = folder / "triggers.json"
    described = _entities(folder)
    states = _states(folder, described, summary["events"])
    counts: dict[str, dict[str, Any]] = {
        entity: {"count": count - len(states.get(entity, ())), "dropped": {}, "filtered": 0}
        for entity, count in summary["events"].items()
    }
    for process in loss["processes"]:
        for site in process["sites"]:
            if not site["dropped"] and not site.get("filtered"):
                continue
            empty = {"count": 0, "dropped": {}, "filtered": 0}
            entity = counts.setdefault(site["entity"], empty)
            entity["filtered"] += site.get("filtered", 0)
            for cause, number in site["dropped"].items():
                entity["dropped"][cause] = entity["dropped"].get(cause, 0) + number
    return {
        **summary,
        "torn": loss["torn"],
        "cost": loss.get("cost"),
        "trace": str(folder / "trace"),
        "tables": str(folder / layout.EVENTS),
        "entities": dict(sorted(counts.items())),
        "counters": {
            entity: sum(row["value"] for row in rows)
            for entity, rows in states.items()
            if "value" in rows[0]
        },
        "histograms": {
            entity: _histogram(rows, _range(described[entity]))
            for entity, rows in states.items()
            if "bucket" in rows[0]
        },
        "units": {entity: row["unit"] for entity, row in described.items() if row["unit"]},
        "triggers": json.loads(triggers.read_text(encoding="utf-8")) if triggers.exists() else [],
    }


def _entities(folder: Path) -> dict[str, dict[str, Any]]:
    import pyarrow.parquet as pq

    rows = pq.read_table(layout.table(folder, "entities")).to_pylist()
    return {row["entity"]: row for row in rows}


def _range(row: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Lowest value, first value above, number of buckets; None for the log-linear kind."""
    if row["buckets"] is None:
        return None
    return row["low"], row["high"], row["buckets"]


def _states(
    folder: Path, entities: Mapping[str, Mapping[str, Any]], events: Mapping[str, int]
) -> dict[str, list[dict[str, Any]]]:
    """The last state of each counter and histogram in each process."""
    import pyarrow.parquet as pq

    found = {}
    for entity, described in entities.items():
        if described["kind"] not in ("counter", "histogram") or entity not in events:
            continue
        group, name = entity.split(":")
        rows = pq.read_table(layout.event_files(folder, group, name)[0]).to_pylist()
        # Rows are in the order of time, and the collector's comes last.
        last = {(row["process"], row["pid"]): row for row in rows}
        found[entity] = list(last.values())
    return found


def _histogram(rows: list[dict[str, Any]], declared: tuple[int, int, int] | None) -> dict[str, Any]:
    buckets: dict[int, int] = {}
    for row in rows:
        for bucket, number in zip(row["bucket"], row["n"], strict=True):
            buckets[bucket] = buckets.get(bucket, 0) + number
    total = {key: sum(row[key] for row in rows) for key in ("count", "sum", "below", "above")}
    count = total["count"]
    return {
        **total,
        "mean": total["sum"] / count if count else None,
        "p50": quantile(Fraction(1, 2), buckets, total["below"], count, declared),
        "p99": quantile(Fraction(99, 100), buckets, total["below"], count, declared),
    }


def quantile(
    share: Fraction,
    buckets: Mapping[int, int],
    below: int,
    count: int,
    declared: tuple[int, int, int] | None,
) -> float | None:
    """Middle of the bucket of the value at this rank; None where that lies outside the buckets.

    ``count`` are all values, ``below`` those under the range. The nearest rank is taken.
    """
    rank = -(-share * count // 1)
    if count == 0 or rank <= below:
        return None
    seen = below
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= rank:
            low, width = _bounds(bucket, declared)
            return float(low + (width - 1) / 2)
    return None


def _bounds(bucket: int, declared: tuple[int, int, int] | None) -> tuple[Fraction, Fraction]:
    """Lowest value and width of a bucket (`struct loopscope_cells` in crates/trace/c/layout.h)."""
    if declared is not None:
        low, high, number = declared
        width = Fraction(high - low, number)
        return low + bucket * width, width
    if bucket < 32:
        return Fraction(bucket), Fraction(1)
    scale = 2 ** (bucket // 32 - 1)
    return Fraction((32 + bucket % 32) * scale), Fraction(scale)


def show(accounts: Mapping[str, dict[str, Any]]) -> None:
    """Prints them on stderr: the program's own output has stdout."""
    console = Console(stderr=True, highlight=False)
    for name, account in accounts.items():
        if not account["entities"] and not account["emitted"]:
            console.print(
                f"{name}: no events: no program with loopscope's instrumentation ran, or nothing "
                "that it has was asked for",
                markup=False,
                soft_wrap=True,
            )
        elif account["entities"]:
            console.print(_table(name, account))
        for line in _lines(name, account):
            console.print(line, markup=False, soft_wrap=True)


def _table(name: str, account: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(name, overflow="fold")
    table.add_column("recorded", justify="right")
    table.add_column("dropped", justify="right")
    table.add_column("filtered", justify="right")
    table.add_column("last state", overflow="fold")
    for entity, found in account["entities"].items():
        causes = ", ".join(f"{_number(n)} {cause}" for cause, n in found["dropped"].items())
        table.add_row(
            entity,
            _number(found["count"]),
            causes or "0",
            _number(found["filtered"]),
            _state(account, entity),
        )
    return table


def _state(account: Mapping[str, Any], entity: str) -> str:
    unit = f" {account['units'][entity]}" if entity in account["units"] else ""
    if entity in account["counters"]:
        return _number(account["counters"][entity]) + unit
    histogram = account["histograms"].get(entity)
    if histogram is None:
        return ""
    parts = [f"n {_number(histogram['count'])}"]
    for key in ("mean", "p50", "p99"):
        value = histogram[key]
        text = "outside" if value is None else f"{value:,.6g}".replace(",", " ") + unit
        parts.append(f"{key} {text}")
    return "  ".join(parts)


def _lines(name: str, account: Mapping[str, Any]) -> list[str]:
    parts = [f"{_number(account['recorded'])} recorded"]
    if account.get("overwritten"):
        parts.append(f"{_number(account['overwritten'])} overwritten")
    parts.append(f"{_number(account['dropped'])} dropped")
    lines = [f"{name}: {_number(account['emitted'])} emitted = {' + '.join(parts)}"]
    if account["torn"]:
        lines.append(f"{name}: {account['torn']} of the dropped torn: begun and never finished")
    for trigger in account["triggers"][:_TOLD]:
        hit = f" {trigger['entity']} {trigger['id']}" if "entity" in trigger else ""
        lines.append(f"{name}: triggered by {trigger['cause']}{hit}")
    if (further := len(account["triggers"]) - _TOLD) > 0:
        lines.append(f"{name}: {_number(further)} further triggers, all in triggers.json")
    if name == "main" and account["cost"]:
        event, read = account["cost"]["event_ns"], account["cost"]["counter_read_ns"]
        lines.append(
            f"cost of an event here: {event['median']:.1f} ns ({event['p10']:.1f} to "
            f"{event['p90']:.1f}), of which the counter's reading {read['median']:.1f} ns"
        )
    lines.append(f"trace: {account['trace']}   tables: {account['tables']}")
    lines += [f"problem: {each['file']}: {each['what']}" for each in account["problems"]]
    return lines


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")
