"""How runs fail: the first cause first, exit 4, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from machine import ROOT, Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

# What programs do wrong has nothing to do with the kernel's events, which take half of such a run.
WITHOUT_KERNEL = "trace: {kernel: off}\n"
HEAD = f"""
name: failing
testbed: local
hosts: [h1, h2]
{WITHOUT_KERNEL}phases:
  - {{name: listen, timeout: 5s}}
  - {{name: run, measured: true, timeout: 60s}}
components:
  bystander: {{host: h1, run: sleep 60, ready: started}}
"""


def fail(machine: Machine, component: str) -> subprocess.CompletedProcess[str]:
    """Runs an experiment with one more component, which must make it fail."""
    machine.write("failing.yaml", HEAD + component)
    done = machine.command("run", "failing.yaml")
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stdout == ""
    return done


def message(done: subprocess.CompletedProcess[str]) -> str:
    """What is said of the failure, from the line that names it first."""
    return done.stderr[done.stderr.index("loopscope: ") :]


def test_exit_status(machine: Machine) -> None:
    command = "sh -c 'for i in $$(seq 50); do echo line $$i; done; echo broken pump >&2; exit 3'"
    done = fail(
        machine, f'  pump: {{host: h2, run: "{command}", ready: {{exit: 0}}, start: run}}\n'
    )
    said = message(done).splitlines()
    assert "pump on h2 failed in phase run: exit status 3" in said[0]
    assert "sh -c" in said[1]
    assert said[2].startswith("  at ") and said[2].endswith(" s of global time")
    # Two streams, so where the one line of stderr stands is not known; that it stands there is.
    lines = [line.split(maxsplit=1) for line in said[4:44]]
    texts = [text for _, text in lines]
    assert sorted(texts) == sorted([f"line {n}" for n in range(12, 51)] + ["broken pump"])
    ended = float(said[2].split()[1])
    # A line's time is that of its reading.
    assert all(abs(float(at) - ended) < 30 for at, _ in lines)
    assert said[44] == "  all that it printed: hosts/h2/components/pump/stdout.log and stderr.log"
    assert said[45] == "stopped because of that: bystander (h1)"
    # The cause is shown before anything is collected, and its first line again at the end.
    assert said.index("collecting") > 45
    assert said[-2] == said[0] and "what was measured is in" in said[-1]


def test_failure_as_json(machine: Machine) -> None:
    component = "  pump: {host: h2, run: sh -c 'exit 3', ready: {exit: 0}, start: run}\n"
    machine.write("failing.yaml", HEAD + component)
    done = machine.command("run", "failing.yaml", "--json")
    assert done.returncode == 4
    said = json.loads(done.stdout)
    assert said["verdict"] is None
    assert said["error"].startswith("pump on h2 failed in phase run: exit status 3")


def test_a_key_that_no_event_has(machine: Machine) -> None:
    """Only the run can tell; its streams are kept."""
    pipeline = (ROOT / "experiments" / "pipeline.yaml").read_text()
    machine.write("pipeline.yaml", pipeline.replace("key: id", "key: serial"))
    done = machine.command("run", "pipeline.yaml", "-p", "count=20")
    assert done.returncode == 4
    assert "serial is no field of pipe:sent" in message(done)
    assert "Traceback" not in done.stderr
    assert (machine.directory / "runs/pipeline/latest/base/1/hosts/h1/trace/metadata").exists()


def test_signal(machine: Machine) -> None:
    done = fail(
        machine, "  pump: {host: h2, run: sh -c 'kill -9 $$$$', ready: {exit: 0}, start: run}\n"
    )
    first = message(done).splitlines()[0]
    assert "pump on h2 failed in phase run: killed by SIGKILL (9), by somebody, or by" in first


def test_a_core_dump_is_named(machine: Machine) -> None:
    command = "ulimit -c unlimited; kill -SEGV $$$$"
    run = f"run: [sh, -c, '{command}'], ready: {{exit: 0}}, start: run"
    done = fail(machine, f"  pump: {{host: h2, {run}}}\n")
    said = message(done).splitlines()
    assert "killed by SIGSEGV (11), segmentation fault" in said[0]
    (core,) = (line for line in said if line.startswith("  core dump: "))
    pump = machine.directory / "runs/failing/latest/base/1/hosts/h2/components/pump"
    place = core.removeprefix("  core dump: ")
    told = json.loads((pump / "exit.json").read_text())["core"]
    own = f"hosts/h2/components/pump/{told}"
    assert place == (own if told.startswith("files/") else told)
    assert not told.startswith("files/") or (pump / told).is_file()


def test_what_others_print_because_of_it(machine: Machine) -> None:
    """The consumer says what it thinks of its producer's end, and is not taken for the cause."""
    number = machine.directory / "number"
    producer = f"echo $$$$ >{number}; sleep 1; exit 7"
    wait = f"until [ -s {number} ]; do sleep 0.01; done"
    gone = f"while kill -0 $$(cat {number}); do sleep 0.01; done"
    consumer = f"echo I wait; {wait}; {gone}; echo my producer is gone; sleep 60"
    done = fail(
        machine,
        f"  producer: {{host: h2, run: [sh, -c, '{producer}'], ready: {{exit: 0}}, start: run}}\n"
        f"  consumer: {{host: h1, run: [sh, -c, '{consumer}'], ready: started, start: run}}\n",
    )
    said = message(done).splitlines()
    (begin,) = (n for n, each in enumerate(said) if each.startswith("what others printed within"))
    (line,) = (each for each in said[begin:] if each.endswith(" on h1: my producer is gone"))
    at = next(each for each in said if each.startswith("  at "))
    assert float(line.split()[0]) >= float(at.split()[1])
    assert not any("I wait" in each for each in said[begin:])


