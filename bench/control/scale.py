"""How many hosts work on one machine: 200 in a ring of emulated links, and 1000 without links.

Of the 1000, two exchange messages: the clocks of the others take all that two processors have.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from control.hosts import LOOPSCOPE, pss_of_agents

LINKED, PLAIN = 200, 1000
SENT = 50
TIMEOUT_S = 600


def measure(folder: Path) -> dict[str, Any]:
    """Seconds of a whole run, memory of an agent, and what arrived, for both testbeds."""
    return {"linked": _run(folder, LINKED, linked=True), "plain": _run(folder, PLAIN, linked=False)}


def _experiment(hosts: int, linked: bool) -> str:
    """Each host sends to the next one through a link that delays by 5 ms; else the first alone."""
    names = [f"h{number}" for number in range(1, hosts + 1)]
    ring = list(zip(names, [*names[1:], names[0]], strict=True))
    lines = [f"name: scale{hosts}", f"hosts: [{', '.join(names)}]"]
    lines += ["network:", "  data: 10.77.0.0/16", "  clock: 10.78.0.0/16"]
    if linked:
        lines += [f"  {a} -> {b}: {{delay: 5ms}}" for a, b in ring]
    lines.append("components:")
    sent = "interval: 100ms, size: 100B, duration: 5s"
    for a, b in ring if linked else ring[:1]:
        lines.append(f"  s_{a}: {{host: {a}, run: loopscope-host pace send,")
        lines.append(f"    with: {{to: r_{b}, {sent}}}}}")
        lines.append(f"  r_{b}: {{host: {b}, run: loopscope-host pace receive}}")
    lines += ["phases:", *(f"  - {{name: {name}, timeout: 60s}}" for name in ("listen", "connect"))]
    lines += ["  - {name: run, measured: true, timeout: 60s}", 'trace: {user: ["pace:*"]}']
    return "\n".join(lines) + "\n"


def _run(folder: Path, hosts: int, *, linked: bool) -> dict[str, Any]:
    file = folder / f"scale{hosts}.yaml"
    file.write_text(_experiment(hosts, linked))
    memory = float("nan")
    began = time.monotonic()
    process = subprocess.Popen(
        [LOOPSCOPE, "run", file, "--runs", folder / "runs"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    watch = threading.Timer(TIMEOUT_S, process.terminate)
    watch.start()
    said = []
    for line in process.stderr:
        said.append(line)
        if "phase run" in line:
            memory = pss_of_agents()
    watch.cancel()
    seconds = time.monotonic() - began
    if process.wait() != 0:
        return {"hosts": hosts, "skipped": "".join(said)[-500:]}
    repeat = folder / f"runs/scale{hosts}/latest/base/1"
    return {
        "hosts": hosts,
        "seconds": seconds,
        "pss_bytes_per_agent": memory,
        **(_links(repeat) if linked else {}),
    }


def _links(repeat: Path) -> dict[str, Any]:
    """Packets that came to the links and that left them."""
    file = repeat / "hosts/_router/components/_links/files/links.json"
    segments = [part for each in json.loads(file.read_text())["links"] for part in each["segments"]]
    return {
        "came": sum(part["in"]["packets"] for part in segments),
        "left": sum(part["out"]["packets"] for part in segments),
    }


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1])), indent=2))
