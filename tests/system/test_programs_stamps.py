"""When messages left and came to loopscope's own programs, run by an ordinary user.

Needs root, to become that user.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from ordinary_user import OrdinaryUser

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]
Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

TABLE = """\
name,  transport, size,  period, producers, consumers
frame, TRANSPORT, 1000B, 20ms,   source,    near far
"""
PATTERN = """\
name: pattern
hosts: [h1, near, far]
components:
  source:
    host: h1
    run: loopscope-host pattern produce
    with: {table: {file: t.csv}, duration: 2s}
  near: {host: near, run: loopscope-host pattern consume, with: {table: {file: t.csv}}}
  far: {host: far, run: loopscope-host pattern consume, with: {table: {file: t.csv}}}
network: {h1 -> near: {delay: 4ms}, h1 -> far: {delay: 9ms}}
phases:
  - {name: listen, timeout: 10s}
  - {name: connect, timeout: 10s}
  - {name: run, measured: true, timeout: 60s}
trace: {user: ["pattern:*"]}
measure:
  paths:
    near: {key: id, events: [source/pattern:sent, near/pattern:received]}
    far: {key: id, events: [source/pattern:sent, far/pattern:received]}
"""


@pytest.mark.parametrize("transport", ["tcp-nodelay", "udp"])
def test_programs_of_loopscope_tell_when_messages_left_and_came(
    user: OrdinaryUser, results: Read, transport: str
) -> None:
    """Messages to two consumers, each beyond a link of its own delay."""
    user.write("t.csv", TABLE.replace("TRANSPORT", transport))
    user.write("pattern.yaml", PATTERN)
    count = results(user.command("run", "pattern.yaml", "--json"))["paths"]["near"]["count"]
    assert count == 100
    for path, ms in (("near", 4), ("far", 9)):
        why = user.command("why", "runs/pattern/latest", "--path", path, "--worst", "100", "--json")
        hops = [json.loads(line)["hops"][0] for line in why.stdout.splitlines()]
        told = []
        for hop in hops:
            causes: Counter[str] = Counter()
            for part in hop["parts"]:
                causes[f"{part['name']}: {part['cause']}"] += part["ns"]
            assert causes.total() == hop["ns"] > ms * 1_000_000
            told.append(causes)
        assert len(hops) == 100, why.stderr
        links = [each[f"link: the emulated link h1 → {path}, as it is set"] for each in told]
        assert sum(900_000 < ns - (ms - 1) * 1_000_000 < 1_100_000 for ns in links) > 80, links
        sent = [each["unknown: until it left h1"] for each in told]
        assert sum(0 < ns < 1_000_000 for ns in sent) > 80, sent
        # To the link, and from it on: mostly it came while the program that emulates the link was
        # still in the call that sent it on.
        ways = ("wire: ", "send: ")
        took = [sum(ns for of, ns in each.items() if of.startswith(ways)) for each in told]
        assert sum(0 < ns < 2_000_000 for ns in took) > 80, took
