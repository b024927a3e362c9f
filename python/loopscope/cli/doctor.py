"""``loopscope doctor``: what this machine offers and lacks, and what each absence costs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loopscope.strict_json import to_json

HELP = "List what this machine offers and lacks for loopscope, and what each absence costs."

SO_TIMESTAMPING = 37
SOF_TIMESTAMPING_SOFTWARE = 1 << 4 | 1 << 3 | 1 << 1

# What moves packets through emulated links, and what its absence costs.
MOVERS = {
    "xdp": ("AF_XDP", "links are emulated by AF_PACKET instead: fewer packets a second"),
    "tap": ("AF_PACKET", "where AF_XDP cannot be had either, no link is emulated"),
    "netem": ("the kernel's netem", "mover: netem is refused; the others need nothing of it"),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for. ``cost`` says what its absence means, empty if present."""

    what: str
    ok: bool
    found: str
    cost: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    findings = list(examine())
    if as_json:
        typer.echo(to_json({"findings": [asdict(finding) for finding in findings]}))
        return
    console = Console(highlight=False)
    for finding in findings:
        mark = "[green]has[/]  " if finding.ok else "[yellow]lacks[/]"
        console.print(f"{mark} {finding.what}: {finding.found}")
        if finding.cost:
            console.print(f"        {finding.cost}")


def examine() -> Iterator[Finding]:
    """Looks at the machine; changes nothing."""
    yield Finding(
        "kernel", True, f"{platform.release()} on {platform.machine()}, {os.cpu_count()} CPUs"
    )
    yield from _rights()
    ip = shutil.which("ip")
    yield _cost(
        "ip (iproute2)",
        ip is not None,
        str(ip),
        "not in PATH",
        "no local testbed: install iproute2",
    )
    yield from _counter()
    yield _machine()
    yield _stamps()
    yield _hardware_clocks()
    shm = os.access("/dev/shm", os.W_OK)
    yield _cost(
        "/dev/shm",
        shm,
        "writable",
        "not writable",
        "rings go to the temporary directory: slower, and on disk where that is a disk",
    )
    yield _host_binary()
    yield from _movers()
    yield _kernel_events()
    yield from _programs()
    yield _governor()
    yield from _sudo()
    reader = shutil.which("babeltrace2")
    yield _cost(
        "babeltrace2",
        reader is not None,
        str(reader),
        "not in PATH",
        "traces cannot be looked at with it; loopscope itself does not need it",
    )


def _cost(what: str, ok: bool, yes: str, no: str, cost: str) -> Finding:
    return Finding(what, ok, yes, "") if ok else Finding(what, False, no, cost)


def _rights() -> Iterator[Finding]:
    """Whether this user can have a local testbed, and what its hosts cannot do."""
    from loopscope.testbed import TestbedError, dormant, host_binary

    root = os.geteuid() == 0
    yield _cost("root", root, "yes", "no", "less works on hosts of the local testbed, see below")
    what = "local testbed"
    try:
        command: list[str | Path] = [host_binary(), "agent", "--probe"]
    except TestbedError:
        # Told by another finding.
        return
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, env=dormant()
    )
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        yield Finding(what, False, said, "no experiment can be run on this machine alone")
        return
    tried = json.loads(done.stdout)
    yield _cost(
        what,
        tried["works"],
        "yes" if root else "yes, in a user namespace",
        tried["why"],
        "no experiment can be run on this machine alone",
    )
    for each in tried["lacking"]:
        yield Finding(f"{each['what']} on its hosts", False, each["why"], each["cost"])


def _flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def _machine() -> Finding:
    """A virtual machine that is moved or set back; its counter may not show it."""
    what = "notice of a virtual machine's moves and snapshots"
    device = Path("/dev/vmclock0")
    if "hypervisor" not in _flags() and platform.machine() != "aarch64":
        return Finding(what, True, "the machine is not virtual")
    return _cost(
        what,
        os.access(device, os.R_OK),
        f"VMClock, {device}",
        f"{device} is not readable" if device.exists() else f"no {device} (VMClock)",
        "of a virtual machine that is moved to another host or set back to a snapshot, only what "
        "its counter or CLOCK_BOOTTIME shows is noticed: until probes contradict it, bounds may be "
        "wrong",
    )


def _stamps() -> Finding:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE)
        except OSError as error:
            return Finding(
                "kernel packet stamps",
                False,
                str(error),
                "clock probes are stamped by the program: widths of tens of microseconds",
            )
    return Finding("kernel packet stamps", True, "SO_TIMESTAMPING, software")


def _hardware_clocks() -> Finding:
    found = sorted(path.name for path in Path("/dev").glob("ptp*"))
    readable = [name for name in found if os.access(f"/dev/{name}", os.R_OK)]
    lacking = f"{', '.join(found)}, not readable" if found else "no /dev/ptp*"
    return _cost(
        "network interfaces with a clock",
        bool(readable),
        f"{', '.join(readable)}; stamps by them have not been tried on real hardware yet",
        lacking,
        "clock probes are stamped by the kernel, which queues in the driver disturb more",
    )


def _host_binary() -> Finding:
    from loopscope.testbed import TestbedError, host_binary

    try:
        return Finding("loopscope-host", True, str(host_binary()))
    except TestbedError as error:
        return Finding("loopscope-host", False, "not found", str(error))


