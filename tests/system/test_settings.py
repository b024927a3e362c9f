"""Settings of a machine: other values while a run lasts, and its own ones again afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ssh_machines import EVERYTHING, SshMachines, parent_of
from tuned_machine import TunedMachine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

# The program goes on until there is a file `over`.
EXPERIMENT = """
name: tuned
hosts: [h1]
settings: {settings}
components:
  program: {{host: h1, run: "sh -c '{command}'", start: run, ready: {{exit: 0}}}}
phases: [{{name: run, timeout: 60s}}]
trace: {{kernel: off}}
"""
WAITS = "touch {0}/began; until [ -e {0}/over ]; do sleep 0.02; done"
TTL = "/proc/sys/net/ipv4/ip_default_ttl"
ETH1 = "/sys/class/net/eth1"
SETTINGS = (
    "{sysctls: {net.ipv4.ip_default_ttl: 70, net.ipv4.tcp_rmem: 4096 90000 600000}, interfaces: "
    "{eth1: {mtu: 4000B, txqueuelen: 77, gso: false, gro_flush_timeout: 20us, qdisc: pfifo}}}"
)
SHOW = (
    f"cat {TTL} /proc/sys/net/ipv4/tcp_rmem {ETH1}/mtu {ETH1}/tx_queue_len "
    f"{ETH1}/gro_flush_timeout; tc qdisc show dev eth1 root | cut -d' ' -f-3"
)
LEFT = "left alone: mtu of eth1: somebody has set it to 3000"
SET = "70\n4096\t90000\t600000\n4000\n77\n20000\nqdisc pfifo 4c53:"


@pytest.fixture
def tuned(tmp_path: Path) -> Iterator[TunedMachine]:
    """A machine, which has its own values and ledger again when its runs have ended."""
    with TunedMachine(tmp_path) as machine:
        before = machine.on(SHOW)
        yield machine
        # A test that failed has left a program that waits.
        (tmp_path / "over").touch()
        assert machine.on(SHOW) == before
        assert not machine.leftovers()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def begin(machine: TunedMachine, settings: str = SETTINGS) -> subprocess.Popen[str]:
    """A run whose program waits."""
    command = WAITS.format(machine.directory)
    file = machine.write("tuned.yaml", EXPERIMENT.format(settings=settings, command=command))
    run = machine.start("run", file, forks=True)
    until(lambda: (machine.directory / "began").exists() or run.poll() is not None)
    assert run.poll() is None, run.communicate()
    return run


def agents_of(machine: TunedMachine) -> list[int]:
    """The process that keeps the ledger, and the one that has started it and reaps for it."""
    pids = [pid for pid, words in machine.processes().items() if " --scratch " in words]
    (agent,) = [pid for pid in pids if parent_of(pid) in pids]
    return [agent, parent_of(agent)]


def test_a_run_has_the_settings_and_its_report_shows_them(tuned: TunedMachine) -> None:
    before = Path("/proc/sys/vm/stat_interval").read_text().strip()
    settings = SETTINGS.replace("sysctls: {", "sysctls: {vm.stat_interval: 7, ")
    command = "cat /proc/sys/vm/stat_interval"
    file = tuned.write("tuned.yaml", EXPERIMENT.format(settings=settings, command=command))
    done = tuned.command("run", file)
    assert done.returncode == 0, done.stderr
    (repeat,) = (tuned.directory / "runs" / "tuned" / "latest").glob("base/1")
    assert (repeat / "hosts/h1/components/program/stdout.log").read_text() == "7\n"
    assert Path("/proc/sys/vm/stat_interval").read_text().strip() == before
    noted = json.loads((repeat / "hosts/h1/env.json").read_text())["settings"]
    assert noted["/proc/sys/vm/stat_interval"] == {"before": before, "set": "7"}
    assert noted["queueing discipline of eth1"] == {"before": "default", "set": "pfifo"}
    assert noted["gso of eth1"] == {"before": "on", "set": "off"}
    assert noted["mtu of eth1"] == {"before": "1500", "set": "4000"}
    assert len(noted) == 8
    page = (repeat.parents[1] / "report.html").read_text()
    assert "settings./proc/sys/vm/stat_interval.set" in page


def test_settings_of_a_machine_are_one_run_s_at_a_time(tuned: TunedMachine) -> None:
    """Another run's and somebody's are left alone, and that is told."""
    first = begin(tuned)
    assert tuned.on(SHOW) == SET
    settings = "{sysctls: {net.ipv4.ip_default_ttl: 71}}"
    file = tuned.write("other.yaml", EXPERIMENT.format(settings=settings, command="true"))
    second = tuned.command("run", file)
    assert second.returncode != 0
    assert "another run has changed settings of this machine" in " ".join(second.stderr.split())
    assert tuned.on(SHOW) == SET
    tuned.on(f"echo 3000 > {ETH1}/mtu")
    (tuned.directory / "over").touch()
    told = " ".join(first.communicate(timeout=60)[1].split())
    assert first.returncode == 0, told
    assert LEFT in told
    assert tuned.on(f"cat {ETH1}/mtu") == "3000"
    tuned.on(f"echo 1500 > {ETH1}/mtu")


@pytest.mark.parametrize("killed", ["controller", "agent", "all"])
def test_settings_come_back_whatever_is_killed(tuned: TunedMachine, killed: str) -> None:
    before = tuned.on(SHOW)
    run = begin(tuned)
    assert tuned.on(SHOW) == SET
    (agent, launcher), guardians = agents_of(tuned), tuned.guardians()
    # Somebody gives one of them a value of their own, which stays.
    tuned.on(f"echo 3000 > {ETH1}/mtu")
    controllers = [run.pid] if killed != "agent" else []
    # None of them has time to do anything about the others.
    victims = {"controller": [], "agent": [agent], "all": [agent, launcher, *guardians]}[killed]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    for pid in [*victims, *controllers]:
        os.kill(pid, signal.SIGKILL)
    run.communicate(timeout=60)
    stayed = before.replace("1500", "3000")
    if killed == "all":
        assert tuned.on(f"cat {TTL}") == "70"
        done = tuned.command("reset")
        assert done.returncode == 0, done.stderr
        assert LEFT in " ".join(done.stdout.split())
        assert tuned.on(SHOW) == stayed
    until(lambda: tuned.on(SHOW) == stayed and not tuned.leftovers())
    tuned.on(f"echo 1500 > {ETH1}/mtu")


def test_what_cannot_be_set_is_told_before_anything_starts(tuned: TunedMachine) -> None:
    """All of it, and what could be set is as before."""
    tuned.on("tc qdisc replace dev lo root handle 7: pfifo limit 9")
    settings = """{
      governor: nothing, interrupts: 4000,
      sysctls: {
        net.ipv4.ip_default_ttl: 70, net.ipv4.tcp_fin_timeout: "0x10", net.ipv4.tcp_rmem: a,
        net.ipv4.nothing: 1, net.ipv4.ip_forward: 1, kernel.osrelease: x, vm.compact_memory: 1},
      interfaces: {lo: {qdisc: pfifo}, eth2: {mtu: 1500B}, eth1: {mtu: 4000B}}}"""
    file = tuned.write("tuned.yaml", EXPERIMENT.format(settings=settings, command="touch began"))
    done = tuned.command("run", file)
    assert done.returncode != 0 and not (tuned.directory / "began").exists()
    told = " ".join(done.stderr.split())
    for place, why in {
        "governor": "no",
        "interrupts": "this machine has no processor 4000 that works",
        "sysctls.net.ipv4.tcp_fin_timeout": "cannot set /proc/sys/net/ipv4/tcp_fin_timeout: it "
        'became "16" when it was given "0x10"',
        "sysctls.net.ipv4.tcp_rmem": "Invalid argument",
        "sysctls.net.ipv4.nothing": "this machine's kernel has no such sysctl",
        "sysctls.net.ipv4.ip_forward": "the kernel changes other settings with it",
        "sysctls.kernel.osrelease": "also to root",
        "sysctls.vm.compact_memory": "Permission denied",
        "interfaces.lo.qdisc": "somebody has given it pfifo 7:",
        "interfaces.eth2": "this machine has no such interface",
    }.items():
        part = told.partition(f"settings.{place}: ")[2].partition("; settings.")[0]
        assert why in part, (place, told)
    assert "settings.sysctls.net.ipv4.ip_default_ttl" not in told
    assert "limit 9p" in tuned.on("tc qdisc show dev lo root")
    assert tuned.on("cat /proc/sys/net/ipv4/tcp_fin_timeout") == "60"


def test_settings_of_machines_over_ssh(machines: SshMachines) -> None:
    """Each machine has its own; a user without rights is told what gives them."""
    text = """
