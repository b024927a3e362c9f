"""Links between machines of testbed ssh, as an experiment file has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopscope.experiment import ExperimentErrors, load

FILE = """
name: linked
testbed: {testbed}
hosts: [h1, h2]
network:
  {network}
components: {{a: {{host: h1, run: a}}}}
phases: [{{name: run, timeout: 5s, measured: true}}]
"""


def written(folder: Path, network: str, testbed: str = "ssh") -> Path:
    (folder / "losses").write_text("0\n1\n")
    file = folder / "linked.yaml"
    file.write_text(FILE.format(network=network, testbed=testbed))
    return file


def test_links_are_the_same_on_either_testbed(tmp_path: Path) -> None:
    network = "h1 -> h2: {delay: 20ms, loss: 1%, at 2s: {delay: 40ms}}"
    ssh, local = (load(written(tmp_path, network, bed)) for bed in ("ssh", "local"))
    assert ssh.network.emulation is not None
    assert ssh.network.emulation.links == local.network.emulation.links


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("data: 10.1.0.0/24", "give them by `data` in `machines`"),
        ("clock: 10.1.0.0/24", "give them by `clock` in `machines`"),
        ("default: {mtu: 1400B}", "give the mtu of a link"),
        ("{mover: xdp, h1 -> h2: {delay: 1ms}}", "use mover: auto"),
        ("h1 -> h2: {loss: {trace: losses}}", "does not have this file"),
        ("h1 -> h2: {delay: 1ms, at 1s: {loss: {trace: losses}}}", "does not have this file"),
    ],
)
def test_what_machines_cannot_have_is_refused(tmp_path: Path, network: str, message: str) -> None:
    with pytest.raises(ExperimentErrors, match=message.replace("(", r"\(")):
        load(written(tmp_path, network))
    load(written(tmp_path, network, "local"))
