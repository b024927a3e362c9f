"""Faults of runs: how each is brought about, and the first cause that has to be named."""

from __future__ import annotations

import os
import shlex
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from effort import SOAK
from machine import Machine, preloaded
from ssh_machines import SshMachines, parent_of, words_of

LOCAL = "local"
SSH = "ssh"

UNKNOWN = 3
FAILED = 4
INTERRUPTED = 130

FILE = """
name: fault
testbed: {testbed}
hosts: [h1, h2]
{more}
phases:
  - {{name: listen, timeout: 10s}}
  - {{name: run, measured: true, timeout: {timeout}}}
components:
  bystander: {{host: h1, run: [sh, -c, "echo I am here; exec sleep 600"], ready: started}}
  victim: {{host: h2, run: {command}, start: run, ready: {ready}}}
"""
# The victim serves a client on the other host, which fails as soon as it has no answer: its failure
# may be known before the loss of the victim's host is.
SERVED_FILE = """
name: fault
testbed: {testbed}
hosts: [h1, h2]
phases:
  - {{name: listen, timeout: 10s}}
  - {{name: run, measured: true, timeout: 30s}}
components:
  bystander: {{host: h1, run: [sleep, "600"], start: run, ready: {{exit: 0}}}}
  victim: {{host: h2, run: [/usr/bin/python3, -c, {server}], ready: {{port: 7000}}}}
  client:
    host: h1
    run: [/usr/bin/python3, -c, {client}, {address}]
    ready: {{line: connected}}
"""
SERVER = """
import socket
listener = socket.create_server(("", 7000))
client, _ = listener.accept()
while request := client.recv(1):
    client.send(request)
"""
CLIENT = """
import socket, sys, time
while True:
    try:
        server = socket.create_connection((sys.argv[1], 7000))
        break
    except OSError:
        time.sleep(0.05)
server.settimeout(1)
print("connected", flush=True)
try:
    while server.send(b"x") and server.recv(1):
        time.sleep(0.01)
    print("the server has closed the connection", flush=True)
except OSError as error:
    print(f"no answer: {error}", flush=True)
sys.exit(7)
"""
# What reads a clock that is wrong, and compares it with another host's.
CLOCK_FILE = """
name: fault
testbed: {testbed}
hosts: [h1, h2]
trace: {{user: ["pipe:*"], kernel: off}}
clock: {{counters: {{h2: monotonic-raw}}}}
phases:
  - {{name: listen, timeout: 10s}}
  - {{name: connect, timeout: 10s}}
  - {{name: run, measured: true, timeout: 30s}}
components:
  source:
    host: h1
    run: loopscope-host pipe source
    with: {{to: sink, count: 2000, period: 2ms, size: 6B}}
  sink: {{host: h2, run: [sh, ./sink.sh], ready: phases}}
measure: {{paths: {{loop: {{events: [source/pipe:sent, sink/pipe:received]}}}}}}
expect: [loop.lost == 0, loop < 1s]
"""
# Faults of the victim itself do without, except in `make soak` on one testbed: recording takes half
# of such a run.
WITHOUT_KERNEL = "trace: {kernel: off}\n"

# Speaks the phase protocol as far as the fault lets it. Words: the fault, seconds until then.
SPEAKER = """
import json, os, socket, sys, time
link = socket.socket(fileno=int(os.environ["LOOPSCOPE_PHASE_FD"]))
lines = link.makefile("rw")
def say(**message):
    print(json.dumps(message), file=lines, flush=True)
how, delay = sys.argv[1], float(sys.argv[2])
lines.readline()
if how == "mute":
    time.sleep(600)
say(type="hello", version=1, phases=["nothing"] if how == "other" else ["run"])
lines.readline()
time.sleep(delay)
if how == "garbage":
    print("{]", file=lines, flush=True)
elif how == "unknown":
    say(type="sing")
elif how == "refuses":
    say(type="failed", phase="run", error="the valve is stuck")
elif how == "huge":
    print("x" * (1 << 20), file=lines, flush=True)
elif how == "leaves":
    os._exit(0)
time.sleep(600)
"""


