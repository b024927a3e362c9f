"""The controller alone, with many agents that answer at once.

``python -m control.controller FOLDER`` prints the seconds of its barriers and its peak memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from targets import spread

from loopscope import __version__
from loopscope.control import BASE, Interruption, RunDirectory, Silent
from loopscope.control import measure as run
from loopscope.experiment import load
from loopscope.provider import CLOCK, DATA, Agent, Host, Request, Testbed

AGENTS = 300
PHASES = [f"p{number}" for number in range(10)]


class Simulated(Testbed):
    """Hosts whose agents are another process's."""

    def __init__(self, folder: Path, request: Request) -> None:
        super().__init__()
        self._folder = folder
        self._names = request.hosts

    async def make(self) -> None:
        """Connects to the agents."""
        for number, name in enumerate(self._names, start=1):
            address = f"192.0.{number // 256}.{number % 256}"
            agent = Agent(name, self._folder / f"{name}.sock")
            self.hosts[name] = Host(name, agent, {DATA: (address,), CLOCK: (address,)})

    async def fetch(self) -> None:
        """Nothing was measured."""

    async def remove(self) -> None:
        """Closes the connections."""
        for host in self.hosts.values():
            await host.agent.close()


def _control(folder: Path) -> dict[str, Any]:
    hosts = [f"h{number}" for number in range(1, AGENTS + 1)]
    lines = ["name: barriers", f"hosts: [{', '.join(hosts)}]", "clock: {mesh: false}"]
    lines.append("network: {data: 10.77.0.0/16, clock: 10.78.0.0/16}")
    lines.append("components:")
    lines += [f"  c{number}: {{host: {host}, run: c}}" for number, host in enumerate(hosts)]
    lines.append("phases:")
    lines += [f"  - {{name: {name}, timeout: 20s}}" for name in PHASES]
    file = folder / "barriers.yaml"
    file.write_text("\n".join(lines) + "\n")
    experiment = load(file)
    words = [sys.executable, "-m", "control.simulated_agents", folder, ",".join(PHASES), AGENTS]
    agents = subprocess.Popen(
        list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert agents.stdin is not None and agents.stdout is not None
    try:
        if agents.stdout.readline() != "ready\n":
            raise RuntimeError("the simulated agents did not start")
        progress = Silent()
        directory = RunDirectory(folder / "runs", experiment, file.read_bytes(), __version__)
        run(
            experiment,
            lambda request: Simulated(folder, request),
            directory,
            BASE,
            0,
            progress,
            Interruption(progress),
        )
    finally:
        agents.stdin.close()
        agents.wait()
    manifest = json.loads((directory.path / "manifest.json").read_text())
    return {
        "agents": AGENTS,
        "barrier_s": spread(list(manifest["phases"][0].values())),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    print(json.dumps(_control(Path(sys.argv[1]))))
