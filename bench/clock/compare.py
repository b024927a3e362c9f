"""Probe logs through loopscope's estimator and through others' published rules.

``compare.py`` alone takes virtual logs: all scenarios of crates/clocksync/tests/virtual_time.txt or
those named. ``compare.py HOSTS REFERENCE SEED`` takes those of a run: its ``hosts/`` directory, the
reference's name and the seed of its synthetic clocks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples import example  # noqa: E402

PEERS = {"chrony": "as chrony", "radclock": "as RADclock"}
PARTS = ("p50", "p99", "p999", "max")

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
SECONDS = 20
SEED = 20071213

EXPERIMENT = {
    "name": "clocks",
    "hosts": ["h1", "h2"],
    "clocks": {"synthetic": {"seed": SEED}},
    "phases": [
        {"name": "listen", "timeout": "10s"},
        {"name": "connect", "timeout": "10s"},
        {"name": "run", "measured": True, "timeout": f"{SECONDS + 60}s"},
    ],
    "components": {
        "work": {"host": "h1", "run": f"sleep {SECONDS}", "ready": {"exit": 0}, "start": "run"}
    },
}
# Every CPU busy, and the data network full.
LOAD = {
    "burn": {"host": "h2", "run": f"loopscope-host burn --threads {os.cpu_count()}"},
    "bulk": {"host": "h2", "run": "loopscope-host ettcp send", "with": {"to": "taker"}},
    "taker": {"host": "h1", "run": "loopscope-host ettcp receive"},
}


def measure() -> dict[str, Any]:
    """One recorded log through all of them, idle and with load; or why it was skipped."""
    if os.geteuid() != 0:
        return {"skipped": "probes between namespaces need root"}
    loaded = {**EXPERIMENT, "components": {**EXPERIMENT["components"], **LOAD}}
    return {"idle": _recorded("idle", EXPERIMENT), "loaded": _recorded("loaded", loaded)}


def _recorded(name: str, experiment: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="loopscope-bench-") as directory:
        file, runs = Path(directory) / f"{name}.yaml", Path(directory) / "runs"
        file.write_text(yaml.safe_dump(experiment, sort_keys=False))
        words = [LOOPSCOPE, "run", file, "--json", "--runs", runs]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
        [compared] = compare(str(runs / "clocks/latest/base/1/hosts"), "h1", str(SEED))
    return compared


def compare(*words: str) -> list[dict[str, Any]]:
    """What crates/clocksync/examples/compare says of its logs, and the others' errors as ratios."""
    done = subprocess.run(
        [example("compare"), *words], check=True, stdout=subprocess.PIPE, text=True
    )
    logs: list[dict[str, Any]] = json.loads(done.stdout)
    for log in logs:
        ours = log["errors"]["online"]
        log["ratios"] = {
            peer: {part: round(theirs / ours[part], 3) for part, theirs in errors.items()}
            for peer, errors in log["errors"].items()
            if peer in PEERS
        }
    return logs


def lines(log: dict[str, Any]) -> Iterator[str]:
    """A log for people."""
    yield (
        f"{log['name']}: {log['exchanges']} exchanges, {log['rejected']} rejected, "
        f"{log['disturbances']} disturbances, {log['instants']} instants"
    )
    for who, said in {"offline": "offline", "online": "online", **PEERS}.items():
        errors, times = log["errors"][who], log["ratios"].get(who)
        told = "  ".join(f"{part} {errors[f'{part}_ns']:>9.0f}" for part in PARTS)
        beside = f"   {times['p50_ns']:.2f} and {times['p999_ns']:.2f} times" if times else ""
        yield f"  {said:12} {told} ns{beside}"
    end, times = log["at_the_end"], log["milliseconds"]
    for who in ("offline", "online"):
        at_the_end = "  ".join(f"{part} {end[who][f'{part}_ns']:>6.0f}" for part in ("p50", "p99"))
        yield (
            f"  {who:12} {at_the_end} ns at the end of what it was given, "
            f"{times[who]:.1f} ms for all exchanges"
        )
    for change in log["path_changes"]:
        yield f"  online: {change}"
    yield (
        f"  offline maximum error: hard {log['hard_half_width_ns']:.0f} ns, calibrated "
        f"{log['calibrated_half_width_ns']:.0f} ns, covering {log['calibrated_coverage']:.1%}; "
        f"outside the hard width: {log['violations']['offline']} offline, "
        f"{log['violations']['online']} online"
    )


def main(words: list[str]) -> int:
    for log in compare(*(str(Path(word).resolve()) if "/" in word else word for word in words)):
        print(*lines(log), sep="\n")
    print("Times: the others' p50 and p99.9 in online's.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
