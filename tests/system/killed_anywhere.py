"""Runs of a tiny experiment, each with a SIGKILL of its controller or of an agent, then `reset`.

The program of test_killed_anywhere.py: ``DIRECTORY SEED COUNT``. It is the first process of PID,
network, IPC and mount namespaces of its own, so that whatever is in them is the runs'. It prints
what was not as before.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loopscope.api.checking
import loopscope.cli
import loopscope.control.run
import loopscope.pipeline
from loopscope.provider.connection import Connection
from loopscope.testbed.local import LocalTestbed
from loopscope.testbed.ssh import SshTestbed

LINE = 64  # bytes of a point in the log, see killed_anywhere.c
SETTLE_S = 10.0
"""After `reset`, for processes that have been told to end."""
RUN_S = 60.0
EXPERIMENT = """\
name: tiny
hosts: [h1, h2]
network:
  default: {delay: 1ms}
settings:
  sysctls: {net.ipv4.ip_default_ttl: 70, net.ipv4.tcp_rmem: 4096 90000 600000}
  interfaces: {lo: {mtu: 9000B, txqueuelen: 77, gso: false, qdisc: pfifo}}
components:
  escaped: {host: h1, run: "sh -c 'env -i setsid sleep 600 & exec sleep 600'", ready: started}
  worker: {host: h2, run: "true", ready: {exit: 0}, start: run}
phases:
  - {name: run, timeout: 10s}
"""
# Sysctls that change by themselves.
CHANGING = ("kernel/random/", "kernel/ns_last_pid", "kernel/pty/nr", "kernel/perf_event_")


def snapshot(directory: Path) -> dict[str, Any]:
    """What runs change on a machine, by kind."""

    def shown(*words: str) -> Any:
        return json.loads(subprocess.run(words, capture_output=True, check=True).stdout or "[]")

    namespaces = [path.name for path in Path("/run/netns").iterdir()]
    every = [(), *(("-n", name) for name in sorted(namespaces))]
    mounts = [
        line.split(" ", 4)[4]
        for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    ]
    # Runs of other tests make some in folders of theirs; with a folder its mounts go everywhere.
    mine = [
        each
        for each in mounts
        if "/ls-" not in each.split(" ")[0] or each.startswith(str(directory))
    ]
    places = ("/run", "/dev/shm", directory / "tmp", directory / "state")
    return {
        "links": [shown("ip", *where, "-j", "link") for where in every],
        "qdiscs": [shown("tc", *where, "-j", "qdisc") for where in every],
        "mounts": mine,
        "cgroups": cgroups(),
        "sysctls": sysctls(),
        "interrupts": contents(Path("/proc/irq").glob("*/smp_affinity")),
        "processes": processes(),
        "files": sorted(path for place in places for path in below(place)),
    }


def below(folder: str | Path) -> Iterator[str]:
    """All files and folders in a folder, also where some are being removed meanwhile."""
    for at, folders, files in os.walk(folder):
        yield from (os.path.join(at, name) for name in folders + files)


def contents(paths: Any) -> dict[str, str]:
    """The text of each file that can be read."""
    texts = {}
    for path in paths:
        with contextlib.suppress(OSError):
            texts[str(path)] = path.read_text("utf-8", errors="replace")
    return texts


def sysctls() -> dict[str, str]:
    """The values of the network's and the kernel's."""
    root = Path("/proc/sys")
    every = (path for part in ("net", "kernel") for path in (root / part).rglob("*"))
    stable = (p for p in every if not str(p.relative_to(root)).startswith(CHANGING))
    return contents(path for path in stable if path.is_file())


def cgroups() -> dict[str, str]:
    """The processes of each group below the one that this process is in."""
    (own,) = (
        line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"
    )
    found = {}
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        if " - cgroup2 " in line and own != "/":
            folder = Path(line.split()[4] + own)
            found |= {str(path): "" for path in folder.rglob("*") if path.is_dir()}
    return found


def processes() -> dict[int, str]:
    """All that live in this PID namespace, except this one."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            # Children that have ended have none.
            if words and int(process.name) != os.getpid():
                found[int(process.name)] = words
    return found


def point(log: Path, kill_at: int, what: str) -> None:
    """One of the controller's points."""
    line = f"controller {what}"[: LINE - 1].ljust(LINE - 1) + "\n"
    with log.open("ab", buffering=0) as file:
        file.write(line.encode())
        if file.tell() // LINE - 1 == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()


def count_calls(log: Path, kill_at: int) -> None:
    """Makes a point before and after each call of this process to an agent."""
    ask = Connection.ask

    async def counted(self: Connection, method: str, request: Any, timeout: float) -> Any:
        point(log, kill_at, f"before {method} of {self.host}")
        try:
            return await ask(self, method, request, timeout)
        finally:
            point(log, kill_at, f"after {method} of {self.host}")

    Connection.ask = counted  # type: ignore[method-assign]


