"""The same file on hosts over SSH and on one computer, as root and as nobody."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from ordinary_user import OrdinaryUser
from same_pipeline import kind, same_pipeline
from ssh_machines import SshMachines

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]
HOSTS = {"h1", "h2", "h3"}


def judged(results: Read, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The kind of a run's results, and what of them has to be the same words."""
    assert done.returncode == 0, done.stderr
    read = results(done)
    loop = read["paths"]["loop"]
    assert (loop["count"], loop["lost"]) == (300, 0)
    return {
        "kind": kind(read),
        "expectations": [(each["text"], each["verdict"]) for each in read["expectations"]],
        "paths": {
            name: [(hop["from"], hop["to"]) for hop in path["hops"]]
            for name, path in read["paths"].items()
        },
        "clocks": set(read["clock"]["hosts"]),
    }


def test_one_file_gives_one_kind_of_result(
    machines: SshMachines, user: OrdinaryUser, results: Read
) -> None:
    over_ssh = machines.write("ssh.yaml", same_pipeline("ssh"))
    local = same_pipeline("local")
    of_ssh = judged(results, machines.command("run", over_ssh, "--json"))
    assert of_ssh["expectations"] == [
        ("loop.count == 300", "PASS"), ("loop.lost == 0", "PASS"), ("loop < 1s", "PASS"),
    ]  # fmt: skip
    assert of_ssh["clocks"] == HOSTS
    repeat = machines.directory / "runs/pipeline/latest/base/1"
    for host in HOSTS:
        # The hidden clocks are far apart, so that only what the probes found brings them together.
        assert (repeat / "hosts" / host / "env.json").exists()
        assert (repeat / "hosts" / host / "trace").is_dir()
    of_root = judged(results, machines.command("run", machines.write("l.yaml", local), "--json"))
    of_nobody = judged(results, user.command("run", user.write("l.yaml", local), "--json"))
    assert of_root == of_ssh
    assert of_nobody == of_ssh
