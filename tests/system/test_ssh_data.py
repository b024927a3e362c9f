"""What runs leave on machines over SSH: collected later, and undone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ssh_machines import RUNS, SshMachines

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

COUNTING = """
name: counting
testbed: ssh
hosts: [h1, h2]
phases: [{name: run, timeout: 60s, measured: true}]
components:
  clock: {host: h1, run: [sh, -c, "echo tick; exec sleep 600"], ready: started}
  pump: {host: h2, run: [sh, -c, "echo stroke; echo stroke >stroke; exec sleep 600"],
         start: run, ready: {exit: 0}}
"""
LOG = "hosts/h2/components/pump/stdout.log"


def running(machines: SshMachines) -> tuple[subprocess.Popen[str], Path]:
    """A run whose components have begun, and its file."""
    file = machines.write("counting.yaml", COUNTING)
    run = machines.start("run", file, "--verbose")
    assert run.stderr is not None
    for line in run.stderr:
        if "stroke" in line:
            return run, file
    raise AssertionError("the run has ended")


def repeat(machines: SshMachines) -> Path:
    (found,) = machines.directory.glob("runs/counting/2*/base/1")
    return found


def spools(machines: SshMachines, host: str) -> list[str]:
    return machines.on(host, f"ls {RUNS}", check=False).split()


def test_a_host_that_was_cut_off_is_collected_when_it_is_back(machines: SshMachines) -> None:
    run, _ = running(machines)
    machines.cut("h2")
    _, said = run.communicate(timeout=60)
    assert run.returncode == 4
    assert "host h2: it has said nothing for 5 s" in said
    path = repeat(machines)
    assert "to collect it: loopscope fetch runs/counting/" in " ".join(said.split())
    assert not (path / LOG).exists() and (path / "hosts/h1/loss.json").exists()
    subprocess.run(
        ["ip", "-n", machines.namespace("switch"), "link", "set", "h2", "up"], check=True
    )
    done = machines.command("fetch", "runs/counting/latest", "--json")
    assert done.returncode == 0, done.stderr
    (fetched,) = json.loads(done.stdout).values()
    assert fetched["bytes"]["h2"] > 0 and not fetched["gone"]
    assert (path / LOG).read_text() == "stroke\n"
    # The agent ended the run in order by itself, so nothing of its account is missing.
    assert (path / "hosts/h2/loss.json").exists()
    assert not (path / "spools.json").exists() and spools(machines, "h2") == []
    again = machines.command("fetch", "runs/counting/latest")
    assert again.returncode == 0 and "nothing to fetch" in again.stdout


def test_a_host_whose_key_has_changed_is_collected_when_the_key_is_known(
    machines: SshMachines,
) -> None:
    run, _ = running(machines)
    machines.change_key("h2")
    os.kill(machines.agent("h2"), signal.SIGKILL)
    _, said = run.communicate(timeout=60)
    changed = "host h2: its host key is not the one that is known. If the machine was set up anew"
    assert run.returncode == 4 and changed in said, said
    refused = machines.command("fetch", "runs/counting/latest")
    assert refused.returncode == 4 and changed in refused.stderr, refused.stderr
    assert spools(machines, "h2") and not (repeat(machines) / LOG).exists()
    machines.mend("h2")
    done = machines.command("fetch", "runs/counting/latest")
    assert done.returncode == 0, done.stderr
    assert (repeat(machines) / LOG).read_text() == "stroke\n" and spools(machines, "h2") == []


def test_a_killed_run_is_undone_and_its_data_survives_until_asked_for(
    machines: SshMachines,
) -> None:
    run, file = running(machines)
    # The guardian first, or it would undo what the agent has made.
    ours = machines.pids_of("h2", "loopscope-host")
    for pid in sorted(
        ours, key=lambda p: b"guardian" not in Path(f"/proc/{p}/cmdline").read_bytes()
    ):
        os.kill(pid, signal.SIGKILL)
    run.kill()
    run.communicate()
    path = repeat(machines)
    assert any("sleep" in each for each in machines.processes_of("h2"))
    undone = machines.command("reset", "--hosts", file)
    assert undone.returncode == 0, undone.stderr
    assert "removed: host h2: " in undone.stdout
    while any(machines.processes_of(host) for host in machines.hosts):
        # The agent of h1 ends by itself, and its guardian after it.
        time.sleep(0.05)
    assert spools(machines, "h2") and spools(machines, "h1")
    cut = machines.command("fetch", path.parents[1], "--quota", "5kB")
    assert cut.returncode == 4 and "more than 5000 bytes" in cut.stderr
    assert spools(machines, "h2") and (path / "spools.json").exists()
    assert not (path / LOG).exists() and not list(path.glob(".fetched*"))
    done = machines.command("fetch", path.parents[1])
    assert done.returncode == 0, done.stderr
    assert (path / LOG).read_text() == "stroke\n"
    assert spools(machines, "h2") == spools(machines, "h1") == []
    # The killed controller's own sockets.
    assert "of a controller that was killed" in machines.command("reset").stdout


def test_reset_deletes_data_and_programs_only_when_asked(machines: SshMachines) -> None:
    run, _ = running(machines)
    run.kill()
    run.communicate()
    while machines.processes_of("h2"):
        time.sleep(0.05)
    kits = "ls -d /home/rider/.cache/loopscope/kit-*"
    done = machines.command("reset", "--hosts", "h2")
    assert done.returncode == 0 and "nothing to remove" in done.stdout, done.stderr
    assert spools(machines, "h2") and machines.on("h2", kits)
    done = machines.command("reset", "--hosts", "h2", "--hosts", "h1", "--data", "--cache")
    assert done.returncode == 0, done.stderr
    assert "bytes of measured data" in done.stdout
    for host in ("h1", "h2"):
        assert spools(machines, host) == [] and not machines.on(host, kits, check=False)
    machines.command("reset")
    gone = machines.command("fetch", repeat(machines).parents[1])
    assert gone.returncode == 0 and "host h2 has nothing of base/1 any more" in gone.stdout


ODD = """
name: odd
testbed: TESTBED
hosts: [h1, h2]
phases: [{name: run, timeout: 20s, measured: true}]
components:
  peer: {host: h1, run: loopscope-host pipe sink, start: run, ready: started}
  pump: {host: h2, run: [sh, ./odd.sh], start: run, ready: {exit: 0}}
