"""Skew of common starts: how far apart four components begin a phase, from their trace events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

BIN = Path(sys.executable).parent
STARTS = 1000
COMPONENTS = 4

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <loopscope/phase.h>
#include <loopscope/trace.h>

int main(int argc, char **argv)
{
    static char texts[1000][8];
    static const char *names[1001];
    struct loopscope_phases *phases;
    const char *phase;
    int more;

    for (int i = 0; i < 1000; i++) {
        snprintf(texts[i], sizeof texts[i], "p%d", i);
        names[i] = texts[i];
    }
    more = loopscope_phase_connect(&phases, names, argc, argv);
    while (more == 0 && (more = loopscope_phase_next(phases, &phase)) == 1) {
        LOOPSCOPE_EVENT("start", "begun", atoi(phase + 1));
        /* The work of a phase: the first to be done would else disturb the others' beginning. */
        usleep(3000);
        more = loopscope_phase_done(phases);
    }
    if (more != 0)
        fprintf(stderr, "%s\\n", loopscope_phase_error(phases));
    loopscope_phase_close(phases);
    return more != 0;
}
"""


def measure(folder: Path) -> dict[str, Any]:
    """Microseconds from the first to the last component's event, by percentile."""
    (folder / "starter.c").write_text(PROGRAM)
    paths = {**os.environ, "PKG_CONFIG_PATH": str(BIN.parent / "lib/pkgconfig")}
    compile_it = "cc -std=gnu99 -O2 -o starter starter.c $(pkg-config --cflags --libs loopscope)"
    subprocess.run(compile_it, shell=True, check=True, cwd=folder, env=paths)
    hosts = [f"h{number}" for number in range(1, COMPONENTS + 1)]
    lines = ["name: skew", f"hosts: [{', '.join(hosts)}]", "components:"]
    lines += [f"  c{h}: {{host: {h}, run: ./starter, ready: phases}}" for h in hosts]
    lines.append("phases:")
    lines += [f"  - {{name: p{n}, timeout: 20s, common_start: 5ms}}" for n in range(STARTS)]
    file = folder / "skew.yaml"
    file.write_text("\n".join(lines) + "\n")
    words = [BIN / "loopscope", "run", file, "--runs", folder / "runs"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"skipped": done.stderr.strip()[-500:]}
    run = folder / "runs/skew/latest"
    begun = defaultdict(list)
    for table in (run / "base/1/timeline/start/begun").glob("*.parquet"):
        rows = pq.read_table(table, columns=["id", "ts"]).to_pydict()
        for number, ts in zip(rows["id"], rows["ts"], strict=True):
            begun[number].append(ts)
    whole = [times for times in begun.values() if len(times) == COMPONENTS]
    if len(whole) != STARTS:
        return {"skipped": f"{len(whole)} of {STARTS} starts were recorded by all components"}
    (starts,) = json.loads((run / "manifest.json").read_text())["starts"]
    reported = [start["skew_ns"] for start in starts.values()]
    return {
        "starts": STARTS,
        "components": COMPONENTS,
        "skew_us": _percentiles([max(times) - min(times) for times in whole]),
        "reported_us": _percentiles([skew for skew in reported if skew is not None]),
        "not_reported": reported.count(None),
    }


def _percentiles(values: list[int]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1e3
        for name, share in at.items()
    }
