"""Programs with more than one process directory.

They are daemons, and processes with two copies of the library.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import Machine

pytestmark = pytest.mark.full

PREFIX = Path(sys.executable).parents[1]

# Becomes a daemon, closes everything, and hits once for each byte that it reads from a FIFO.
DAEMON = """
#include <fcntl.h>
#include <loopscope/trace.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char path[4096], byte;
    long next = 0;
    (void)argc;
    if (fork() != 0)
        exit(0);
    setsid();
    if (fork() != 0)
        exit(0);
    for (int fd = 0; fd < 256; fd++)
        close(fd);
    FILE *file;
    snprintf(path, sizeof path, "%s.new", argv[1]);
    if (!(file = fopen(path, "w")) || fprintf(file, "%d", (int)getpid()) < 0 || fclose(file) != 0
        || rename(path, argv[1]) != 0)
        return 1;
    int fifo = open(argv[2], O_RDONLY);
    while (read(fifo, &byte, 1) == 1)
        LOOPSCOPE_EVENT("daemon", "hit", next++);
    return 0;
}
"""

SHORT = """
#include <loopscope/trace.h>
int main(void) { LOOPSCOPE_EVENT("short", "hit", 1); return 0; }
"""

PLUGIN = """
#include <loopscope/trace.h>
void tock(long n);
void tock(long n) { LOOPSCOPE_EVENT("plugin", "tock", n); }
"""

HOST = """
#include <dlfcn.h>
#include <loopscope/trace.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void (*tock)(long) = plugin ? (void (*)(long))dlsym(plugin, "tock") : NULL;
    long next = 0, rounds;
    if (!tock)
        return 1;
    puts("ready");
    fflush(stdout);
    while (scanf("%ld", &rounds) == 1)
        for (; rounds > 0; rounds--, next++) {
            LOOPSCOPE_EVENT("host", "tick", next);
            tock(next);
        }
    return 0;
}
"""


def compiled(machine: Machine, name: str, source: str, *flags: str | Path) -> Path:
    written = machine.write(f"{name}.c", source)
    binary = machine.directory / name
    # What the flags name comes behind what needs it.
    command = ["cc", "-O1", "-Wall", "-Wextra", f"-I{PREFIX}/include", written, *flags]
    subprocess.run([*command, "-o", binary], check=True)
    return binary


SHARED = (f"-L{PREFIX}/lib", "-lloopscope", f"-Wl,-rpath,{PREFIX}/lib")
STATIC = (PREFIX / "lib" / "libloopscope.a", "-pthread", "-ldl")


def attached(machine: Machine, pid: int, *words: str | Path) -> subprocess.Popen[str]:
    """An attach that records already: it has answered."""
    attach = machine.start("attach", str(pid), *words)
    deadline = time.monotonic() + 60
    while True:
        asked = machine.command("enable", "none:*", "--to", str(pid))
        if asked.returncode == 0:
            return attach
        assert attach.poll() is None, attach.communicate()
        assert time.monotonic() < deadline


def entities(done: str) -> dict[str, Any]:
    account: dict[str, Any] = json.loads(done.splitlines()[-1])
    assert account["dropped"] == 0
    return {name: found["count"] for name, found in account["entities"].items()}


@pytest.fixture
def daemon(machine: Machine) -> Iterator[int]:
    fifo, told = machine.directory / "fifo", machine.directory / "pid"
    os.mkfifo(fifo)
    program = compiled(machine, "demon", DAEMON, *SHARED)
    subprocess.run([program, told, fifo], env=machine.environment, check=True)
    deadline = time.monotonic() + 60
    while not told.exists():
        assert time.monotonic() < deadline
    pid = int(told.read_text())
    yield pid
    if Path(f"/proc/{pid}").exists():
        os.kill(pid, signal.SIGKILL)


def test_a_daemon(machine: Machine, daemon: int) -> None:
    # Another program sweeps away what the dead left.
    subprocess.run(
        [compiled(machine, "short", SHORT, *SHARED)], env=machine.environment, check=True
    )
    listed = machine.command("entities", str(daemon))
    assert listed.returncode == 0 and "daemon:hit" in listed.stdout, listed.stderr
    again = machine.command("attach", str(daemon), "-o", "before", "--for", "10ms", "--json")
    assert again.returncode == 0, again.stderr
    attach = attached(machine, daemon, "-o", "out", "--json")
    with (machine.directory / "fifo").open("wb") as fifo:
        fifo.write(bytes(300))
    out, err = attach.communicate(timeout=60)
    assert attach.returncode == 0, err
    assert entities(out) == {"daemon:hit": 300}
    # With the daemon goes what it and its parents waited in.
    deadline = time.monotonic() + 60
    while Path(f"/proc/{daemon}").exists():
        # The process that adopts orphans has not waited for it yet.
        assert time.monotonic() < deadline
    place = Path(f"/dev/shm/loopscope-{os.geteuid()}")
    subprocess.run([machine.directory / "short"], env=machine.environment, check=True)
    own = f"/{daemon}-"
    assert not [path for path in place.iterdir() if own in str(path)]


def test_two_copies_of_the_library(machine: Machine) -> None:
    plugin = compiled(machine, "plugin.so", PLUGIN, "-shared", "-fPIC", *SHARED)
    binary = compiled(machine, "host", HOST, *STATIC)
    program = subprocess.Popen(
        [binary, plugin],
        env=machine.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdin is not None and program.stdout is not None
        program.stdout.readline()
        listed = machine.command("entities", str(program.pid))
        assert "host:tick" in listed.stdout and "plugin:tock" in listed.stdout, listed.stderr
        attach = attached(machine, program.pid, "-o", "out", "--json")
        program.communicate("200\n", timeout=60)
        out, err = attach.communicate(timeout=60)
        assert attach.returncode == 0, err
        assert entities(out) == {"host:tick": 200, "plugin:tock": 200}
    finally:
        program.kill()
        program.wait()
    # Recorded from its start it always was.
    done = subprocess.run(
        [PREFIX / "bin" / "loopscope", "record", "-o", "whole", "--json", "--", binary, plugin],
        cwd=machine.directory,
        env=machine.environment,
        input="50\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert entities(done.stdout) == {"host:tick": 50, "plugin:tock": 50}
