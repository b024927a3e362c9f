"""The addresses of machines of testbed ssh, as an experiment file has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopscope import experiment
from loopscope.experiment import ExperimentErrors, load

FILE = """
name: addressed
testbed: ssh
hosts: [h1, h2]
machines: {h1: {data: DATA, clock: CLOCK}}
components:
  a: {host: h1, run: a, with: {}}
  b: {host: h2, run: b}
phases: [{name: run, timeout: 1s}]
"""


def written(folder: Path, data: str, clock: str = "fd00::1", more: str = "") -> Path:
    file = folder / "addressed.yaml"
    file.write_text(FILE.replace("DATA", data).replace("CLOCK", clock) + more)
    return file


def test_a_machine_has_an_address_or_several_or_those_that_ssh_finds(tmp_path: Path) -> None:
    plan = load(written(tmp_path, "[192.0.2.1, 'FD00:0::1', 198.51.100.1]"))
    assert plan.machines["h1"].data == ("192.0.2.1", "fd00::1", "198.51.100.1")
    assert plan.machines["h1"].clock == ("fd00::1",)
    assert (plan.machines["h2"].data, plan.machines["h2"].clock) == ((), ())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("[]", "this list is empty: give an address, or remove the key"),
        ("[192.0.2.1, h1]", "'h1' is no IP address, such as 192.168.1.11"),
        ("[192.0.2.1, 7]", "7 is no IP address"),
        ("['fd00::1', 'fd00:0::1']", "fd00::1 is there twice"),
        ("{a: 192.0.2.1}", "is no IP address"),
    ],
)
def test_wrong_addresses_are_refused_at_their_place(
    tmp_path: Path, data: str, message: str
) -> None:
    with pytest.raises(ExperimentErrors) as raised:
        load(written(tmp_path, data))
    (problem,) = (each for each in raised.value.problems if "warning" not in str(each))
    assert message in problem.message
    assert (problem.line, problem.path) == (5, "machines.h1.data")


SIXTH = "'fd00::2'"


@pytest.mark.parametrize(
    ("h1", "h2", "more", "path"),
    [
        ("clock: 192.0.2.1", f"clock: {SIXTH}", "", "machines.h2.clock"),
        ("data: 192.0.2.1", f"data: 192.0.2.2, clock: {SIXTH}", "", "machines.h2.clock"),
        ("data: 192.0.2.1", f"data: {SIXTH}", "", "machines.h2.data"),
        ("data: 192.0.2.1", f"data: {SIXTH}", "clock: {network: data}\n", "machines.h2.data"),
        # These have a family in common, or it is not known.
        ("clock: 192.0.2.1", f"clock: [{SIXTH}, 192.0.2.2]", "", None),
        ("data: 192.0.2.1", f"data: {SIXTH}, clock: 192.0.2.2", "", None),
        ("clock: 192.0.2.1", "port: 22", "", None),
        ("data: 192.0.2.1", f"clock: {SIXTH}", "clock: {network: data}\n", None),
    ],
)
def test_probes_without_a_family_in_common_are_refused_where_the_file_says_it(
    tmp_path: Path, h1: str, h2: str, more: str, path: str | None
) -> None:
    file = written(tmp_path, "192.0.2.1", more=more)
    text = file.read_text().replace("{data: 192.0.2.1, clock: fd00::1}", f"{{{h1}}}, h2: {{{h2}}}")
    file.write_text(text)
    if path is None:
        load(file)
        return
    with pytest.raises(ExperimentErrors) as raised:
        load(file)
    (problem,) = raised.value.problems
    assert (problem.line, problem.path) == (5, path)
    assert "IPv4 on h1, IPv6 on h2: `" in problem.message, problem.message


def test_manifests_with_one_address_as_text_or_none_are_read(tmp_path: Path) -> None:
    """Manifests of earlier versions have one address or null, in points of a sweep, too."""
    more = "params: {count: 1}\nsweep: {count: [1, 2]}\n"
    plan = load(written(tmp_path, "192.0.2.1", more=more))
    new = json.loads(json.dumps(plan.to_manifest()))
    assert new["machines"]["h1"]["data"] == ["192.0.2.1"]

    def older(value: object) -> object:
        if isinstance(value, dict):
            return {
                key: (each[0] if each else None)
                if key in ("data", "clock") and isinstance(each, list)
                else older(each)
                for key, each in value.items()
            }
        return [older(each) for each in value] if isinstance(value, list) else value

    old = older(new)
    assert isinstance(old, dict) and old["machines"]["h2"]["clock"] is None
    assert experiment.from_manifest(old) == experiment.from_manifest(new) == plan