@dataclass
class Case:
    """A run with a fault that goes on."""

    machine: Machine
    testbed: str
    run: subprocess.Popen[str]

    def agents(self, host: str | None = None) -> list[int]:
        """Process ids of agents: of a host, or the local testbed's own."""
        if isinstance(self.machine, SshMachines):
            assert host is not None
            return [self.machine.agent(host)]
        processes = self.machine.processes().items()
        every = {pid: words.split() for pid, words in processes if "loopscope-host agent" in words}
        wanted = f"--host {host} " if host else ""
        return [
            pid
            for pid, words in every.items()
            if (wanted in f"{shlex.join(words)} ") and (bool(host) == ("--host" in words))
        ]

    def signal_agent(self, number: int, host: str | None = "h2") -> None:
        """Sends a signal to the agent of a host; None: to that of the machine."""
        # A child that an agent is about to start has its command for a moment.
        os.kill(min(self.agents(host)), number)


@dataclass
class Fault:
    """A kind of fault."""

    name: str
    said: str
    """What the first line of the failure matches (a regular expression); the rest of the output is
    not looked at."""
    command: Callable[[float], list[str]] = lambda _: ["sleep", "600"]
    """The victim's command, for an instant in seconds after its start."""
    ready: str = "{exit: 0}"
    timeout: str = "30s"
    more: str = ""
    inject: Callable[[Case], None] | None = None
    """Done at a random instant after the phase `run` began."""
    prepare: Callable[[Machine], None] | None = None
    """Done before the run."""
    restore: Callable[[Machine], None] | None = None
    """Done when all is looked at."""
    finally_said: str = ""
    """What the last statement of the first cause matches; empty: the same."""
    serves: bool = False
    """Whether the victim has a client, which has to be named as failed afterwards."""
    clock: bool = False
    """Whether the hosts' clocks are compared, and nothing is wrong with the victim."""
    found: str = ""
    """What is found out later about the loss of a host over SSH (a regular expression)."""
    noted: str = ""
    """What is said of it on any testbed, besides the first cause (a regular expression)."""
    code: int = FAILED
    testbeds: tuple[str, ...] = (LOCAL, SSH)
    damages: tuple[str, ...] = ()
    """Hosts that cannot be used by another run afterwards."""
    leaves: tuple[str, ...] = ()
    """Testbeds on which nobody is left who cleans up, so that `reset` has to."""

    def file(self, testbed: str, delay_s: float) -> str:
        if self.serves:
            words = {"server": _quoted(SERVER), "client": _quoted(CLIENT)}
            address = "192.0.2.12" if testbed == SSH else "h2"
            return SERVED_FILE.format(testbed=testbed, address=address, **words) + WITHOUT_KERNEL
        if self.clock:
            return CLOCK_FILE.format(testbed=testbed)
        command = "[" + ", ".join(_quoted(word) for word in self.command(delay_s)) + "]"
        text = FILE.format(
            testbed=testbed, more=self.more, timeout=self.timeout, command=command, ready=self.ready
        )
        records = self.inject is not None or (testbed == LOCAL and SOAK)
        return text if records else text + WITHOUT_KERNEL


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$").replace("\n", "\\n")
    return f'"{escaped}"'


def _shell(script: str) -> Callable[[float], list[str]]:
    """A script that has DELAY for the seconds until the fault."""
    return lambda delay_s: ["sh", "-c", script.replace("DELAY", f"{delay_s:.3f}")]


def _speaker(how: str) -> Callable[[float], list[str]]:
    return lambda delay_s: ["/usr/bin/python3", "-c", SPEAKER, how, f"{delay_s:.3f}"]


def _send(number: signal.Signals) -> Callable[[Case], None]:
    return lambda case: case.run.send_signal(number)


def _kill_agent(number: int, host: str | None = "h2") -> Callable[[Case], None]:
    return lambda case: case.signal_agent(number, host)


def _kill_host(case: Case) -> None:
    """The agent, and the server: local components go on without their agent."""
    processes = case.machine.processes().items()
    (server,) = (p for p, words in processes if "create_server" in words and "-c" in words)
    case.signal_agent(signal.SIGKILL)
    os.kill(server, signal.SIGKILL)


def _kill_launcher(case: Case) -> None:
    assert isinstance(case.machine, SshMachines)
    os.kill(parent_of(case.machine.agent("h2")), signal.SIGKILL)