name: tuned
testbed: ssh
hosts: [h1, h2]
machines:
  h1:
    {become}
    settings:
      sysctls: {{net.ipv4.ip_default_ttl: 70}}
      interfaces: {{eth0: {{txqueuelen: 9}}}}
  h2: {{user: root, settings: {{interfaces: {{eth0: {{mtu: 1400B, gso: false}}}}}}}}
components:
  one: {{host: h1, run: cat /proc/sys/net/ipv4/ip_default_ttl, start: run, ready: {{exit: 0}}}}
  two: {{host: h2, run: cat /sys/class/net/eth0/mtu, start: run, ready: {{exit: 0}}}}
phases: [{{name: run, timeout: 60s}}]
trace: {{kernel: off}}
"""
    show = f"cat {TTL} /sys/class/net/eth0/mtu /sys/class/net/eth0/tx_queue_len"
    before = {host: machines.on(host, show) for host in machines.hosts}
    file = machines.write("tuned.yaml", text.format(become="user: rider"))
    refused = machines.command("run", file)
    told = " ".join(refused.stderr.split())
    assert refused.returncode != 0
    assert "host h1: settings." in told
    assert f"settings.sysctls.net.ipv4.ip_default_ttl: cannot set {TTL}: Permission" in told
    assert "`user: root` in `machines`" in told
    assert "settings.interfaces.eth0.txqueuelen: cannot set txqueuelen of eth0" in told
    until(lambda: {host: machines.on(host, show) for host in machines.hosts} == before)
    machines.allow("h1", EVERYTHING)
    file = machines.write("tuned.yaml", text.format(become="become: sudo"))
    done = machines.command("run", file)
    assert done.returncode == 0, done.stderr
    (repeat,) = (machines.directory / "runs" / "tuned" / "latest").glob("base/1")
    printed = {name: repeat / f"hosts/{name}/components" for name in ("h1", "h2")}
    assert (printed["h1"] / "one/stdout.log").read_text() == "70\n"
    assert (printed["h2"] / "two/stdout.log").read_text() == "1400\n"
    of_h1, of_h2 = (
        json.loads((repeat / f"hosts/{name}/env.json").read_text())["settings"] for name in printed
    )
    assert of_h1["txqueuelen of eth0"] == {"before": "1000", "set": "9"} and len(of_h1) == 2
    assert of_h2["gso of eth0"] == {"before": "on", "set": "off"} and len(of_h2) == 2
    assert {host: machines.on(host, show) for host in machines.hosts} == before
    done = machines.command("host", "setup", "--remove", "h1")
    assert done.returncode == 0, done.stderr
