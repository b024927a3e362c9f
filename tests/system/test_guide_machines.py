"""docs/guide/machines.md, command by command, with three machines that have sshd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from machine import BIN, ROOT, Machine
from ssh_machines import SshMachines

from loopscope.experiment import load_text

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/machines.md").read_text()
GUIDE = ROOT / "docs/guide/machines"
NOBODY = "65534"
# Without root's rights, but for reading a Python that is root's.
ORDINARY = [
    *("setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_has_the_experiment() -> None:
    written, addresses = blocks("yaml")
    assert written == (GUIDE / "machines.yaml").read_text()
    # The other block is further keys of this file.
    machines = load_text(written + addresses, GUIDE / "machines.yaml").machines
    assert machines["h1"].data == ("192.0.2.11", "fd00::11")
    assert machines["h3"].clock == ("198.51.100.13",)


@pytest.mark.usefixtures("root")
def test_the_guides_commands_by_an_ordinary_user(machines: SshMachines) -> None:
    # The page's ssh_config, with the keys of these machines.
    keys = machines.config.read_text().split("Host h1")[0]
    (config,) = blocks("text")
    machines.config.write_text(keys + config)
    home = machines.scratch / "home"
    for host in machines.hosts:
        # There is no terminal on which sudo could ask.
        machines.allow(host, "rider ALL=(ALL) NOPASSWD: ALL")
    shutil.copytree(GUIDE, home / "docs/guide/machines")
    for owned in (machines.scratch, *machines.scratch.rglob("*"), *machines.keys.iterdir()):
        os.chown(owned, int(NOBODY), int(NOBODY))
    state = home / "state"
    done = subprocess.run(
        machines.on_desk(*ORDINARY, "bash", "-c", "set -eu\n" + "".join(blocks("sh"))),
        cwd=home,
        env={
            **machines.environment,
            "PATH": f"{BIN}:/usr/bin:/bin",
            "HOME": str(home),
            "LOOPSCOPE_STATE_DIR": str(state),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS     loop.lost == 0" in done.stdout
    assert not [path for path in state.rglob("*") if path.is_file()]
    shutil.rmtree(home)
    for host in machines.hosts:
        assert machines.on(host, "ls -A /home/rider/.cache/loopscope", check=False) == ""


@pytest.mark.usefixtures("root")
def test_the_same_file_on_one_computer(machine: Machine) -> None:
    text = (GUIDE / "machines.yaml").read_text().replace("testbed: ssh", "testbed: local")
    for here, there in re.findall(r"`(10\.77\.0\.(\d))`", PAGE):
        text = text.replace(f"192.0.2.1{there}", here)
    shutil.copytree(GUIDE, machine.directory / "guide")
    done = machine.command("run", machine.write("guide/machines.yaml", text))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS     loop.lost == 0" in done.stdout
