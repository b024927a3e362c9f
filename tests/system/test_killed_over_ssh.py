"""SIGKILL of the controller or of an agent over SSH at any point, then `reset --hosts`.

Points are those of test_killed_anywhere.py: the calls of the controller to agents, and on each host
the ledger's writes and the calls by which the agent changes the machine. Once the agents have no
rights, and once one has root's and the other what sudo gives.
"""

from __future__ import annotations

import random
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from effort import SOAK, cases
from machine import ROOT, preloaded
from ssh_machines import EVERYTHING, ROOTS_HOME, ROOTS_RUNS, RUNS, USER, SshMachines

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

POINTS = cases(3, 250)
DESK = "desk"
HOSTS = ("h1", "h2")
SETTLE_S = 20.0
WITHOUT_RIGHTS = """\
name: tiny
testbed: ssh
hosts: [h1, h2]
drain: 0s
trace: {kernel: off}
components:
  escaped: {host: h1, run: "sh -c 'setsid sleep 600 & exec sleep 600'", ready: started}
  worker: {host: h2, run: "true", ready: {exit: 0}, start: run}
phases:
  - {name: run, timeout: 10s}
"""
# All that agents make: cgroups, emulated links, settings, and root's also kernel tracing. What has
# cleared its environment is known by its cgroup alone.
WITH_RIGHTS = """\
name: tiny
testbed: ssh
hosts: [h1, h2]
drain: 0s
machines:
  h1:
    user: root
    clock: 192.0.2.11
    settings:
      governor: reno
      interrupts: 0
      sysctls: {net.ipv4.ip_default_ttl: 70, net.ipv4.tcp_rmem: 4096 90000 600000}
      interfaces:
        eth0: {mtu: 1400B, txqueuelen: 77, gso: false, gro_flush_timeout: 20us, qdisc: pfifo}
  h2:
    become: sudo
    clock: 192.0.2.12
    settings:
      sysctls: {net.ipv4.ip_default_ttl: 71}
      interfaces: {lo: {mtu: 9000B}, eth0: {txqueuelen: 78, gro: false, qdisc: pfifo}}
network:
  h1 -> h2: {delay: 1ms}
  h2 -> h1: {delay: 1ms}
trace: {kernel: ["sched:sched_switch", "udp:*"]}
components:
  escaped: {host: h1, run: "sh -c 'env -i setsid sleep 600 & exec sleep 600'", ready: started}
  also: {host: h2, run: "sh -c 'ENVIRONMENT setsid sleep 600 & exec sleep 600'", ready: started}
  worker: {host: h2, run: "true", ready: {exit: 0}, start: run}
phases:
  - {name: run, timeout: 10s}
"""
OWN = f"/home/{USER}/points"
"""Where a machine has the library, and points are written."""
BASHRC = f"/home/{USER}/.bashrc"
CACHE = f"/home/{USER}/.cache/loopscope"
"""Where a machine has the programs that were sent."""
PRELOAD = f"""\
export LD_PRELOAD={OWN}/killed_anywhere.so
export KILL_LOG={OWN}/log
"""
# In place of an interrupt and a governor, which all machines share, are files of the machine's
# network. The kernel keeps their values until others are written, as it does with those.
INTERRUPTS = """set -eu
cpus=/sys/devices/system/cpu own=/proc/sys/net/ipv4
mount -t tmpfs tmpfs /proc/irq
for each in online possible present; do cp $cpus/$each /tmp/; done
mount -t tmpfs tmpfs $cpus
mv /tmp/online /tmp/possible /tmp/present $cpus/
mkdir -p $cpus/cpu0/cpufreq /proc/irq/5
touch $cpus/cpu0/cpufreq/scaling_governor /proc/irq/5/smp_affinity_list
cat $own/tcp_available_congestion_control >$cpus/cpu0/cpufreq/scaling_available_governors
mount --bind $own/tcp_congestion_control $cpus/cpu0/cpufreq/scaling_governor
echo 0-7 >$own/ip_local_reserved_ports
mount --bind $own/ip_local_reserved_ports /proc/irq/5/smp_affinity_list
"""
# What a machine has of each kind, as commands show it. Permanent neighbours: others come and go.
# Sockets by their kind, state and name or port; those of ssh connections come and go.
SHOWN = {
    "link": "ip -o -d link",
    "offload": "! command -v ethtool >/dev/null || ethtool -k eth0",
    "qdisc": "tc qdisc",
    "address": "ip -o address | sed 's/ tentative//'",
    "route": "ip route show table all; ip -6 route show table all",
    "rule": "ip rule; ip -6 rule",
    "neighbour": "ip neighbour show nud permanent; ip neighbour show proxy",
    "mount": "cut -d' ' -f4- /proc/self/mountinfo",
    "sysctl": "sysctl -a --pattern '^net[.]' 2>/dev/null",
    "setting": "cd /sys; grep -s . class/net/*/gro_flush_timeout class/net/*/napi_defer_hard_irqs "
    "devices/system/cpu/cpu*/cpufreq/scaling_governor /proc/irq/*/smp_affinity_list",
    "file": "find /home /run /tmp /dev/shm -xdev "
    + "".join(f"-path '{each}' -prune -o " for each in (OWN, "/home/*/.cache", RUNS, ROOTS_RUNS))
    + "-print",
    "socket": "ss -aHntux | grep -v ':22 ' | tr -s ' ' | cut -d' ' -f1,2,5",
}
# Those of all machines, which are one kernel's; on a folder that nothing else is in.
KERNELS = """
mount -t tracefs tracefs "$0" && ls "$0/instances"
mount -t cgroup2 cgroup2 "$0" && find "$0" -type d -name 'ls-*'
"""
# What commands print after a run was killed.
STATUS = re.compile(r"tiny: (?!goes on).*\n  runs/tiny/2.*\n(  .*\n)*")
RESET = re.compile(r"(removed: .*\n)+|nothing to remove\n")


