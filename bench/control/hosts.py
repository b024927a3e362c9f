"""The local testbed with many hosts: the time to make and to remove them, and their memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from targets import spread

from loopscope.provider import CLOCK, DATA, Request, TestbedError
from loopscope.testbed.local import LocalTestbed

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
HOSTS = 100
ROUNDS = 5
COMPONENTS = 1000
NAMESPACES = Path("/run/netns")

SLEEPER = """
#include <unistd.h>
int main(void) { for (;;) pause(); }
"""


def up_and_down(folder: Path) -> dict[str, Any]:
    """Seconds until 100 hosts have agents that answer, and until they are gone; agents' memory."""
    up, down, pss = [], [], []
    try:
        for number in range(ROUNDS):
            made, removed, memory = asyncio.run(_once(folder / str(number), f"bench{number}"))
            up.append(made)
            down.append(removed)
            pss.append(memory)
    except TestbedError as error:
        return {"skipped": str(error)}
    return {
        "hosts": HOSTS,
        "up_s": spread(up),
        "down_s": spread(down),
        "pss_bytes_per_agent": spread(pss),
        "floor_s": _floor(),
    }


async def _once(directory: Path, run: str) -> tuple[float, float, float]:
    directory.mkdir()
    request = Request(
        run_id=run,
        hosts=[f"h{number}" for number in range(1, HOSTS + 1)],
        directory=directory,
        folder=str(directory),
        files=[],
        networks={DATA: "10.77.0.0/16", CLOCK: "10.78.0.0/16"},
        data_mtu=None,
        hidden_clocks=None,
        router=False,
        probes_on_data=False,
    )
    bed = LocalTestbed(request)
    began = time.monotonic()
    await bed.make()
    try:
        await asyncio.gather(*(host.agent.hello() for host in bed.hosts.values()))
        made = time.monotonic() - began
        memory = pss_of_agents(run)
    finally:
        began = time.monotonic()
        await bed.remove()
    while any(each.name.startswith(f"ls-{run}-") for each in NAMESPACES.iterdir()):
        await asyncio.sleep(0.001)
    return made, time.monotonic() - began, memory


def pss_of_agents(run: str | None = None) -> float:
    """Mean proportional set size of the hosts' agents of a run, or of all, in bytes."""
    sizes = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"--netns" in words and (run is None or run.encode() in words):
                lines = (process / "smaps_rollup").read_text().splitlines()
                sizes += [int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")]
        except OSError:
            continue
    return sum(sizes) / len(sizes)


def _floor() -> dict[str, float]:
    """Seconds that the kernel needs for as many namespaces, each with two links to a bridge."""
    names = [f"floor{number}" for number in range(HOSTS)]
    lines = ["link add floorbr type bridge"]
    for number, name in enumerate(names):
        for link in "dc":
            lines.append(f"link add {link}{number} type veth peer name {link}eth netns {name}")
            lines.append(f"link set {link}{number} master floorbr up")
    made = "\n".join([*(f"ip netns add {name}" for name in names), "ip -batch -"])
    removed = "\n".join(f"ip netns delete {name}" for name in names)
    rounds = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        # The bridge is in a namespace of its own, which ends with the script, however that ends.
        script = ["unshare", "--net", "sh", "-ec", made]
        try:
            subprocess.run(script, input="\n".join(lines), text=True, check=True)
            rounds.append(time.monotonic() - began)
        finally:
            subprocess.run(["sh", "-c", removed], check=True)
    return spread(rounds)


def components(folder: Path) -> dict[str, Any]:
    """Seconds until 1000 C programs run on 100 hosts, from the run's journal."""
    (folder / "sleeper.c").write_text(SLEEPER)
    subprocess.run(["cc", "-O2", "-o", folder / "sleeper", folder / "sleeper.c"], check=True)
    hosts = [f"h{number}" for number in range(1, HOSTS + 1)]
    lines = ["name: many", f"hosts: [{', '.join(hosts)}]", "components:"]
    for number in range(COMPONENTS):
        host = hosts[number % HOSTS]
        lines.append(f"  c{number}: {{host: {host}, run: ./sleeper, ready: started}}")
    lines.append("phases: [{name: run, timeout: 20s}]")
    file = folder / "many.yaml"
    file.write_text("\n".join(lines) + "\n")
    rounds = []
    for _ in range(3):
        words = [LOOPSCOPE, "run", file, "--runs", folder / "runs"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return {"skipped": done.stderr.strip()[-500:]}
        journal = folder / "runs/many/latest/base/1/journal.jsonl"
        entries = [json.loads(line) for line in journal.read_text().splitlines()]
        began = next(e["at_s"] for e in entries if e.get("stage") == "starting components")
        running = next(e["at_s"] for e in entries if e.get("phase") == "run")
        rounds.append(running - began)
    return {"components": COMPONENTS, "hosts": HOSTS, "seconds": spread(rounds)}
