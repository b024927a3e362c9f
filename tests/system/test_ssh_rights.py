"""`become: sudo` on machines over SSH: who may change what root runs, and what components get."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import BIN
from ssh_machines import EVERYTHING, PASSWORD, SshMachines, words_of

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

WITH_PASSWORD = "rider ALL=(ALL) ALL"
BASHRC = "/home/rider/.bashrc"
COPIES = "/usr/local/lib/loopscope"
CACHED = "/home/rider/.cache/loopscope/kit-*/bin/loopscope-host"
# Files that root has made where the user chose it.
OWNED = "find /home/rider /tmp -uid 0 ! -path /tmp"

# CAP_SYS_RESOURCE, without which root cannot raise RLIMIT_RTPRIO (capabilities(7)).
(EFFECTIVE,) = re.findall(r"CapEff:\t(\w+)", Path("/proc/self/status").read_text())
ROOT_GIVES_PRIORITIES = bool(int(EFFECTIVE, 16) & 1 << 24)

LINKED = """
name: linked
testbed: ssh
hosts: [h1, h2]
machines: {h1: {become: sudo}, h2: {become: sudo}}
network: {h1 -> h2: {delay: 5ms}}
components:
  sleeper: {host: h2, run: sleep 1000}
  who: {host: h1, run: ./who.sh, start: run, ready: {exit: 0}}
  pinger: {host: h1, run: ping -n -c 5 -i 0.02 192.0.2.12, start: run, ready: {exit: 0}}
phases: [{name: run, measured: true, timeout: 60s}]
"""
WHO = """#!/bin/sh
id -u; id -g; id -G
grep ^Cap /proc/self/status
chrt -f 10 true && echo realtime
printenv FROM_BASHRC
touch touched
"""
# A program in place of the one that was sent.
FAKE = """#!/bin/sh
[ "$(id -u)" != 0 ] || touch /home/root/owned
case "$*" in
    --version) echo "loopscope-host 0.1.0" ;;
    setup*) echo '{"copies": []}' ;;