def _kill_links(case: Case) -> None:
    (pid,) = (p for p, words in case.machine.processes().items() if "host emulate" in words)
    os.kill(pid, signal.SIGKILL)


def _kill_ssh(case: Case) -> None:
    """The desk's connection to a machine."""
    machine = case.machine
    assert isinstance(machine, SshMachines)
    for pid in machine.pids_of("desk", "ssh"):
        words = words_of(pid)
        if words[-2:-1] == ["h2"] and "-M" in words:
            os.kill(pid, signal.SIGKILL)


def _cut(case: Case) -> None:
    assert isinstance(case.machine, SshMachines)
    case.machine.cut("h2")


def _change_key(case: Case) -> None:
    """The machine's key is another one when a new connection is to find out why it was lost."""
    assert isinstance(case.machine, SshMachines)
    case.machine.change_key("h2")
    case.signal_agent(signal.SIGKILL)


def _reboot(case: Case) -> None:
    """Everything on the machine dies at once, and its connections are reset."""
    assert isinstance(case.machine, SshMachines)
    case.machine.reboot("h2")


# The folders of a machine where only its user's programs write, and of a local testbed's runs.
SMALL_BYTES = 64 << 20
WAITS_FOR = "sleep 611"
WAITS = f"trap 'exit 0' USR1; {WAITS_FOR} & wait"


def _variables(machine: Machine) -> dict[str, str]:
    """For programs of h2 that read a clock which `_step` steps."""
    place = _place(machine)
    return {"LD_PRELOAD": f"{place}/stepped_clock.so", "STEP_FILE": f"{place}/step"}


def _place(machine: Machine) -> Path:
    """Where h2's programs find the library and the file by which their clock is stepped."""
    return Path("/home/rider/clock" if isinstance(machine, SshMachines) else machine.directory)


def _files_of(machine: Machine) -> Path:
    """The same folder, from here."""
    if isinstance(machine, SshMachines):
        return Path(f"/proc/{machine.sshd['h2'].pid}/root{_place(machine)}")
    return _place(machine)


def _prepare_clock(machine: Machine) -> None:
    """Has h2's programs read a clock that can be stepped."""
    given = f"export {' '.join(f'{name}={value}' for name, value in _variables(machine).items())}"
    if isinstance(machine, SshMachines):
        machine.on("h2", f"mkdir -p {_place(machine)}")
        home = "/home/rider"
        machine.on("h2", f"cp {home}/.bashrc {home}/clock/bashrc; echo {given} >>{home}/.bashrc")
    else:
        # Every agent of a local testbed has them.
        machine.environment.update(_variables(machine), STEP_HOST="h2")
    machine.write("sink.sh", f"{given}\nunset STEP_HOST\nexec loopscope-host pipe sink\n")
    (_files_of(machine) / "step").write_bytes(struct.pack("=q", 0))
    preloaded("stepped_clock", _files_of(machine))


def _step(case: Case) -> None:
    """Sets the clock of h2's programs 50 ms ahead."""
    with (_files_of(case.machine) / "step").open("r+b") as file:
        file.write(struct.pack("=q", 50_000_000))


def _restore_clock(machine: Machine) -> None:
    if isinstance(machine, SshMachines):
        place = _place(machine)
        machine.on("h2", f"cp {place}/bashrc {place.parent}/.bashrc; rm -r {place}")


def _prepare_disk(machine: Machine) -> None:
    """Gives the runs of a local testbed a disk of their own. A machine's /home is one."""
    if not isinstance(machine, SshMachines):
        runs = machine.directory / "runs"
        runs.mkdir()
        size = f"size={SMALL_BYTES}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", runs], check=True)


# What is used of a tmpfs, in bytes, is the size that leaves no room.
_FULL = 'mount -o remount,size=$(($(stat -f -c "(%b - %f) * %S" {0}))) {0}'


def _fill(case: Case) -> None:
    """Leaves no room on the disk, and then has the victim end in good order."""
    machine = case.machine
    if isinstance(machine, SshMachines):
        machine.on("h2", _FULL.format("/home"))
    else:
        subprocess.run(["sh", "-c", _FULL.format(machine.directory / "runs")], check=True)
    # The run says so while it goes on.
    assert case.run.stderr is not None
    while "is full (" not in (line := case.run.stderr.readline()):
        assert line, "nobody was told of the full disk"
    # It takes the signal once its child is there.
    while not (waiting := _processes(machine, WAITS_FOR)):
        time.sleep(0.01)
    os.kill(parent_of(waiting[0]), signal.SIGUSR1)