@dataclass
class Case:
    """An experiment, and for each host the file of variables that its agent is started with.

    ``undoes`` is what at least one of many resets has to undo.
    """

    experiment: str
    variables: dict[str, str]
    undoes: tuple[str, ...]


CASES = {
    "without rights": Case(WITHOUT_RIGHTS, {"h1": BASHRC, "h2": BASHRC}, ("host h",)),
    "with rights": Case(
        WITH_RIGHTS,
        {"h1": f"{ROOTS_HOME}/.bashrc", "h2": f"{OWN}/sudo"},
        ("host h1: ", "host h2: "),
    ),
}


def prepare(machines: SshMachines, variables: dict[str, str], library: Path) -> None:
    """Gives each machine interrupts and the library, and keeps its file of variables as it is."""
    for host, file in variables.items():
        machines.on(host, INTERRUPTS)
        target = Path(f"/proc/{machines.sshd[host].pid}/root{OWN}")
        machines.on(host, f"mkdir {OWN}; touch {file}; cp {file} {OWN}/before")
        (target / library.name).write_bytes(library.read_bytes())
        machines.on(host, f"chmod 755 {OWN}/*; chown -R {USER} {OWN}")


def give_rights(machines: SshMachines, cgroup: Path | None) -> None:
    """Lets root log in to h1, and the user of h2 call sudo and divide a cgroup.

    sudo passes on no variables; it has those of a file.
    """
    passwd = machines.passwd.read_text()
    # A shell that reads .bashrc.
    machines.passwd.write_text(passwd.replace("/home/root:/bin/sh", "/home/root:/bin/bash"))
    machines.allow("h2", f"{EVERYTHING}\nDefaults env_file={OWN}/sudo")
    if cgroup is None:
        return
    for host in HOSTS:
        (cgroup / host).mkdir()
        (cgroup / host / "cgroup.procs").write_text(f"{machines.sshd[host].pid}")
    # h1 has no hierarchy mounted; the user of h2 has a group of their own.
    mounted = f"mount -t cgroup2 cgroup2 /sys/fs/cgroup && cd /sys/fs/cgroup/{cgroup.name}/h2"
    machines.on("h2", f"{mounted} && chown {USER} . cgroup.procs")