def _counter() -> Iterator[Finding]:
    """What stamps events, and whether it is one and the same on all processors."""
    from loopscope.testbed import TestbedError, dormant, host_binary

    try:
        binary = host_binary()
    except TestbedError:
        # Told by another finding.
        return
    command: list[str | Path] = [binary, "clock", "processors"]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, env=dormant()
    )
    what = "one counter for all processors"
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        yield Finding(what, False, said, "no clocks between hosts")
        return
    found = json.loads(done.stdout)
    yield _kind_of_counter(found["counter"])
    within, pairs = f"{found['within_ns']:.0f} ns", found["pairs"]
    yield _cost(
        what,
        found["refused"] is None,
        f"within {within} of each other, by {pairs} pairs; times between hosts are that much wider",
        str(found["refused"]),
        f"no clocks between hosts: probes refuse counters more than {found['limit_ns']} ns apart",
    )


def _kind_of_counter(counter: dict[str, Any]) -> Finding:
    """Whether the processor's cycles stamp events, and what that costs."""
    kind, why, read = counter["kind"], counter["mistrust_of_cycles"], f"{counter['read_ns']:.1f} ns"
    if kind == "cycles":
        return _cost(
            "the processor's cycles as counter",
            why is None,
            f"invariant, and the kernel keeps time by them; a reading costs {read}",
            str(why),
            "LOOPSCOPE_COUNTER asks for them all the same: clock probes refuse them",
        )
    return Finding(
        "the processor's cycles as counter",
        False,
        why or "LOOPSCOPE_COUNTER asks for CLOCK_MONOTONIC_RAW",
        f"events are stamped with CLOCK_MONOTONIC_RAW: a reading costs {read}, and it steps by "
        f"{counter['step_ns']:.0f} ns at most, which is added to the maximum error of every time",
    )


def _movers() -> Iterator[Finding]:
    from loopscope.testbed import TestbedError, dormant, host_binary

    try:
        binary = host_binary()
    except TestbedError:
        # Told by the finding before.
        return
    command: list[str | Path] = [binary, "emulate", "--probe", "--json"]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, env=dormant()
    )
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        yield Finding("emulated links", False, said, "no link can be emulated")
        return
    tried = {each["mover"]: each for each in json.loads(done.stdout)}
    auto = next((name for name in ("xdp", "tap") if tried[name]["works"]), None)
    for name, (what, cost) in MOVERS.items():
        works, why = tried[name]["works"], str(tried[name]["why"])
        used = ", used by mover: auto" if name == auto else ""
        yield _cost(f"mover {name} ({what})", works, f"yes{used} ({why})", why, cost)


def _kernel_events() -> Finding:
    """Whether the kernel's events can be recorded here, by the local testbed or an agent."""
    known = Path("/proc/filesystems").read_text(encoding="utf-8").split()
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    # proc(5): the mount point is the fifth field; the type comes after the dash.
    places = [line.split()[4] for line in mounts if " - tracefs " in line]
    found = "yes, through tracefs" if places else "yes, tracefs is mounted for each run"
    missing = ""
    if os.geteuid() != 0:
        missing = "takes root"
    elif "tracefs" not in known:
        missing = "this kernel has no tracefs"
    elif places:
        clocks = (Path(places[0]) / "trace_clock").read_text(encoding="utf-8").split()
        offered = {clock.strip("[]") for clock in clocks}
        if "x86-tsc" not in offered:
            found = "of hosts whose counter is monotonic-raw alone: tracing has no x86-tsc clock"
    return _cost(
        "kernel events",
        not missing,
        found,
        missing,
        "what a program waited for is not known: `loopscope why` has only for how long threads ran "
        "and waited for a processor",
    )


def _programs() -> Iterator[Finding]:
    """Whether the kernel's events that programs record can be recorded here."""
    from loopscope.testbed import TestbedError, dormant, host_binary

    try:
        binary = host_binary()
    except TestbedError:
        # Told by an earlier finding.
        return
    done = subprocess.run(
        [binary, "programs"], capture_output=True, encoding="utf-8", check=False, env=dormant()
    )
    works, untold = False, ""
    why = done.stderr.strip() or f"exit status {done.returncode}"
    if done.returncode == 0:
        told = json.loads(done.stdout)
        works, why = bool(told["works"]), str(told["why"])
        if not told["throttled"]:
            untold = "; this kernel does not tell when a cgroup has used up its processor time"
    yield _cost(
        "kernel events of classes sleep, call, tcp, udp and drop",
        works,
        f"yes, by programs in the kernel (BPF){untold}",
        why,
        "on what a thread slept, why TCP kept a message and what dropped one is not known: "
        "`loopscope why` says only that they did",
    )


def _governor() -> Finding:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if not path.exists():
        return Finding("frequency governor", True, "none visible (fixed, or the host's business)")
    governor = path.read_text(encoding="utf-8").strip()
    return _cost(
        "frequency governor",
        governor == "performance",
        governor,
        governor,
        "response times vary with the CPU's frequency: cpupower frequency-set -g performance",
    )


def _sudo() -> Iterator[Finding]:
    """What `become: sudo` starts on this machine, for runs of testbed ssh by this user."""
    from loopscope.testbed import TestbedError, dormant, host_binary
    from loopscope.testbed.kit import for_machine

    try:
        binary_hash = for_machine(platform.machine()).binary_hash
        command: list[str | Path] = [host_binary(), "setup", "--check", binary_hash]
    except TestbedError:
        # Told by another finding.
        return
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, env=dormant()
    )
    what = "the program that become: sudo starts"
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        yield Finding(what, False, said, "runs on this machine get no rights by become: sudo")
        return
    found = json.loads(done.stdout)
    yield _cost(
        what,
        bool(found["copies"]) and not found["unsafe"],
        ", ".join(found["copies"]),
        found["unsafe"] or "not installed",
        "runs of testbed ssh on this machine with become: sudo need it: loopscope host setup",
    )