def end_with_testbed(kind: type[LocalTestbed] | type[SshTestbed] = LocalTestbed) -> None:
    """Ends this process when its testbed is removed: a time line changes nothing of the machine."""
    remove = kind.remove

    async def removed(self: Any) -> None:
        await remove(self)
        os._exit(0 if not self.problems else 1)

    kind.remove = removed  # type: ignore[method-assign]


def forked(output: Path, work: Callable[[], object]) -> int:
    """The wait status of a child that does ``work``, whose imports have been done."""
    child = os.fork()
    if child:
        deadline = time.monotonic() + RUN_S
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                print(f"{output} took longer than {RUN_S} s")
            time.sleep(0.005)
        return ended[1]
    code = 70
    try:
        os.setsid()
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        os._exit(code)


def command(*words: str) -> None:
    """Is ``loopscope WORDS``."""
    sys.argv = ["loopscope", *words]
    loopscope.cli.main()


def run(directory: Path, kill_at: int, *, guarded: bool = True) -> tuple[int, list[str]]:
    """The wait status of a run that is killed at a point, and its points."""
    log = directory / "points"
    log.write_bytes(b"")

    def work() -> None:
        library = {"LD_PRELOAD": str(directory / "killed_anywhere.so")}
        os.environ.update(library, KILL_LOG=str(log), KILL_AT=str(kill_at))
        if not guarded:
            os.environ["KILL_GUARDIAN"] = "1"
        count_calls(log, kill_at)
        end_with_testbed()
        command("run", str(directory / "tiny.yaml"), "--runs", str(directory / "runs"))

    status = forked(directory / "run.txt", work)
    return status, log.read_text("utf-8").splitlines()


def differences(before: dict[str, Any], directory: Path) -> list[str]:
    """What is not as before, once processes that have been told to end have ended."""
    deadline = time.monotonic() + SETTLE_S
    while (now := snapshot(directory)) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    texts = []
    for kind in (kind for kind in before if before[kind] != now[kind]):
        was, is_now = before[kind], now[kind]
        if isinstance(was, dict):
            keys = [key for key in {**was, **is_now} if was.get(key) != is_now.get(key)]
            texts += [f"{kind}: {key}: {was.get(key)} -> {is_now.get(key)}" for key in keys]
        else:
            texts += [f"{kind}: {each} is gone" for each in was if each not in is_now]
            texts += [f"{kind}: {each} is new" for each in is_now if each not in was]
    return texts


def main(directory: Path, seed: str, count: int) -> None:
    """Kills ``count`` runs, at points that the seed draws."""
    prepare(directory)
    before = snapshot(directory)
    status, points = run(directory, -1)
    output = (directory / "run.txt").read_text("utf-8")
    assert status == 0, output
    left = differences(before, directory)
    assert not left, f"a run that nobody killed left: {left}"
    print(f"seed {seed}: {count} of {len(points)} points")
    drawn = random.Random(seed)
    killed = wrong = 0
    # Each once, and again only where there are fewer than wanted.
    rounds = -(-count // len(points))
    for number, kill_at in enumerate(drawn.sample([*range(len(points))] * rounds, count)):
        # Once the guardian and `reset` clean up, once `reset` alone.
        guarded = number % 2 == 0
        _, seen = run(directory, kill_at, guarded=guarded)
        name = seen[kill_at].strip() if kill_at < len(seen) else "not reached"
        what = f"point {kill_at} ({name}), {'with' if guarded else 'without'} guardian"
        killed += kill_at < len(seen)
        problems = []
        if forked(directory / "reset.txt", lambda: command("reset")) != 0:
            problems.append("reset: " + (directory / "reset.txt").read_text("utf-8"))
        problems += differences(before, directory)
        if problems:
            wrong += 1
            print(f"{what}:", *problems, (directory / "run.txt").read_text("utf-8"), sep="\n  ")
            # So that the next one is judged by itself.
            before = snapshot(directory)
    # The order of calls differs a little between runs.
    assert killed > count * 3 // 4, f"only {killed} of {count} were killed"
    assert not wrong, f"{wrong} of {count} left something"


def prepare(directory: Path) -> None:
    """Gives the machine what it has anyway once `ip netns` and loopscope have been used on it."""
    if Path("/run/netns").exists():
        # Those of others, which come and go.
        subprocess.run(["umount", "--recursive", "--lazy", "/run/netns"], check=False)
    for place in ("/run", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "netns", "add", "first"], check=True)
    subprocess.run(["ip", "netns", "delete", "first"], check=True)
    (directory / "tiny.yaml").write_text(EXPERIMENT, "utf-8")
    (directory / "tmp").mkdir()
    waiting = Path("/dev/shm") / f"loopscope-{os.getuid()}"
    for folder in ("state", "state/ledger", "state/control", waiting):
        (directory / folder).mkdir(mode=0o700)
    os.environ.update(TMPDIR=str(directory / "tmp"), LOOPSCOPE_STATE_DIR=str(directory / "state"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
