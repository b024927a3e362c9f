"""Two machines on one, each a network namespace, of which one has the service of the stack."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from loopscope.testbed import host_binary

HERE, THERE = "10.0.0.1", "10.0.0.2"


class Namespace:
    """A network namespace, which ends with the process that holds it."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo made; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"made\n"
        self.pid = self._holder.pid

    def words(self, *words: str | Path) -> list[str | Path]:
        """The words of a command that runs in it, as the same process."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *words]

    def run(self, command: str) -> None:
        subprocess.run(self.words(*command.split()), check=True)

    def end(self) -> None:
        self._holder.communicate()


@contextmanager
def two_machines() -> Iterator[tuple[Namespace, Namespace]]:
    """Namespaces with a cable between the devices `here` and `there`."""
    with ExitStack() as ending:
        made = []
        for _ in range(2):
            made.append(Namespace())
            ending.callback(made[-1].end)
        here, there = made
        here.run(f"ip link add here type veth peer name there netns {there.pid}")
        for machine, device, address in ((here, "here", HERE), (there, "there", THERE)):
            machine.run("ip link set lo up")
            machine.run(f"ip link set {device} up")
            machine.run(f"ip address add {address}/24 dev {device}")
        yield here, there


@contextmanager
def service(machine: Namespace, path: Path) -> Iterator[None]:
    """The service of a machine, as an administrator starts it."""
    command = machine.words(host_binary(), "stack", "serve", "--socket", path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"serving programs at {path}\n"
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
