"""Settings of machines, as an experiment file has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopscope.cli import schedule
from loopscope.experiment import ExperimentErrors, MachineSettings, from_manifest, load
from loopscope.strict_json import to_json

FILE = """
name: tuned
testbed: {testbed}
hosts: [h1, h2]
{given}
components: {{a: {{host: h1, run: a}}, b: {{host: h2, run: b}}}}
phases: [{{name: run, timeout: 5s, measured: true}}]
"""
SETTINGS = """{
  governor: performance, interrupts: 0,
  sysctls: {net.core.busy_poll: $poll, net.ipv4.tcp_rmem: 4096 87380 6291456},
  interfaces: {eth1: {mtu: 9000B, txqueuelen: 100, gro: false, gso: true,
    gro_flush_timeout: 20us, napi_defer_hard_irqs: 2, qdisc: fq}}}"""
RESOLVED = MachineSettings(
    governor="performance",
    interrupts="0",
    sysctls={"net.core.busy_poll": "50", "net.ipv4.tcp_rmem": "4096 87380 6291456"},
    interfaces={
        "eth1": {
            "mtu": "9000",
            "txqueuelen": "100",
            "gro_flush_timeout": "20000",
            "napi_defer_hard_irqs": "2",
            "gro": "off",
            "gso": "on",
            "qdisc": "fq",
        }
    },
)


def written(folder: Path, given: str, testbed: str = "local") -> Path:
    file = folder / "tuned.yaml"
    file.write_text(FILE.format(given=given, testbed=testbed))
    return file


def test_settings_are_those_of_this_machine_or_of_each(tmp_path: Path) -> None:
    local = load(written(tmp_path, f"params: {{poll: 50}}\nsettings: {SETTINGS}"))
    assert local.settings == RESOLVED
    machines = f"params: {{poll: 50}}\nmachines: {{h1: {{settings: {SETTINGS}}}}}"
    ssh = load(written(tmp_path, machines, "ssh"))
    assert [ssh.machines[name].settings for name in ssh.hosts] == [RESOLVED, MachineSettings()]
    assert ssh.settings == MachineSettings()
    for each in (local, ssh):
        assert from_manifest(json.loads(to_json(each.to_manifest()))) == each


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{sysctls: {net/core/busy_poll: 1}}", "net.core.busy_poll"),
        ("{sysctls: {/proc/sys/net/core/busy_poll: 1}}", "net.core.busy_poll"),
        ("{sysctls: {../../etc/passwd: 1}}", "is no name of a sysctl"),
        ("{sysctls: {net..core: 1}}", "is no name of a sysctl"),
        ("{sysctls: {kernel: 1}}", "is no name of a sysctl"),
        ('{sysctls: {net.core.busy_poll: "1\\n2"}}', "one line"),
        ("{sysctls: {net.core.busy_poll: true}}", "should be text"),
        ("{governor: ../x}", "cannot name a governor"),
        ("{interrupts: all}", "is no list of processors"),
        ("{interrupts: 0-}", "is no list of processors"),
        ("{interrupts: -1}", "is no list of processors"),
        ("{interfaces: {../lo: {mtu: 1500B}}}", "cannot be the name of a network interface"),
        ("{interfaces: {..: {mtu: 1500B}}}", "cannot be the name of a network interface"),
        ("{interfaces: {eth1: {}}}", "sets nothing"),
        ("{interfaces: {eth1: {mtu: 1200B}}}", "at least 1280B"),
        ("{interfaces: {eth1: {gro: off}}}", "true or false"),
        ("{interfaces: {eth1: {qdisc: htb}}}", "pfifo_fast"),
    ],
)
def test_what_cannot_be_a_setting_is_refused(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(ExperimentErrors) as refused:
        load(written(tmp_path, f"settings: {settings}"))
    (problem,) = refused.value.problems
    assert message in f"{problem.message} {problem.hint}", problem
    assert problem.path.startswith("settings."), problem


def test_settings_at_the_place_of_another_testbed_are_refused(tmp_path: Path) -> None:
    settings = "{sysctls: {vm.stat_interval: 2}}"
    with pytest.raises(ExperimentErrors, match="move this into `machines`"):
        load(written(tmp_path, f"settings: {settings}", "ssh"))
    with pytest.raises(ExperimentErrors, match="move this there"):
        load(written(tmp_path, f"machines: {{h1: {{settings: {settings}}}}}"))


def test_a_dry_run_shows_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = "settings: {interrupts: 0-1, interfaces: {eth1: {gro_flush_timeout: 20us, mtu: 2kB}}}"
    local = load(written(tmp_path, given))
    schedule.show(local, as_json=False)
    line = "interrupts 0-1, eth1.mtu 2000 B, eth1.gro_flush_timeout 20000 ns\n"
    assert f"settings of this machine while it lasts: {line}" in capsys.readouterr().out
    ssh = load(
        written(tmp_path, "machines: {h2: {settings: {sysctls: {vm.swappiness: 1}}}}", "ssh")
    )
    schedule.show(ssh, as_json=True)
    assert json.loads(capsys.readouterr().out)["settings"] == {"h2": {"vm.swappiness": "1"}}
