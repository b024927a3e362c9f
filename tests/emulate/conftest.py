"""Networks for the tests; they need root and say so where it is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from router_network import Network, movers


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Callable[[int], Network]]:
    """Makes a network of so many hosts."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: makes network namespaces, needs root")
    made: list[Network] = []

    def make(hosts: int) -> Network:
        made.append(Network(tmp_path, hosts))
        made[-1].make()
        return made[-1]

    yield make
    for each in made:
        each.remove()


@pytest.fixture(params=["xdp", "tap"])
def mover(request: pytest.FixtureRequest) -> str:
    """Each mover that works here."""
    name: str = request.param
    why = movers()[name]
    if why:
        pytest.skip(f"SKIPPED LOUDLY: the mover {name} does not work here: {why}")
    return name