def test_a_program_that_crashes_while_messages_are_on_their_way(machine: Machine) -> None:
    machine.write(
        "failing.yaml",
        HEAD + "  pump: {host: h2, run: sh -c 'sleep 0.5; exit 9', ready: started}\ndrain: 2s\n",
    )
    done = machine.command("run", "failing.yaml")
    assert "pump on h2 failed in phase drain: exit status 9" in message(done).splitlines()[0]


def test_a_program_that_ignores_sigterm(machine: Machine) -> None:
    stubborn = "trap : TERM; while true; do sleep 0.1; done"
    done = fail(
        machine,
        f'  stubborn: {{host: h1, run: [sh, -c, "{stubborn}"], ready: started}}\n'
        "  pump: {host: h2, run: sh -c 'exit 3', ready: {exit: 0}, start: run}\n",
    )
    assert "stubborn on h1 went on for 2 s after SIGTERM and was killed" in done.stderr


def test_phase_that_times_out(machine: Machine) -> None:
    head = HEAD.replace("timeout: 60s", "timeout: 1s")
    machine.write(
        "failing.yaml",
        head + "  pump: {host: h2, run: sh -c 'echo warming up; sleep 60', "
        "ready: {exit: 0}, start: run}\n",
    )
    done = machine.command("run", "failing.yaml")
    assert done.returncode == 4
    said = message(done)
    assert "phase run did not end within its timeout of 1 s" in said.splitlines()[0]
    assert "pump on h2" in said and "warming up" in said


def test_program_that_does_not_exist(machine: Machine) -> None:
    done = fail(machine, "  pump: {host: h2, run: pmup --fast, ready: started}\n")
    said = message(done).splitlines()
    assert "pump on h2 failed" in said[0] and "pmup" in said[0]


def test_the_first_of_several(machine: Machine) -> None:
    """The consumer fails because of the producer: once nobody has the producer's number."""
    number = machine.directory / "number"
    producer = f"echo $$$$ >{number}; sleep 1; exit 7"
    gone = f"while kill -0 $$(cat {number}); do sleep 0.01; done"
    consumer = f"until [ -s {number} ]; do sleep 0.01; done; {gone}; exit 8"
    done = fail(
        machine,
        f"  producer: {{host: h2, run: [sh, -c, '{producer}'], ready: {{exit: 0}}, start: run}}\n"
        f"  consumer: {{host: h1, run: [sh, -c, '{consumer}'], ready: {{exit: 0}}, start: run}}\n",
    )
    said = message(done)
    assert "producer on h2 failed in phase run: exit status 7" in said.splitlines()[0]
    assert "after that, consumer on h1: exit status 8" in said


