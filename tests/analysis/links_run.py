"""Runs whose router left an account of its links, and what it told of packets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from synthetic_run import SECOND

ROUTER = "_router"


def times(mean=None, deviation=None, p50=None, p99=None):
    """As in `links.json`; of nothing they are null."""
    return {
        "mean": mean,
        "deviation": deviation,
        "min": p50,
        "p50": p50,
        "p99": p99,
        "p999": p99,
        "max": p99,
    }


def segment(asked, came=0, dropped=(), **more):
    """The counts of one link; all that came and was not dropped or left waiting has left."""
    drops = {"mtu": 0, "loss": 0, "queue": 0, "codel": 0, "moving": 0, "kernel": 0} | dict(dropped)
    found = {
        "since_ns": 0,
        "asked": {"duplicate": 0.0, "corrupt": 0.0, "delay_ns": 0} | asked,
        "queued": 0,
        "dropped": drops,
        "duplicated": 0,
        "corrupted": 0,
        "reordered": 0,
        "first_ns": None,
        "last_ns": None,
        "delay_ns": times(),
        "late_ns": times(),
    } | more
    left = came + found["duplicated"] - found["queued"] - sum(drops.values())
    return {
        "in": {"packets": came, "bytes": 100 * came},
        "out": {"packets": left, "bytes": 100 * left},
    } | found


def write_account(root: Path, hosts, links, repeat=1, problems=(), mover="xdp", host=ROUTER):
    """`links` has by (from, to) the segments; `host` is the one that emulates them."""
    name = "_links" if host == ROUTER else f"_links-{host}"
    files = root / "base" / str(repeat) / "hosts" / host / "components" / name / "files"
    files.mkdir(parents=True)
    (files.parent / "exit.json").write_text(json.dumps({"code": 0, "asked": "end"}))
    account = {"version": 1, "mover": mover, "why": "", "wait": "sleep", "hosts": list(hosts)}
    account["problems"] = list(problems)
    account["links"] = [
        {"from": sender, "to": receiver, "segments": segments}
        for (sender, receiver), segments in links.items()
    ]
    (files / "links.json").write_text(json.dumps(account))


def write_events(root: Path, packets, err=0, repeat=1, ago=0, host=ROUTER):
    """`packets`: (from, to, number, id, arrival, departures), hosts by index; told `ago` later."""
    enqueued = [(came, id, number, a, b) for a, b, number, id, came, _ in packets]
    departed = [(at, id, number, a, b) for a, b, number, id, _, left in packets for at in left]
    for name, rows in (("enqueued", enqueued), ("departed", departed)):
        rows.sort()
        n = len(rows)
        text = pa.dictionary(pa.int32(), pa.string())
        table = pa.table(
            {
                "ts": pa.array([row[0] for row in rows], pa.int64()),
                "ago_ns": pa.array([ago] * n, pa.uint32()),
                "late_ns": pa.array([0] * n, pa.int64()),
                "tid": pa.array([7] * n, pa.int64()),
                "err_ns": pa.array([err - -ago // 2000] * n, pa.int64()),
                "counter": pa.array([None] * n, pa.uint64()),
                "host": pa.array([host] * n, text),
                "process": pa.array(["_links"] * n, text),
                "id": pa.array([row[1] for row in rows], pa.int64()),
                "number": pa.array([row[2] for row in rows], pa.uint64()),
                "from": pa.array([row[3] for row in rows], pa.uint16()),
                "to": pa.array([row[4] for row in rows], pa.uint16()),
            }
        )
        folder = root / "base" / str(repeat) / "timeline" / "link" / name
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part-0.parquet")


def clean_and_lossy() -> list[dict[str, Any]]:
    """A link that delays, and from half a minute on loses: its two segments."""
    loss = {"kind": "independent", "probability": 0.01}
    clean = segment(
        {"delay_ns": 20_000_000},
        100,
        delay_ns=times(20_004_000.0, 900.0, 20_004_000, 20_005_000),
        late_ns=times(4_000.0, 900.0, 4_000, 5_000),
    )
    lossy = segment(
        {"delay_ns": 0, "loss": loss, "rate_bps": 5_000_000},
        10_000,
        {"loss": 300, "queue": 20},
        since_ns=30 * SECOND,
        first_ns=0,
        last_ns=2 * SECOND,
        delay_ns=times(1e6, 2.0, 3, 4),
        late_ns=times(1.0, 2.0, 3, 4),
    )
    return [clean, lossy]
