"""A machine whose settings are its own: a network, interfaces and a lock that no other test has."""

from __future__ import annotations

import subprocess
from pathlib import Path

from machine import Machine

# `eth1` is an interface with nobody behind it.
SETUP = """set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mount -t sysfs sysfs /sys
ip link set lo up
ip link add eth1 type veth peer name far
ip link set far up
ip link set eth1 up
echo ready
exec cat
"""


class TunedMachine(Machine):
    """``loopscope`` runs in network and mount namespaces that last as long as the context."""

    def __enter__(self) -> TunedMachine:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", SETUP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    def on_desk(self, *words: str | Path) -> list[str | Path]:
        """The words of a command that is run on the machine."""
        # With other mounts it is in their first folder.
        there = ["sh", "-c", 'cd "$0" && exec "$@"', self.directory, *words]
        return ["nsenter", "-t", str(self._holder.pid), "--net", "--mount", *there]

    def on(self, command: str) -> str:
        """Output of a shell command on the machine, as root."""
        return subprocess.run(
            self.on_desk("sh", "-c", command), capture_output=True, text=True, check=True
        ).stdout.strip()
