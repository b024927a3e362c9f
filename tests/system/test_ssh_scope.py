"""Agents of users without root on machines with systemd: their cgroup is a scope of the user's own.

systemd runs as the user's alone: nothing here has been booted by it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_machines import EVERYTHING, USER, SshMachines, run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

FILE = """
name: scoped
testbed: ssh
hosts: [h1]
machines: {{h1: {{{become}}}}}
components:
  shy: {{host: h1, run: ./shy.sh, start: run, ready: {{exit: 0}}}}
phases: [{{name: run, measured: true, timeout: 60s}}]
"""
SHY = """#!/bin/sh
cat /proc/self/cgroup
env -i setsid -f sleep 4711 </dev/null >/dev/null 2>&1
"""
# As logind has it: the user's slice, in which the session's group is root's and the rest is the
# user's. A move needs the right to write to the group that both ends are in.
LOGIN = """
mount -t cgroup2 none /sys/fs/cgroup
mkdir -p /run/systemd/system /run/user/4711 {group}/session
chown 4711 /run/user/4711 {group} {group}/cgroup.procs {group}/cgroup.subtree_control
chmod 700 /run/user/4711
echo {sshd} >{group}/session/cgroup.procs
"""
SYSTEMD = (
    "echo 0 >{group}/cgroup.procs && cd / && exec setpriv --reuid 4711 --regid 4711 --clear-groups "
    "env -i PATH=/usr/bin:/bin HOME=/home/{user} XDG_RUNTIME_DIR=/run/user/4711 "
    "/lib/systemd/systemd --user >/home/{user}/systemd.log 2>&1 </dev/null &"
)


class LoggedIn(SshMachines):
    """A machine whose user has logged in."""

    @property
    def group(self) -> str:
        """The cgroup of the user."""
        return f"/sys/fs/cgroup/{self.token}"

    def log_in(self) -> None:
        self.on("h1", LOGIN.format(group=self.group, sshd=self.sshd["h1"].pid))

    def start_systemd(self) -> None:
        self.on("h1", f"touch /home/{USER}/systemd.log; chown 4711 /home/{USER}/systemd.log")
        self.on("h1", SYSTEMD.format(group=self.group, user=USER))
        end = time.monotonic() + 20
        while not self.on("h1", "ls /run/user/4711/systemd/private", check=False):
            assert time.monotonic() < end, self.on("h1", f"cat /home/{USER}/systemd.log")
            time.sleep(0.05)

    def log_out(self) -> None:
        """Ends what is in the user's groups, and removes them."""
        # Not in the machine's own view: that ends with its sshd.
        see = "mount -t cgroup2 none /sys/fs/cgroup"
        kill = f"echo 1 >{self.group}/cgroup.kill"
        gone = f"until grep -q 'populated 0' {self.group}/cgroup.events; do sleep 0.05; done"
        line = f"{see} && {kill} && {gone} && find {self.group} -depth -type d -exec rmdir {{}} +"
        run("unshare", "-m", "sh", "-c", line)


@pytest.fixture
def machine_with_login(tmp_path: Path) -> Iterator[LoggedIn]:
    made = LoggedIn(tmp_path, ("h1",))
    try:
        made.make()
        made.write("shy.sh", SHY).chmod(0o755)
        made.log_in()
        yield made
        # What sudo started stays for the next run.
        made.on("h1", "rm -rf /usr/local/lib/loopscope")
        left = [text for text in made.leftovers() if "systemd" not in text]
        assert not left, f"left behind: {left}"
    finally:
        made.log_out()
        made.remove()


def cgroup_of(machines: LoggedIn) -> dict[str, Any]:
    (file,) = machines.directory.glob("runs/scoped/latest/base/1/hosts/h1/env.json")
    found: dict[str, Any] = json.loads(file.read_text())["cgroup"]
    return found


@pytest.mark.parametrize("become", ["", "become: sudo"])
def test_an_agent_has_a_scope_of_the_users_systemd(
    machine_with_login: LoggedIn, become: str
) -> None:
    machines = machine_with_login
    machines.start_systemd()
    machines.allow("h1", EVERYTHING)
    done = machines.command("run", machines.write("scoped.yaml", FILE.format(become=become)))
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "lack cgroups" not in said
    assert ("lack rights over their network" in said) == (not become), said
    found = cgroup_of(machines)
    assert found["why_none"] is None
    scope, _, group = found["path"].rpartition("/")
    assert scope.startswith(machines.group) and scope.endswith(".scope"), found
    assert group.startswith("ls-"), found
    (own,) = machines.directory.glob("runs/scoped/latest/base/1/hosts/h1/components/shy/")
    inner = f"0::{found['path'].removeprefix('/sys/fs/cgroup')}/h1/shy\n"
    assert inner in (own / "stdout.log").read_text()
    # It left its session and its environment, and is found by its group all the same.
    assert not shy_ones(machines)
    # systemd removes an empty scope a moment later.
    end = time.monotonic() + 10
    while machines.on("h1", f"find {machines.group} -name 'loopscope-*'", check=False).strip():
        assert time.monotonic() < end, "the scope is left"
        time.sleep(0.05)


@pytest.mark.parametrize("become", ["", "become: sudo"])
def test_why_there_is_no_scope_is_said(machine_with_login: LoggedIn, become: str) -> None:
    """The user's systemd does not answer: the run goes on without a cgroup."""
    machines = machine_with_login
    machines.allow("h1", EVERYTHING)
    done = machines.command("run", machines.write("scoped.yaml", FILE.format(become=become)))
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "lack cgroups" in said and "systemd-run --user --scope: Failed to connect" in said, said
    assert cgroup_of(machines)["path"] is None
    assert not shy_ones(machines)


@pytest.mark.parametrize("become", ["", "become: sudo"])
def test_what_runs_on_ends_with_an_agent_that_is_killed(
    machine_with_login: LoggedIn, become: str
) -> None:
    """An agent without a cgroup, and what has left its session and its environment."""
    machines = machine_with_login
    machines.allow("h1", EVERYTHING)
    machines.write("shy.sh", SHY + "exec sleep 1000\n")
    file = FILE.format(become=become).replace(", ready: {exit: 0}", "")
    going = machines.start("run", machines.write("scoped.yaml", file))
    try:
        wait_until(lambda: shy_ones(machines))
        os.kill(machines.agent("h1"), signal.SIGKILL)
        _, said = going.communicate(timeout=60)
    finally:
        going.kill()
    assert going.returncode == 4, said
    assert "host h1: its agent is gone" in said, said
    wait_until(lambda: not machines.processes_of("h1"))


def shy_ones(machines: LoggedIn) -> list[str]:
    return [text for text in machines.processes_of("h1") if "sleep 4711" in text]


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
