"""SIGKILL of the controller or of an agent over SSH at any point, then `reset --hosts`.

Points are those of test_killed_anywhere.py: the calls of the controller to agents, and on each host
the ledger's writes and the calls by which the agent changes the machine.
"""

from __future__ import annotations

import random
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from effort import SOAK, cases
from machine import ROOT, preloaded
from ssh_machines import RUNS, USER, SshMachines

pytestmark = pytest.mark.usefixtures("root")

POINTS = cases(3, 60)
DESK = "desk"
SETTLE_S = 20.0
RUN_S = 90.0
EXPERIMENT = """\
name: tiny
testbed: ssh
hosts: [h1, h2]
trace: {kernel: off}
components:
  escaped: {host: h1, run: "sh -c 'setsid sleep 600 & exec sleep 600'", ready: started}
  worker: {host: h2, run: "true", ready: {exit: 0}, start: run}
phases:
  - {name: run, timeout: 10s}
"""
# Where the machine's programs find the library and write their points.
HOME = f"/home/{USER}"
OWN = f"{HOME}/points"
PRELOAD = f"""\
export LD_PRELOAD={OWN}/killed_anywhere.so KILL_LOG={OWN}/log KILL_AT=KILLED
"""


def prepare(machines: SshMachines, library: Path) -> None:
    for host in ("h1", "h2"):
        target = Path(f"/proc/{machines.sshd[host].pid}/root{OWN}")
        machines.on(host, f"mkdir {OWN}; cp {HOME}/.bashrc {OWN}/bashrc")
        (target / library.name).write_bytes(library.read_bytes())
        machines.on(host, f"chmod 755 {OWN}/*; chown -R {USER} {OWN}")


def run(machines: SshMachines, file: Path, where: str, kill_at: int, more: str) -> dict[str, int]:
    """Runs the experiment, killed at a point of the desk or of a host; how many points each had."""
    for host in ("h1", "h2"):
        given = PRELOAD.replace("KILLED", str(kill_at if host == where else -1))
        line = shlex.quote(given + (f"export {more}\n" if more and host == where else ""))
        machines.on(host, f"cp {OWN}/bashrc {HOME}/.bashrc; printf %s {line} >>{HOME}/.bashrc")
        machines.on(host, f": >{OWN}/log; chmod 666 {OWN}/log")
    log = machines.directory / "log"
    log.write_bytes(b"")
    program = ROOT / "tests/system/killed_over_ssh.py"
    at = kill_at if where == DESK else -1
    done = subprocess.run(
        machines.on_desk(sys.executable, program, file, log, str(at)),
        cwd=machines.directory,
        env=machines.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert kill_at >= 0 or done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    for host in ("h1", "h2"):
        machines.on(host, f"cp {OWN}/bashrc {HOME}/.bashrc")
    points = {host: machines.on(host, f"wc -l <{OWN}/log") for host in ("h1", "h2")}
    return {DESK: len(log.read_text().splitlines())} | {h: int(n) for h, n in points.items()}


def traces(machines: SshMachines) -> list[str]:
    """All that is on the hosts and on the desk, without spools that are noted, programs sent."""
    found = machines.leftovers()
    for host in ("h1", "h2"):
        besides = f"-path {RUNS} -prune -o -path {HOME}/.cache -prune -o -path {OWN} -prune"
        files = machines.on(host, f"find {HOME} /home/root /run /tmp /dev/shm {besides} -o -print")
        # Sockets by their kind, state and name or port; those of ssh connections come and go.
        sockets = machines.on(host, "ss -aHntux | grep -v ':22 ' | tr -s ' ' | cut -d' ' -f1,2,5")
        found += [f"{host}: {each}" for each in (files + sockets).splitlines()]
    return sorted(found)


def differences(machines: SshMachines, before: list[str]) -> list[str]:
    """What is not as before, once processes that have been told to end have ended."""
    end = time.monotonic() + SETTLE_S
    while (now := traces(machines)) != before and time.monotonic() < end:
        time.sleep(0.05)
    return [f"{each} is new" for each in now if each not in before] + [
        f"{each} is gone" for each in before if each not in now
    ]


def test_killed_at_any_point_over_ssh(machines: SshMachines, tmp_path: Path) -> None:
    file = machines.write("tiny.yaml", EXPERIMENT)
    prepare(machines, preloaded("killed_anywhere", tmp_path))
    points = run(machines, file, DESK, -1, "")
    assert all(count > 10 for count in points.values()), points
    before = traces(machines)
    seed = secrets.token_hex(4) if SOAK else "3"
    drawn = random.Random(seed)
    killed, wrong, undone = 0, [], ""
    for number in range(POINTS):
        where = ("h2", DESK, "h1")[number % 3]
        kill_at = drawn.randrange(points[where])
        # A host loses its agent or the process that was started, with its guardian or without.
        more = ("", "KILL_SELF=1", "KILL_GUARDIAN=1", "KILL_SELF=1 KILL_GUARDIAN=1")[number % 4]
        killed += run(machines, file, where, kill_at, more)[where] > kill_at
        what = f"seed {seed}, point {kill_at} of {where} {more}"
        # What is on the desk is undone by `reset` without hosts.
        for words in (["reset", "--hosts", file], ["reset"]):
            done = machines.command(*words)
            undone += done.stdout
            if done.returncode != 0:
                wrong.append(f"{what}: {words}: {done.stdout}{done.stderr}")
        wrong += [f"{what}: {each}" for each in differences(machines, before)]
    # The order of calls differs a little between runs.
    assert killed > POINTS // 2, f"only {killed} of {POINTS} were killed"
    assert not wrong, "\n".join(wrong)
    assert "removed: host h" in undone, "reset had nothing to undo on any host: nothing is tested"
    done = machines.command("reset", "--hosts", file, "--data")
    assert done.returncode == 0, done.stderr
    assert [machines.on(host, f"ls {RUNS}", check=False) for host in ("h1", "h2")] == ["", ""]