def _processes(machine: Machine, command: str) -> list[int]:
    """Processes of h2, or of a local testbed, with this command."""
    if isinstance(machine, SshMachines):
        pids = machine.pids_of("h2", "")
        return [pid for pid in pids if " ".join(words_of(pid)).strip() == command]
    return [pid for pid, words in machine.processes().items() if words == command]


def _restore_disk(machine: Machine) -> None:
    if isinstance(machine, SshMachines):
        machine.on("h2", "mount -o remount,size=50% /home")
    else:
        subprocess.run(["umount", machine.directory / "runs"], check=True)


VICTIM = "victim on h2 failed in phase run: "
GONE = "host h2: its agent is gone"
UP = "host h2: it can be reached and was not rebooted: its agent has ended or was killed"

CLIENT_FAILED = "client on h1 failed in phase run: exit status 7"
# Whatever of the two is known first, the loss is the first cause in the end.
EITHER = f"{GONE}|{CLIENT_FAILED}"
SERVED = [
    Fault(
        "server-host-killed",
        EITHER,
        finally_said=GONE,
        inject=_kill_host,
        serves=True,
        testbeds=(LOCAL,),
    ),
    Fault(
        "server-agent-killed",
        EITHER,
        finally_said=GONE,
        inject=_kill_agent(signal.SIGKILL),
        serves=True,
        found=UP,
        testbeds=(SSH,),
    ),
    Fault(
        "server-launcher-killed",
        EITHER,
        finally_said=GONE,
        inject=_kill_launcher,
        serves=True,
        found=UP,
        testbeds=(SSH,),
    ),
    Fault(
        "server-reboot",
        EITHER,
        finally_said=GONE,
        inject=_reboot,
        serves=True,
        found="was rebooted",
        testbeds=(SSH,),
    ),
    Fault(
        "server-cut",
        CLIENT_FAILED,
        inject=_cut,
        serves=True,
        finally_said="host h2: it has said nothing for 5 s",
        found=f"corrected: what was shown as the first cause was: {CLIENT_FAILED}",
        testbeds=(SSH,),
        damages=("h2",),
    ),
]

