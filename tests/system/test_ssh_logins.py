"""Logins that need more than an address and a key: a jump host, a key that only ssh-agent has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh_machines import SshMachines, run

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

FILE = """\
name: logins
testbed: ssh
hosts: [h1, h2]
trace: {{kernel: off}}
machines: {{h2: {{{settings}}}}}
phases: [{{name: run, timeout: 20s, measured: true}}]
components:
  near: {{host: h1, run: [sh, -c, 'test -z "$$SSH_AUTH_SOCK"'], start: run, ready: {{exit: 0}}}}
  far: {{host: h2, run: [sh, -c, 'test -z "$$SSH_AUTH_SOCK"'], start: run, ready: {{exit: 0}}}}
"""


def ended(machines: SshMachines) -> dict[str, int]:
    """The exit status of each component of the newest run, by host."""
    files = machines.directory.glob("runs/logins/latest/base/1/hosts/*/components/*/exit.json")
    return {file.parts[-4]: json.loads(file.read_text())["code"] for file in files}


def test_a_host_that_only_a_jump_host_reaches(machines: SshMachines) -> None:
    desk = machines.namespace("desk")
    run("ip", "-n", desk, "route", "add", "unreachable", machines.address("h2"))
    # Jump hosts have to forward connections.
    for host in ("h1", "h3"):
        allow = "s/^AllowTcpForwarding no/AllowTcpForwarding local/"
        machines.on(host, f"sed -i '{allow}' /home/sshd/*")
        machines.read_settings(host)

    direct = machines.command("run", machines.write("direct.yaml", FILE.format(settings="")))
    assert direct.returncode == 4, direct.stderr
    assert "loopscope: host h2: there is no connection: " in direct.stderr
    assert "No route to host" in direct.stderr, direct.stderr

    # The second way is through two of them, one of which is reached through the other.
    for jump in ("h3", f"rider@h1:22,{machines.address('h3')}"):
        twice = machines.write("jump.yaml", FILE.format(settings=f"jump: '{jump}'"))
        done = machines.command("run", twice)
        assert done.returncode == 0, done.stderr
        assert ended(machines) == {"h1": 0, "h2": 0}
    file = machines.write("jump.yaml", FILE.format(settings="jump: h3"))
    done = machines.command("run", file)
    assert done.returncode == 0, done.stderr
    assert ended(machines) == {"h1": 0, "h2": 0}
    # Its host key is checked, too, whatever the user's settings say.
    machines.config.write_text(f"{machines.config.read_text()}Host *\n  StrictHostKeyChecking no\n")
    known = machines.known.read_text()
    machines.known.write_text(known.replace(f"{machines.address('h3')} ", "192.0.2.99 "))
    refused = machines.command("run", file)
    assert refused.returncode == 4, refused.stderr
    assert "host h2: its host key is not known. Connect once by hand" in refused.stderr
    assert "ssh -J h3 h2" in refused.stderr
    machines.known.write_text(known)
    # Only h1 and h2 have programs of loopscope; a jump host passes bytes on.
    assert machines.on("h3", "ls -A /home/rider/.cache /home/rider/.local", check=False) == ""
    reset = machines.command("reset", "--hosts", file, "--cache")
    assert reset.returncode == 0, reset.stderr
    assert machines.on("h2", "ls -A /home/rider/.cache/loopscope", check=False) == ""


@pytest.fixture
def key_agent(machines: SshMachines) -> Iterator[Path]:
    """The socket of an ssh-agent that has the key; no file has it any more."""
    socket, key = machines.scratch / "key-agent", machines.keys / "id"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE)
    try:
        # It prints the variables when it listens.
        assert agent.stdout is not None and agent.stdout.readline()
        added = ["env", f"SSH_AUTH_SOCK={socket}", "ssh-add", "-q", str(key)]
        run(*added)
        key.unlink()
        yield socket
    finally:
        agent.terminate()
        agent.wait()
        socket.unlink(missing_ok=True)


def test_a_key_that_only_an_agent_has(machines: SshMachines, key_agent: Path) -> None:
    file = machines.write("agent.yaml", FILE.format(settings=""))
    machines.environment.pop("SSH_AUTH_SOCK", None)
    without = machines.command("run", file)
    assert without.returncode == 4, without.stderr
    assert "host h2: it refuses the login, which has to work without a question" in without.stderr

    # The hosts get no way to the agent, whatever the user's settings say.
    machines.config.write_text(machines.config.read_text() + "Host *\n  ForwardAgent yes\n")
    machines.environment["SSH_AUTH_SOCK"] = str(key_agent)
    done = machines.command("run", file)
    assert done.returncode == 0, done.stderr
    assert ended(machines) == {"h1": 0, "h2": 0}