class Desk:
    """Runs the experiment on the desk for as long as the context lasts."""

    def __init__(self, machines: SshMachines, variables: dict[str, str]) -> None:
        self._machines = machines
        self._variables = variables
        self._log, self._output = (machines.directory / name for name in ("log", "output"))
        program = ROOT / "tests/system/killed_over_ssh.py"
        words = (sys.executable, program, "tiny.yaml", self._log, self._output)
        self._process = subprocess.Popen(
            machines.on_desk(*words),
            cwd=machines.directory,
            env=machines.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, where: str, kill_at: int, more: str) -> dict[str, int]:
        """Runs it, killed at a point of the desk or of a host; how many points each had."""
        on = self._machines.on
        for host, file in self._variables.items():
            lines = [f"KILL_AT={kill_at}", *more.split()] if host == where else []
            given = shlex.quote(PRELOAD + "".join(f"export {line}\n" for line in lines))
            on(host, f"cp {OWN}/before {file}; printf %s {given} >>{file}")
            on(host, f":>{OWN}/log; chmod 666 {OWN}/log")
        self._log.write_bytes(b"")
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{kill_at if where == DESK else -1}\n")
        self._process.stdin.flush()
        status = self._process.stdout.readline()
        printed = self._output.read_text()
        assert kill_at >= 0 or status == "0\n", status + printed
        assert "Traceback" not in printed, printed
        points = {DESK: len(self._log.read_text().splitlines())}
        for host, file in self._variables.items():
            points[host] = int(on(host, f"cp {OWN}/before {file}; wc -l <{OWN}/log"))
        return points


def traces(machines: SshMachines) -> list[str]:
    """All that is on the hosts and on the desk, without spools that are noted, programs sent."""
    found = machines.leftovers()
    script = "".join(f"{{ {how}; }} | sed 's/^/{kind}: /'\n" for kind, how in SHOWN.items())
    for host in HOSTS:
        found += [f"{host}: {each}" for each in machines.on(host, script).splitlines()]
    folder = machines.directory / "kernel"
    folder.mkdir(exist_ok=True)
    look = ["unshare", "-m", "sh", "-c", KERNELS, folder]
    names = subprocess.run(look, capture_output=True, text=True, check=True).stdout.splitlines()
    found += [f"kernel: {name}" for name in names]
    # Other tests have some, too. A machine has the mounts that the desk had when it was booted.
    shared = re.compile(r"kernel: |h\d: mount: \S+ /(run|tmp|home|dev/shm)/")
    tokens = [path.name.rpartition("-")[2] for path in machines.directory.glob("runs/tiny/2*")]
    return sorted(
        each for each in found if not shared.match(each) or any(token in each for token in tokens)
    )


def differences(machines: SshMachines, before: list[str]) -> list[str]:
    """What is not as before, once processes that have been told to end have ended."""
    end = time.monotonic() + SETTLE_S
    while (now := traces(machines)) != before and time.monotonic() < end:
        time.sleep(0.05)
    return [f"{each} is new" for each in now if each not in before] + [
        f"{each} is gone" for each in before if each not in now
    ]


def commands_after(machines: SshMachines, on_desk: bool) -> tuple[str, list[str]]:
    """What commands print of a run that was killed when they undo it, and what is wrong with it."""
    asked = [(["reset", "--hosts", "tiny.yaml"], RESET)]
    if on_desk:
        # What is on the desk is undone by `reset` without hosts.
        asked = [(["status"], STATUS), *asked, (["reset"], RESET)]
    printed, wrong = "", []
    for words, expected in asked:
        done = machines.command(*words)
        if done.returncode != 0 or done.stderr or not expected.fullmatch(done.stdout):
            wrong.append(f"{words}: {done.returncode}: {done.stdout}{done.stderr}")
        printed += done.stdout
    return printed, wrong


