"""What has the user-mode stack transfer the connections of an experiment's components."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from loopscope import socket_lines
from loopscope.control.failure import RunFailed
from loopscope.experiment import Component, Experiment, LineReady, acceleration_service
from loopscope.provider import DATA, Host

_SOCKETS = "accelerated-sockets.jsonl"
"""What the library writes into a component's folder."""


class AcceleratedSockets(TypedDict):
    """What became of a component's sockets, as the manifest has it."""

    sockets: int
    accelerated: int
    open: int
    unreadable_lines: int


def services(experiment: Experiment, hosts: Mapping[str, Host], run_id: str) -> list[Component]:
    """The components that serve accelerated ones: one on each host that has some."""
    serving = dict.fromkeys(each.host for each in experiment.components if each.accelerate)
    return [_service(hosts[name], run_id) for name in serving]


def _service(host: Host, run_id: str) -> Component:
    command = ["loopscope-host", "stack", "serve", "--socket", _socket(host.name, run_id)]
    for address in host.addresses.get(DATA, ()):
        command += ["--prepare", address]
    return Component(
        name=acceleration_service(host.name),
        host=host.name,
        argv=tuple(command),
        config={},
        env={},
        ready=LineReady("serving programs"),
        start=None,
        phases=None,
        background=True,
    )


def _socket(host: str, run_id: str) -> str:
    """A name without a file, of the host's network namespace, which is what the service serves."""
    return f"@loopscope-stack-{run_id}-{host}"


def variables(spec: Component, host: Host, run_id: str) -> dict[str, str]:
    """What has a component's programs load the library, and tells it what to do.

    Raises:
        RunFailed: the installation has no library for the host.
    """
    asked = spec.accelerate
    if asked is None:
        return {}
    if host.accelerator is None:
        raise RunFailed(
            f"{spec.name} is to be accelerated (accelerate), and there is no "
            f"libloopscope_preload.so for host {host.name}: install all of loopscope, or run "
            "make build"
        )
    before = spec.env.get("LD_PRELOAD")
    limits = {} if asked.only is None else {"LOOPSCOPE_STACK_ONLY": asked.only}
    if asked.rto_min_ns is not None:
        limits["LOOPSCOPE_STACK_RTO_MIN"] = f"{asked.rto_min_ns // 1000}us"
    return limits | {
        "LD_PRELOAD": host.accelerator + (f":{before}" if before else ""),
        "LOOPSCOPE_STACK": _socket(host.name, run_id),
        "LOOPSCOPE_STACK_RECEIVE": asked.receive,
        "LOOPSCOPE_STACK_EXPLAIN": _SOCKETS,
    }


def found(experiment: Experiment, repeat: Path) -> tuple[dict[str, AcceleratedSockets], list[str]]:
    """What became of the sockets of accelerated components, in the settled directory of a repeat.

    Also returns text for people about components of which nothing was accelerated.
    """
    counts: dict[str, AcceleratedSockets] = {}
    notes = []
    for spec in experiment.components:
        if spec.accelerate is None:
            continue
        file = repeat / "hosts" / spec.host / "components" / spec.name / "files" / _SOCKETS
        try:
            explained = socket_lines.read(file)
        except FileNotFoundError:
            explained = socket_lines.Explained([], 0)
        except OSError as error:
            notes.append(f"cannot read {file} (accelerate): {error.strerror}")
            continue
        counts[spec.name] = {
            "sockets": len(explained.sockets),
            "accelerated": explained.accelerated,
            "open": explained.open,
            "unreadable_lines": explained.unreadable,
        }
        if not explained.accelerated:
            notes.append(f"{spec.name} on {spec.host} was not accelerated: {_why(explained)}")
    return counts, notes


def _why(explained: socket_lines.Explained) -> str:
    """Why the stack had no connection, with the reason that most sockets have."""
    if not explained.sockets:
        return "it made no TCP or UDP socket, or loads no libraries (loopscope accelerate tells)"
    reasons: dict[str, int] = {}
    for socket in explained.sockets:
        if isinstance(why := socket.get("why"), str):
            reasons[why] = reasons.get(why, 0) + 1
    why = max(reasons, key=reasons.__getitem__, default="its sockets had no connection")
    return f"{why} (sockets: {len(explained.sockets)})"


def check_hosts(experiment: Experiment, hosts: Mapping[str, Host]) -> None:
    """Looks whether each host has the library. Raises RunFailed."""
    for spec in experiment.components:
        variables(spec, hosts[spec.host], "")