FAULTS = [
    *SERVED,
    Fault("exit-status", VICTIM + "exit status 3$", _shell("sleep DELAY; exit 3")),
    Fault("not-found", VICTIM + "exit status 127, .*not found", _shell("sleep DELAY; nosuch")),
    Fault("killed", VICTIM + r"killed by SIGKILL \(9\)", _shell("sleep DELAY; kill -9 $$")),
    Fault("crash", VICTIM + r"killed by SIGSEGV \(11\)", _shell("sleep DELAY; kill -SEGV $$")),
    Fault("abort", VICTIM + r"killed by SIGABRT \(6\)", _shell("sleep DELAY; kill -ABRT $$")),
    Fault(
        "shells-child",
        VICTIM + "exit status 137, .*SIGKILL",
        _shell("sleep DELAY; sh -c 'kill -9 $$'; exit $?"),
    ),
    Fault(
        "descendant-holds-output",
        VICTIM + "exit status 4$",
        _shell("setsid sleep 300 & sleep DELAY; exit 4"),
    ),
    Fault(
        "flood",
        VICTIM + "exit status 5$",
        _shell("sleep DELAY; yes 0123456789 | head -c 30000000; exit 5"),
    ),
    Fault(
        "stopped",
        "phase run did not end within its timeout of 2 s",
        _shell("sleep DELAY; kill -STOP $$"),
        timeout="2s",
    ),
    Fault(
        "too-slow",
        "phase run did not end within its timeout of 2 s",
        _shell("sleep 600"),
        timeout="2s",
    ),
    Fault(
        "ignores-end",
        "phase run did not end within its timeout of 2 s",
        _shell("trap '' TERM INT HUP; while :; do sleep 0.1; done"),
        timeout="2s",
    ),
    Fault(
        "no-port",
        "phase run did not end within its timeout of 2 s",
        ready="{port: 4000}",
        timeout="2s",
    ),
    Fault(
        "no-line",
        "phase run did not end within its timeout of 2 s",
        _shell("echo not yet; sleep 600"),
        ready="{line: ready}",
        timeout="2s",
    ),
    Fault(
        "ends-before-line",
        VICTIM + "it ended .exit status 0. before the phase was done",
        _shell("sleep DELAY"),
        ready="{line: ready}",
    ),
    Fault("garbage", VICTIM, _speaker("garbage"), ready="phases"),
    Fault("unknown-message", VICTIM, _speaker("unknown"), ready="phases"),
    Fault("refuses", VICTIM + "the valve is stuck", _speaker("refuses"), ready="phases"),
    Fault("huge-message", VICTIM, _speaker("huge"), ready="phases"),
    Fault("leaves", VICTIM + "it ended", _speaker("leaves"), ready="phases"),
    Fault("mute", "phase run did not end", _speaker("mute"), ready="phases", timeout="2s"),
    Fault("ctrl-c", "interrupted", inject=_send(signal.SIGINT), code=INTERRUPTED),
    Fault("terminated", "interrupted", inject=_send(signal.SIGTERM), code=INTERRUPTED),
    Fault("hung-up", "interrupted", inject=_send(signal.SIGHUP), code=INTERRUPTED),
    Fault(
        "controller-killed",
        "",
        inject=_send(signal.SIGKILL),
        code=-signal.SIGKILL,
        leaves=(LOCAL, SSH),
    ),
    Fault("agent-killed", GONE, inject=_kill_agent(signal.SIGKILL), found=UP),
    Fault("launcher-killed", GONE, inject=_kill_launcher, found=UP, testbeds=(SSH,)),
    Fault("agent-ended", GONE, inject=_kill_agent(signal.SIGTERM), found=UP),
    Fault(
        "machine-agent-killed",
        "host h[12]: its agent is gone, and so is the agent of this machine: killed by SIGKILL",
        inject=_kill_agent(signal.SIGKILL, None),
        testbeds=(LOCAL,),
    ),
    Fault(
        "links-killed",
        r"_links on _router failed in phase run: killed by SIGKILL \(9\)",
        inject=_kill_links,
        more="network: {h1 -> h2: {delay: 5ms}}",
        testbeds=(LOCAL,),
    ),
    Fault(
        "clock-too-wide",
        "the clocks are not within 1ns after 300ms",
        more="clock: {within: 1ns, patience: 300ms}",
    ),
    Fault("ssh-killed", "host h2: ", inject=_kill_ssh, testbeds=(SSH,), found=UP),
    Fault(
        "agent-silent",
        "host h2: it has said nothing for 5 s",
        inject=_kill_agent(signal.SIGSTOP),
        found="it can be reached and was not rebooted; its agent still runs",
        leaves=(SSH,),
        damages=("h2",),
    ),
    Fault(
        "network-cut",
        "host h2: it has said nothing for 5 s",
        inject=_cut,
        found="it cannot be reached any more",
        testbeds=(SSH,),
        damages=("h2",),
    ),
    Fault("reboot", GONE, inject=_reboot, testbeds=(SSH,), found="was rebooted"),
    Fault(
        "changed-host-key",
        GONE,
        inject=_change_key,
        testbeds=(SSH,),
        found="its host key is not the one that is known.*: it cannot be reached any more",
        damages=("h2",),
    ),
    Fault(
        "full-disk",
        "host h[12]: it did not end the run in order: cannot write .*No space left on device",
        lambda _: ["sh", "-c", WAITS],
        prepare=_prepare_disk,
        inject=_fill,
        restore=_restore_disk,
    ),
    Fault(
        "wrong-clock",
        "",
        clock=True,
        prepare=_prepare_clock,
        inject=_step,
        restore=_restore_clock,
        noted="UNKNOWN loop < 1s .*a clock was disturbed: nothing is known of the time of .*"
        "problem h2, repeat 1: clock/probes: between [0-9.]+ s and [0-9.]+ s of the run its clock "
        "or the reference's was disturbed: global time stepped by -[0-9]+ ns against its counter",
        code=UNKNOWN,
    ),
]