def check(machines: SshMachines, desk: Desk, seed: str, undoes: tuple[str, ...]) -> None:
    """Kills runs at points that the seed draws, and compares what is there after each.

    ``undoes``: beginnings of what `reset` has to undo at least once.
    """
    points = desk.run(DESK, -1, "")
    assert all(number > 10 for number in points.values()), points
    before = traces(machines)
    drawn = random.Random(seed)
    killed, wrong, undone = 0, [], ""
    for number in range(POINTS):
        where = ("h2", DESK, "h1")[number % 3]
        kill_at = drawn.randrange(points[where])
        # A host loses its agent or the process that was started, with its guardian or without.
        more = ("KILL_GUARDIAN=1", "", "KILL_SELF=1 KILL_GUARDIAN=1", "KILL_SELF=1")[number % 4]
        killed += desk.run(where, kill_at, more)[where] > kill_at
        printed, problems = commands_after(machines, where == DESK)
        undone += printed
        problems += differences(machines, before)
        what = f"seed {seed}, number {number}, point {kill_at} of {where} {more}"
        wrong += [f"{what}: {each}" for each in problems]
        if problems:
            # So that the next one is judged by itself.
            before = traces(machines)
    # The order of calls differs a little between runs.
    assert killed > POINTS // 2, f"only {killed} of {POINTS} were killed"
    assert not wrong, "\n".join(wrong)
    for text in undoes:
        assert f"removed: {text}" in undone, f"reset never had to remove {text}: nothing is tested"


@pytest.mark.parametrize("name", CASES)
def test_killed_at_any_point_over_ssh(
    cgroup: Path | None, machines: SshMachines, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    has_rights = case is not CASES["without rights"]
    if has_rights:
        give_rights(machines, cgroup)
    machines.write(
        "tiny.yaml", case.experiment.replace("ENVIRONMENT", "" if cgroup is None else "env -i")
    )
    seed = secrets.token_hex(4) if SOAK else "3"
    with Desk(machines, case.variables) as desk:
        prepare(machines, case.variables, preloaded("killed_anywhere", tmp_path))
        check(machines, desk, seed, case.undoes)
    done = machines.command("reset", "--hosts", "tiny.yaml", "--data")
    assert done.returncode == 0, done.stderr
    for host, place in (("h1", RUNS), ("h1", ROOTS_RUNS), ("h2", RUNS)):
        assert machines.on(host, f"ls {place}", check=False) == ""
    if has_rights:
        done = machines.command("host", "setup", "--remove", "h2")
        assert done.returncode == 0, done.stderr


def test_killed_as_it_first_sends_its_programs(machines: SshMachines) -> None:
    """The controller is killed before agents and ledgers exist; the next run sends all again."""
    machines.write("tiny.yaml", WITHOUT_RIGHTS)
    caches = [Path(f"/proc/{machines.sshd[host].pid}/root{CACHE}") for host in HOSTS]

    def drafts() -> list[Path]:
        return [each for cache in caches for each in cache.glob("kit-*.*")]

    def wait_until(is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + SETTLE_S
        while not is_so():
            assert time.monotonic() < end, what
            time.sleep(0.001)

    def run_whole() -> None:
        done = machines.command("run", "tiny.yaml")
        assert done.returncode == 0, done.stderr

    began = time.monotonic()
    run_whole()
    longest = (time.monotonic() - began) / 4
    drawn = random.Random(secrets.token_hex(4) if SOAK else "3")
    in_time, wrong = 0, []
    before = traces(machines)
    for number in range(cases(2, 200)):
        done = machines.command("reset", "--hosts", "tiny.yaml", "--cache")
        assert done.returncode == 0, done.stderr
        process = machines.start("run", "tiny.yaml")
        wait_until(lambda: bool(drafts()), "nothing is sent")
        if number > 0:
            # The first is killed as soon as a draft is there, so that one certainly is in time.
            time.sleep(longest * drawn.random() ** 3)
        in_time += bool(drafts())
        process.kill()
        process.communicate()
        wait_until(lambda: not drafts(), f"left: {drafts()}")
        _, problems = commands_after(machines, on_desk=True)
        wrong += [f"number {number}: {each}" for each in problems + differences(machines, before)]
    run_whole()
    assert in_time, "none was killed as it sent"
    assert not wrong, "\n".join(wrong)