def test_what_was_measured_is_kept(machine: Machine) -> None:
    fail(
        machine,
        "  pump: {host: h2, run: sh -c 'echo evidence; exit 1', ready: {exit: 0}, start: run}\n",
    )
    (run,) = (machine.directory / "runs" / "failing").glob("2*")
    assert json.loads((run / "manifest.json").read_text())["status"] == "failed"
    pump = run / "base/1/hosts/h2/components/pump"
    assert (pump / "stdout.log").read_text() == "evidence\n"
    assert json.loads((pump / "exit.json").read_text())["code"] == 1


SLOW = HEAD.replace(WITHOUT_KERNEL, "")
SLOW += "  pump: {host: h2, run: sleep 50, ready: {exit: 0}, start: run}\n"


def started(machine: Machine) -> subprocess.Popen[str]:
    """A run that has reached its phase ``run``."""
    machine.write("slow.yaml", SLOW)
    process = machine.start("run", "slow.yaml")
    assert process.stderr is not None
    for line in process.stderr:
        if "phase run" in line:
            break
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if "sleep 50" in machine.processes().values():
            return process
    raise AssertionError("the run never reached its phase")


def test_interrupt(machine: Machine) -> None:
    process = started(machine)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "interrupted" in said
    (run,) = (machine.directory / "runs" / "failing").glob("2*")
    assert json.loads((run / "manifest.json").read_text())["status"] == "interrupted"
    assert (run / "base/1/hosts/h2/components/pump/exit.json").exists()


@pytest.mark.parametrize("delay_s", [0.0, 0.15, 0.3])
def test_interrupt_at_any_moment(machine: Machine, delay_s: float) -> None:
    """Also before the first stage; of those, test_interrupts."""
    machine.write("slow.yaml", SLOW)
    process = machine.start("run", "slow.yaml")
    # Not synchronisation: the moment is the test's parameter.
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    # The interpreter has an answer of its own while it starts up: CPython prints a fatal error when
    # the signal meets the import of ``site``. What is ours: none of our code shows up in it.
    starting = delay_s == 0.0 and "Fatal Python error" in said
    assert process.returncode in (130, -signal.SIGINT) or starting, said
    assert "loopscope/cli/" not in said, said


def test_killed_controller(machine: Machine) -> None:
    process = started(machine)
    assert machine.namespaces()
    process.kill()
    process.wait()
    done = machine.command("reset")
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.leftovers() == []
    again = machine.command("run", "slow.yaml", "-p", "x=1")
    assert again.returncode == 2, "there is no parameter x"
    machine.write("quick.yaml", SLOW.replace("sleep 50", "sleep 0.1"))
    assert machine.command("run", "quick.yaml").returncode == 0


def test_killed_agents_too(machine: Machine) -> None:
    """Nobody is left to clean up: the ledger alone knows what was made."""
    process = started(machine)
    (guardian,) = machine.guardians()
    os.kill(guardian, signal.SIGKILL)
    running = machine.processes().items()
    agents = [pid for pid, command in running if "loopscope-host agent" in command]
    assert len(agents) == 3
    # Stopped before any is killed: an agent whose controller is gone cleans up and ends.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*agents, process.pid):
            os.kill(pid, number)
    process.wait()
    assert machine.namespaces()
    done = machine.command("reset", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    removed = json.loads(done.stdout)["removed"]
    assert any("ls-" in item for item in removed)
    assert machine.leftovers() == []
    assert "nothing to remove" in machine.command("reset").stdout


def test_a_killed_machine_agent_is_cleaned_up_after_at_once(machine: Machine) -> None:
    """With every process of its group, and without anybody's asking."""
    process = started(machine)
    running = machine.processes().items()
    agents = [pid for pid, command in running if "loopscope-host agent" in command]
    assert len(agents) == 3
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*agents, process.pid):
            os.kill(pid, number)
    process.wait()
    deadline = time.monotonic() + 30
    while (machine.leftovers() or machine.guardians()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert machine.leftovers() == []
    assert machine.guardians() == []


def test_reset_leaves_a_living_run_alone(machine: Machine) -> None:
    process = started(machine)
    try:
        done = machine.command("reset", "--json")
        assert json.loads(done.stdout)["in_use"]
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