"""
ODD_ENTRIES = r"""
echo 1 >data; ln data data2; ln -s data latest; mkfifo pipe; >"a
b"; >$(printf 'caf\351')
d=.; for i in $(seq 40); do d=$d/x; done; mkdir -p $d; echo 1 >$d/deep
"""
LEFT_OUT = {
    "latest": "a symbolic link",
    "pipe": "a named pipe",
    "a\\nb": "its name has characters that cannot be printed",
    "caf\\xe9": "its name has characters that cannot be printed",
    "/".join("x" * 29) + "/": "more than 31 folders deep",
}


def manifest(machines: SshMachines, experiment: str) -> dict[str, Any]:
    file = machines.directory / f"runs/{experiment}/latest/manifest.json"
    read: dict[str, Any] = json.loads(file.read_text())
    return read


def test_what_no_run_keeps_is_left_out_alike_over_ssh_and_on_local_hosts(
    machines: SshMachines,
) -> None:
    machines.write("odd.sh", ODD_ENTRIES + "echo secret >secret; chmod 000 secret\n")
    done = machines.command("run", machines.write("odd.yaml", ODD.replace("TESTBED", "ssh")))
    assert done.returncode == 0, done.stderr
    assert "host h2: 6 entries are left out: components/pump/files/" in " ".join(
        done.stderr.split()
    )
    over_ssh = manifest(machines, "odd")
    assert spools(machines, "h2") == [] and over_ssh["status"] == "complete"
    machines.write("odd.sh", ODD_ENTRIES)
    text = ODD.replace("TESTBED", "local").replace("name: odd", "name: here")
    done = machines.command("run", machines.write("here.yaml", text))
    assert done.returncode == 0, done.stderr
    expected = {f"components/pump/files/{path}": why for path, why in LEFT_OUT.items()}
    secret = {"components/pump/files/secret": "cannot be read: Permission denied"}
    for name, read, entries in (
        ("odd", over_ssh, expected | secret),
        ("here", manifest(machines, "here"), expected),
    ):
        (found,) = read["left_out"]
        assert {e["path"]: e["why"] for e in found["h2"]["entries"]} == entries, name
        assert (set(found), found["h2"]["count"]) == ({"h2"}, len(entries)), name
        files = machines.directory / f"runs/{name}/latest/base/1/hosts/h2/components/pump/files"
        kept = {str(path.relative_to(files)) for path in files.rglob("*")}
        assert kept == {"data", "data2", *("/".join("x" * n) for n in range(1, 29))}, name


def test_a_run_whose_results_stay_on_a_host_fails_and_a_fetch_makes_it_complete(
    machines: SshMachines,
) -> None:
    machines.write("odd.sh", "chmod 000 ../../../env.json; ln -s / link\n")
    file = machines.write("odd.yaml", ODD.replace("TESTBED", "ssh"))
    done = machines.command("run", file)
    assert done.returncode == 4, done.stderr
    assert "hosts/h2/env.json cannot be read: Permission denied; to make it readable: " in (
        done.stderr
    )
    assert "to collect it: loopscope fetch runs/odd/" in done.stderr
    assert "refuses the login" not in done.stderr
    read = manifest(machines, "odd")
    assert read["status"] == "failed" and set(read["uncollected"][0]) == {"h2"}
    report = json.loads(machines.command("report", "runs/odd/latest", "--json").stdout)
    assert [each for each in report["problems"] if "env.json cannot be read" in each], report
    again = machines.command("fetch", "runs/odd/latest")
    assert again.returncode == 4 and "env.json cannot be read" in again.stderr
    assert manifest(machines, "odd")["status"] == "failed"
    machines.on("h2", f"chmod -R u+rX {RUNS}")
    fetched = machines.command("fetch", "runs/odd/latest", "--json")
    assert fetched.returncode == 0, fetched.stderr
    (told,) = json.loads(fetched.stdout).values()
    link = {"path": "components/pump/files/link", "why": "a symbolic link"}
    assert told["left_out"] == {"h2": {"count": 1, "entries": [link]}}
    read = manifest(machines, "odd")
    assert (read["status"], read["uncollected"]) == ("complete", [{}])
    assert read["left_out"] == [told["left_out"]] and spools(machines, "h2") == []
    report = json.loads(machines.command("report", "runs/odd/latest", "--json").stdout)
    assert not [each for each in report["problems"] if "env.json" in each], report


def test_a_host_whose_disk_is_full_makes_the_run_fail(machines: SshMachines) -> None:
    state = "/home/rider/.local/state/loopscope"
    machines.on("h2", f"mkdir -p {state}; chown -R 4711 /home/rider/.local")
    machines.on("h2", f"mount -t tmpfs -o size=8m,mode=777,uid=4711 tmpfs {state}")
    machines.write("odd.sh", "cat /dev/zero >ballast; sleep 1\n")
    done = machines.command("run", machines.write("odd.yaml", ODD.replace("TESTBED", "ssh")))
    assert done.returncode == 4, done.stdout + done.stderr
    assert "No space left on device" in done.stderr and "host h2: host h2" not in done.stderr
    assert "host h2: it did not end the run in order: cannot write " in done.stderr
    read = manifest(machines, "odd")
    assert read["status"] == "failed" and set(read["unfinished"][0]) == {"h2"}
    report = json.loads(machines.command("report", "runs/odd/latest", "--json").stdout)
    assert [each for each in report["problems"] if "No space left on device" in each], report


def test_a_folder_that_cannot_be_written_is_named(machines: SshMachines) -> None:
    cache = "/home/rider/.cache/loopscope"
    machines.on("h2", f"mkdir -p {cache}; chown root {cache}; chmod 755 {cache}")
    done = machines.command("run", machines.write("odd.yaml", ODD.replace("TESTBED", "ssh")))
    assert done.returncode == 4 and "refuses the login" not in done.stderr, done.stderr
    assert f"host h2: cannot send the host's programs to {cache}/kit-" in done.stderr
    assert "Permission denied; its user has to be able to write there" in done.stderr
    machines.on("h2", f"rmdir {cache}")
