"""A router between hosts in network namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

HOST = Path(sys.executable).parent / "loopscope-host"


def run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=check, timeout=120)


def address(i: int) -> str:
    """The Ethernet address of the end at host ``i``."""
    return f"02:00:00:00:00:{i:02x}"


class Network:
    """Hosts ``h1``, ``h2``, …, each at one end of a veth pair.

    The other ends, ``d1``, ``d2``, …, are in the router's namespace.
    """

    def __init__(self, directory: Path, hosts: int) -> None:
        self.directory = directory
        self.prefix = f"lsem{os.getpid()}"
        self.environment = {
            **os.environ,
            "LOOPSCOPE_STATE_DIR": str(directory / "state"),
            "LOOPSCOPE_RUNTIME_DIR": "",
        }
        self.hosts = [f"h{i}" for i in range(1, hosts + 1)]
        self.started: list[subprocess.Popen[str]] = []

    def name(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def make(self) -> None:
        for host in ["router", *self.hosts]:
            run("ip", "netns", "add", self.name(host))
            self.inside(host, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            run("ip", "-n", self.name(host), "link", "set", "lo", "up")
        for i, host in enumerate(self.hosts, 1):
            here, router = self.name(host), self.name("router")
            pair = ["data0", "address", address(i), "netns", here, "type", "veth"]
            run("ip", "link", "add", *pair, "peer", "name", f"d{i}", "netns", router)
            run("ip", "-n", here, "address", "add", f"10.9.0.{i}/24", "dev", "data0")
            run("ip", "-n", here, "link", "set", "data0", "up")
            run("ip", "-n", here, "route", "add", "224.0.0.0/4", "dev", "data0")
            run("ip", "-n", router, "link", "set", f"d{i}", "up")
            off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"]
            self.inside(host, "ethtool", "-K", "data0", *off)

    def remove(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for host in ["router", *self.hosts]:
            run("ip", "netns", "del", self.name(host), check=False)

    def inside(self, host: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return run("ip", "netns", "exec", self.name(host), *map(str, words))

    def start(self, host: str, *words: str | Path, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name(host), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.directory,
            **options,
        )
        self.started.append(process)
        return process

    def python(self, host: str, program: str, *words: str) -> subprocess.Popen[str]:
        """A program on a host; it says something when it is ready to be sent to."""
        return self.start(host, sys.executable, "-c", textwrap.dedent(program), *words)

    def document(self, mover: str, links: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        ports = [
            {"host": host, "device": f"d{i}", "address": address(i)}
            for i, host in enumerate(self.hosts, 1)
        ]
        return {"version": 1, "seed": 3, "mover": mover, "ports": ports, "links": links, **more}

    def emulate(self, document: dict[str, Any]) -> subprocess.Popen[str]:
        """The router, at work."""
        settings = self.directory / "settings.json"
        settings.write_text(json.dumps(document))
        router = self.start("router", HOST, "emulate", "--settings", settings)
        assert router.stdout is not None
        line = router.stdout.readline()
        assert "emulating" in line, (line, router.communicate())
        return router

    def end(self, router: subprocess.Popen[str]) -> dict[str, Any]:
        """What it reports at its end."""
        router.send_signal(signal.SIGTERM)
        output, errors = router.communicate(timeout=60)
        assert router.returncode == 0, errors
        assert "asked delay" in output
        report: dict[str, Any] = json.loads((self.directory / "links.json").read_text())
        balanced(report)
        return report

    def net(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HOST, "net", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def balanced(report: dict[str, Any]) -> None:
    """Every packet of every link is accounted for."""
    for link in report["links"]:
        came = sum(s["in"]["packets"] for s in link["segments"])
        dropped = sum(sum(s["dropped"].values()) for s in link["segments"])
        left = sum(s["out"]["packets"] - s["duplicated"] + s["queued"] for s in link["segments"])
        assert came == left + dropped, link


def segments(report: dict[str, Any], source: str, sink: str) -> list[dict[str, Any]]:
    (found,) = (
        link["segments"] for link in report["links"] if (link["from"], link["to"]) == (source, sink)
    )
    return list(found)


def movers() -> dict[str, str]:
    """Why each mover does not work here; nothing where it does."""
    probed = json.loads(run(str(HOST), "emulate", "--probe", "--json").stdout)
    return {each["mover"]: "" if each["works"] else each["why"] for each in probed}