esac
"""
ALONE = (
    "name: alone\ntestbed: ssh\nhosts: [h1]\nmachines: {{h1: {{{machine}}}}}\n"
    "components: {{who: {{host: h1, run: ./who.sh, start: run, ready: {{exit: 0}}}}}}\n"
    "phases: [{{name: run, measured: true, timeout: 60s}}]\n"
)


@pytest.fixture(params=[("h1",)])
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SshMachines]:
    """Machines on which afterwards nothing may be left."""
    made = SshMachines(tmp_path, request.param)
    try:
        made.make()
        made.write("who.sh", WHO).chmod(0o755)
        yield made
        left = made.leftovers()
        assert not left, f"left behind: {left}"
    finally:
        made.remove()


def alone(machines: SshMachines, machine: str = "become: sudo") -> Path:
    return machines.write("alone.yaml", ALONE.format(machine=machine))


def refused(machines: SshMachines) -> str:
    """Message of a run that ends before anything starts."""
    done = machines.command("run", alone(machines))
    assert done.returncode == 4, done.stderr
    assert not list(machines.directory.glob("runs/alone/latest/base/1/hosts/*/components/*"))
    return done.stderr


def said_by(machines: SshMachines, experiment: str) -> list[str]:
    component = machines.directory / f"runs/{experiment}/latest/base/1/hosts/h1/components/who"
    return (component / "stdout.log").read_text().splitlines()


@pytest.mark.parametrize("machines", [("h1", "h2")], indirect=True)
def test_the_agent_has_rights_and_components_have_none(machines: SshMachines) -> None:
    # What the user's shell chooses is nothing that root's rights run.
    evil = "/home/rider/evil"
    script = shlex.quote(f'#!/bin/sh\nid -u >>{evil}/used\nexec /sbin/ip "$@"\n')
    for host in machines.hosts:
        machines.allow(host, EVERYTHING)
        machines.on(
            host,
            f"mkdir {evil} && echo {script} >{evil}/ip && chmod 755 {evil}/ip && "
            f"chown -R 4711 {evil} && echo 'export FROM_BASHRC=1 PATH={evil}:$PATH' >>{BASHRC}",
        )
    linked = machines.write("linked.yaml", LINKED)
    machines.on("h1", "chmod 600 /dev/net/tun")
    done = machines.command("run", linked)
    assert done.returncode == 4 and "host h1: its user may not open /dev/net/tun" in done.stderr
    machines.on("h1", "chmod 666 /dev/net/tun")
    done = machines.command("run", linked)
    assert done.returncode == 0, done.stderr
    assert "rights over their network" not in done.stderr
    uid, gid, groups, *capabilities, variable = said_by(machines, "linked")
    assert (uid, gid, groups, variable) == ("4711", "4711", "4711", "1")
    assert ("realtime" in capabilities) == ROOT_GIVES_PRIORITIES
    assert ("hosts lack real-time priorities (root itself" in done.stderr) == (
        not ROOT_GIVES_PRIORITIES
    )
    sets = dict(re.findall(r"Cap(\w+):\t(\w+)", "\n".join(capabilities)))
    assert {name: int(sets[name], 16) for name in ("Inh", "Prm", "Eff", "Amb")} == dict.fromkeys(
        ("Inh", "Prm", "Eff", "Amb"), 0
    )
    log = machines.directory / "runs/linked/latest/base/1/hosts/h1/components/pinger/stdout.log"
    shortest = re.search(r"min/avg/max/mdev = ([\d.]+)/", log.read_text())
    assert shortest is not None and float(shortest[1]) >= 5
    for host in machines.hosts:
        assert machines.on(host, f"stat -c '%U %a' {COPIES}/*/loopscope-host") == "root 750\n"
        assert machines.on(host, OWNED) == ""
        assert machines.on(host, f"cat {evil}/used", check=False) == ""
        machines.on(host, f"rm -r {evil}")
    done = machines.command("host", "setup", "--remove", "linked.yaml")
    assert done.returncode == 0, done.stderr


def test_what_the_user_puts_into_the_cache_is_not_run_as_root(machines: SshMachines) -> None:
    assert machines.command("run", alone(machines, "")).returncode == 0
    machines.allow("h1", EVERYTHING)
    # Even where sudo allows it, the program as it was sent refuses it.
    said = machines.on("h1", f"su rider -c 'sudo -n {CACHED} limited </dev/null 2>&1; true'")
    assert "sudo must not start a program that others than root can change" in said
    machines.on("h1", f"echo {shlex.quote(FAKE)} >$(echo {CACHED})")
    assert "is not what was sent" in refused(machines)
    assert machines.on("h1", "ls /home/root /usr/local/lib") == "/home/root:\n\n/usr/local/lib:\n"
    # It is sent again where it was removed.
    machines.on("h1", "rm -r /home/rider/.cache/loopscope/kit-*")
    assert machines.command("run", alone(machines)).returncode == 0
    assert machines.command("host", "setup", "--remove", "h1").returncode == 0


def typed(machines: SshMachines, *words: str) -> str:
    """Output of a command that is run on a terminal, where the password is given when asked."""
    own, its = pty.openpty()
    process = subprocess.Popen(
        machines.on_desk(BIN / "loopscope", *words),
        cwd=machines.directory,
        env=machines.environment,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    printed, end = "", time.monotonic() + 60
    asked = 0
    while time.monotonic() < end:
        if not select.select([own], [], [], 1)[0]:
            continue
        try:
            data = os.read(own, 4096).decode()
        except OSError:
            break
        printed += data
        if printed.count("password for") > asked:
            asked += 1
            os.write(own, f"{PASSWORD}\n".encode())
    os.close(own)
    assert process.wait(timeout=10) == 0, printed
    return printed


def test_setup_allows_one_command_and_is_undone(machines: SshMachines) -> None:
    machines.allow("h1", WITH_PASSWORD)
    said = refused(machines)
    assert "host h1: become: sudo does not work there: sudo: a password is required" in said
    assert "loopscope host setup h1" in said
    listing = f"find /etc/sudoers.d/zz-loopscope* {COPIES} -printf '%p %u %g %m\\n' | sort"
    assert "password for" in typed(machines, "host", "setup", "h1")
    made = machines.on("h1", listing)
    (copy,) = re.findall(r"(\S+/loopscope-host) root \S+ 750", made)
    assert "/etc/sudoers.d/zz-loopscope-user-4711 root root 440" in made
    # Nothing else is allowed without a password: no other program, and no other argument of it.
    for command in ("true", f"{copy} reset", copy):
        denied = machines.on("h1", f"su rider -c 'sudo -n {command} 2>&1; true'")
        assert "password is required" in denied, command
    typed(machines, "host", "setup", "h1")
    assert machines.on("h1", listing) == made
    done = machines.command("run", alone(machines))
    assert done.returncode == 0, done.stderr
    assert ("realtime" in said_by(machines, "alone")) == ROOT_GIVES_PRIORITIES
    for spoil, mend in (
        (f"chmod 770 {copy}", f"chmod 750 {copy}"),
        (f"chown 4711 {COPIES}", f"chown 0 {COPIES}"),
    ):
        machines.on("h1", spoil)
        said = refused(machines)
        assert "sudo is not used for a program that others than root can change" in said, spoil
        machines.on("h1", mend)
    # What runs with these rights does nothing but what an agent needs, for every caller.
    call = '{"arguments": ["record", "-o", "x", "--", "id"]}'
    script = f"echo {shlex.quote(call)} | sudo -n {copy} limited 2>&1; true"
    said = machines.on("h1", f"su rider -c {shlex.quote(script)}")
    assert "it is only `agent`, `reset` or `rights`" in said
    typed(machines, "host", "setup", "--remove", "h1")
    assert machines.on("h1", "ls /etc/sudoers.d /usr/local/lib") == (
        "/etc/sudoers.d:\ntest\n\n/usr/local/lib:\n"
    )


def test_without_rights_what_is_missing_is_said_and_the_rest_works(machines: SshMachines) -> None:
    # The machine has no sudo.
    machines.on(
        "h1",
        "mkdir /run/o && mount -t tmpfs tmpfs /run/o && mkdir /run/o/up /run/o/work && "
        "mknod /run/o/up/sudo c 0 0 && mount -t overlay overlay "
        "-o lowerdir=/usr/bin,upperdir=/run/o/up,workdir=/run/o/work /usr/bin",
    )
    said = refused(machines)
    assert "host h1: become: sudo does not work there" in said and "install sudo there" in said
    done = machines.command("run", alone(machines, "port: 22"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("hosts lack real-time priorities (`become: sudo`") == 1
    assert "realtime" not in said_by(machines, "alone")


TTL = "/proc/sys/net/ipv4/ip_default_ttl"


def test_reset_takes_the_rights_that_the_run_had(machines: SshMachines) -> None:
    machines.allow("h1", EVERYTHING)
    machines.write("who.sh", "#!/bin/sh\nexec sleep 600\n")
    before = machines.on("h1", f"cat {TTL}")
    file = alone(machines, "become: sudo, settings: {sysctls: {net.ipv4.ip_default_ttl: 70}}")
    going = machines.start("run", file, forks=True)
    assert going.stderr is not None
    while "phase run" not in going.stderr.readline():
        assert going.poll() is None
    # First the guardian, which would undo all.
    victims = machines.pids_of("h1", "loopscope-host")
    victims.sort(key=lambda pid: "guardian" not in words_of(pid))
    assert "guardian" in words_of(victims[0])
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    going.communicate(timeout=60)
    # A desk with another version has installed nothing there.
    machines.on("h1", f"rm -r {COPIES}")
    done = machines.command("reset", "--hosts", "h1")
    assert done.returncode != 0 and machines.on("h1", f"cat {TTL}") == "70\n"
    assert f"not removed: host h1: cannot undo {TTL}: 70" in done.stderr
    assert "loopscope reset --hosts FILE" in done.stderr
    machines.on("h1", "rm /etc/sudoers.d/test")
    done = machines.command("reset", "--hosts", file)
    assert done.returncode != 0 and machines.on("h1", f"cat {TTL}") == "70\n"
    assert "loopscope host setup h1" in done.stderr
    machines.allow("h1", EVERYTHING)
    done = machines.command("reset", "--hosts", file, "--data", "--cache")
    assert done.returncode == 0, done.stderr
    assert machines.on("h1", f"cat {TTL}") == before
    done = machines.command("host", "setup", "--remove", "h1")
    assert done.returncode == 0, done.stderr
