"""Runs the benchmarks, prints their ratios and stores them under bench/results/.

``run.py`` runs all but those that take minutes; ``run.py NAME…`` some figures, or all of ``trace``,
``timeline``, ``network``, ``clock``, ``paths``, ``control``, ``kernel``, ``stm`` or ``stack``;
bench/README.md names them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH / "trace"))

import clock  # noqa: E402
import clock.table  # noqa: E402
import control  # noqa: E402
import control.table  # noqa: E402
import kernel  # noqa: E402
import kernel.table  # noqa: E402
import measure  # noqa: E402
import measured_machine  # noqa: E402
import network  # noqa: E402
import network.table  # noqa: E402
import paths  # noqa: E402
import paths.table  # noqa: E402
import stack  # noqa: E402
import stack.table  # noqa: E402
import stm  # noqa: E402
import stm.table  # noqa: E402
import table  # noqa: E402
import targets  # noqa: E402
import timeline  # noqa: E402
import timeline.table  # noqa: E402

PREFIX = Path(sys.executable).parents[1]
GROUPS = {
    "trace": measure.FIGURES,
    "timeline": timeline.FIGURES,
    "network": network.FIGURES,
    "clock": clock.FIGURES,
    "paths": paths.FIGURES,
    "control": control.FIGURES,
    "kernel": kernel.FIGURES,
    "stm": stm.FIGURES,
    "stack": stack.FIGURES,
}

# Mount and process namespaces: /run and /dev/shm are the bench's own, and when it ends nothing that
# it started goes on.
ISOLATE = 'mount -t tmpfs bench /run && mount -t tmpfs -o size=75% bench /dev/shm && exec "$@"'


def isolated() -> list[str]:
    """Words that run a command in namespaces of its own; none where that is not allowed."""
    words = ["setpriv", "--pdeathsig", "KILL"]  # Whatever ends this program ends them.
    words += ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        words += ["--user", "--map-root-user"]
    words += ["sh", "-c", ISOLATE, "sh"]
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return []
    tried = subprocess.run([*words, "true"], capture_output=True, check=False)
    return words if tried.returncode == 0 else []


def run_isolated(program: list[str | Path], environment: dict[str, str]) -> dict[str, Any]:
    """What a program of the bench's prints, in namespaces of its own where there are any."""
    return run_program(program, environment, isolated())


def run_program(
    program: list[str | Path], environment: dict[str, str], within: Sequence[str] = ()
) -> dict[str, Any]:
    """What a program of the bench's prints; `within`: words that run a command."""
    done = subprocess.run(
        [*within, sys.executable, *program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(BENCH), **environment},
    )
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def trace(wanted: list[str]) -> dict[str, Any]:
    """What tracing costs: bench/trace/measure.py."""
    environment = {}
    if not isolated():
        print("trace: no namespaces here, so no session daemon of LTTng's", file=sys.stderr)
        environment[measure.WITHOUT_PEER] = "this machine allows no namespaces for its daemon"
    return run_isolated([BENCH / "trace/measure.py", *wanted], environment)


def main(wanted: list[str]) -> int:
    wanted = [figure for name in wanted for figure in GROUPS.get(name, (name,))]
    known = [figure for group in GROUPS.values() for figure in group]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}: {', '.join(known)}", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    results: dict[str, Any] = {
        "taken": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": measured_machine.describe(),
        "load_before": round(load, 2),
    }
    before = measured_machine.cpu_time()
    judged: list[targets.Row] = []
    if load > 0.5:
        print(f"the machine is not idle (load {load:.2f}): expect worse tails and rates")
    of_trace = [name for name in wanted if name in measure.FIGURES]
    if of_trace or not wanted:
        found = results["trace"] = trace(of_trace)
        print(table.render(found))
        judged += targets.rows(table.PARTS, found)
        results["notes"] = list(table.notes(found))
    for name, parts, notes in (
        ("timeline", timeline.table.PARTS, timeline.table.notes),
        ("network", network.table.PARTS, network.table.notes),
        ("clock", clock.table.PARTS, clock.table.notes),
        ("paths", paths.table.PARTS, paths.table.notes),
        ("control", control.table.PARTS, control.table.notes),
        ("kernel", kernel.table.PARTS, kernel.table.notes),
        ("stm", stm.table.PARTS, stm.table.notes),
        ("stack", stack.table.PARTS, stack.table.notes),
    ):
        of_group = [figure for figure in wanted if figure in GROUPS[name]]
        if of_group or not wanted:
            run = run_program if name in ("kernel", "stm", "stack") else run_isolated
            found = results[name] = run(["-m", name, *of_group], {})
            rows, said = targets.rows(parts, found), list(notes(found))
            print(targets.render(rows, said))
            judged += rows
            results.setdefault("notes", []).extend(said)
    results["verdicts"] = targets.verdicts(judged)
    results["steal"] = measured_machine.stolen_share(before)
    place = BENCH / "results"
    place.mkdir(exist_ok=True)
    file = place / f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}.json"
    file.write_text(json.dumps(results, indent=2) + "\n")
    print(f"stored: bench/results/{file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
