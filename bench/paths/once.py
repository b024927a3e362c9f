"""One reading of a path, in a process of its own: prints what it took as a JSON object."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from paths import events


def _path(kind: str, root: Path) -> tuple[int, int]:
    from loopscope.analysis.message_dag import read_graph
    from loopscope.analysis.messages import read_messages
    from loopscope.timeline import open_run

    run = open_run(root)
    if kind == "list":
        read_messages(run, events.LIST)[0].write(run)
    else:
        read_graph(run, events.GRAPH)[0].write(run)
    rows = run.path_tables["loop"].count().to_pyarrow().as_py()
    return rows, run.hops.count().to_pyarrow().as_py() if kind == "list" else 0


def _query(root: Path) -> tuple[int, int]:
    """The stamps and hops alone, of messages that are unique: less than what a path's table has."""
    import duckdb

    tables = [
        f"read_parquet('{root}/base/1/timeline/{e.group}/{e.name}/*.parquet')"
        for e in events.EVENTS
    ]
    columns = ["t0.id", *(f"t{i}.ts AS ts_{i}, t{i}.err_ns AS err_{i}" for i in range(len(tables)))]
    columns += [f"t{i + 1}.ts - t{i}.ts AS hop_{i}" for i in range(len(tables) - 1)]
    joins = (f"LEFT JOIN {table} t{i} ON t{i}.id = t0.id" for i, table in enumerate(tables) if i)
    statement = f"SELECT {', '.join(columns)} FROM {tables[0]} t0 {' '.join(joins)} ORDER BY t0.ts"
    out = root / "query.parquet"
    duckdb.sql(f"COPY ({statement}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
    rows = duckdb.sql(f"SELECT count(*) FROM '{out}'").fetchone()
    out.unlink()
    return (rows[0] if rows else 0), 0


def main(what: str, kind: str, root: Path) -> None:
    began = time.perf_counter()
    rows, hops = _path(kind, root) if what == "path" else _query(root)
    took = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "seconds": took,
                "cpu_seconds": usage.ru_utime + usage.ru_stime,
                "peak_mb": usage.ru_maxrss / 1024,
                "rows": rows,
                "hops": hops,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
