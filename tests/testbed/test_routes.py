"""The check that packets between machines come to the router first, with machines that answer."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from loopscope.provider import TestbedError
from loopscope.testbed import routes

ADDRESSES = {"h1": "192.0.2.11", "h2": "192.0.2.12", "r": "192.0.2.13"}
ROUTER = ["1: lo    inet 127.0.0.1/8 scope host lo", "2: eth0    inet 192.0.2.13/24 scope global"]
THROUGH = "192.0.2.12 via 192.0.2.13 dev eth0 src 192.0.2.11 uid 0"


class Answering:
    """A machine that answers every script alike."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.scripts: list[str] = []

    async def ask(self, script: str) -> list[str]:
        self.scripts.append(script)
        return self.lines


class Shell:
    """A machine with a shell, whose `ip` is a script."""

    def __init__(self, folder: Path, ip: str) -> None:
        self.environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        (folder / "ip").write_text(f"#!/bin/sh\n{ip}\n")
        (folder / "ip").chmod(0o755)

    async def ask(self, script: str) -> list[str]:
        words = ["sh", "-c", f"( {script} ) 2>&1"]
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, env=self.environment
        )
        return [line for line in map(str.strip, done.stdout.split("\n")) if line]


def checked(
    h1: Answering | Shell, addresses: dict[str, str] = ADDRESSES, to: tuple[str, ...] = ("h2",)
) -> None:
    machines = {"h1": h1, "r": Answering(*ROUTER)}
    routed = [("h1", target) for target in to]
    asyncio.run(routes.check("r", routed, addresses, cast(Any, machines)))


def test_a_way_by_the_router_is_good() -> None:
    checked(Answering(THROUGH))
    by_inet6 = THROUGH.replace("via ", "via inet6 ")
    checked(Answering(by_inet6))


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("192.0.2.12 dev eth0 src 192.0.2.11 uid 0", "goes there directly by eth0"),
        ("192.0.2.12 via 192.0.2.1 dev eth1 src 192.0.2.11", "goes to 192.0.2.1 by eth1"),
        # A redirect that the router has sent.
        ("192.0.2.12 via 192.0.2.12 dev eth0 cache <redirected>", "goes to 192.0.2.12 by eth0"),
        ("RTNETLINK answers: Network is unreachable", "goes nowhere: RTNETLINK answers"),
        ("sh: 1: ip: not found", "goes nowhere: sh: 1: ip: not found"),
    ],
)
def test_another_way_is_told_with_the_remedy(way: str, told: str) -> None:
    with pytest.raises(TestbedError) as error:
        checked(Answering(way))
    text = str(error.value)
    assert "host h1: what it sends to h2 (192.0.2.12) does not come to the router r first" in text
    assert told in text and "on h1: ip route replace 192.0.2.12 via 192.0.2.13" in text


def test_a_machine_that_says_nothing_has_no_way() -> None:
    with pytest.raises(TestbedError, match="goes nowhere"):
        checked(Answering())


@pytest.mark.parametrize("nothing", ["exit 2", "printf 'one\\ntwo\\n'; exit 2"])
def test_each_answer_is_of_its_own_target(tmp_path: Path, nothing: str) -> None:
    """The first target gets no line, or two."""
    ip = f'[ "$4" = 192.0.2.14 ] || {{ {nothing}; }}; echo {THROUGH}'
    addresses = {**ADDRESSES, "h3": "192.0.2.14"}
    shell = Shell(tmp_path, ip)
    checked(shell, addresses, to=("h3",))
    with pytest.raises(TestbedError) as error:
        checked(shell, addresses, to=("h2", "h3"))
    assert "to h2 " in str(error.value) and "to h3 " not in str(error.value)


def test_an_address_that_a_machine_has_told_is_no_command() -> None:
    h1, hostile = Answering(THROUGH), "192.0.2.12; touch /tmp/x $(id) `id`"
    checked(h1, {**ADDRESSES, "h2": hostile})
    (script,) = h1.scripts
    assert hostile in shlex.split(script)
