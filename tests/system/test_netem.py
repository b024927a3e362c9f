"""Experiments whose links are the kernel's, whole.

Many kernels lack netem, so `tc` is one that says TBF where loopscope says netem: of what is asked
only the rate is done. All else is shipped.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from typing import Any

import pytest
from linked_pipeline import linked_pipeline
from machine import Machine

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]

STAND_IN = """\
#!/bin/sh
sed -E -e 's/netem .*rate 0bit/tbf rate 10gbit burst 200000 limit 10000000/' \\
  -e 's/netem .*rate ([0-9]+)bit/tbf rate \\1bit burst 2000 limit 100000/' \\
  -e 's/netem delay 1ms/pfifo/' | TC "$@"
"""

EXPERIMENT = linked_pipeline(
    "mover: netem",
    "h1 -> h2: {rate: 1Mbit, at 300ms: {rate: 2Mbit, loss: 1%}}",
    "h2 -> h3: {delay: 0ms, duplicate: 0%, rate: 10Mbit}",
    count=200,
)


@pytest.fixture
def netem(machine: Machine) -> Machine:
    """A machine whose kernel seems to have it."""
    tc = shutil.which("tc")
    assert tc is not None, "iproute2 is not installed"
    (machine.directory / "bin").mkdir()
    stand_in = machine.write("bin/tc", STAND_IN.replace("TC", tc))
    stand_in.chmod(0o755)
    machine.environment["PATH"] = f"{stand_in.parent}:{machine.environment['PATH']}"
    machine.write("n.yaml", EXPERIMENT)
    return machine


def account(machine: Machine) -> dict[str, Any]:
    """The latest run's links.json, every link of which balances."""
    latest = machine.directory / "runs/links/latest/base/1"
    file = latest / "hosts/_router/components/_links/files/links.json"
    read: dict[str, Any] = json.loads(file.read_text())
    for link in read["links"]:
        came = sum(s["in"]["packets"] for s in link["segments"])
        left = sum(s["out"]["packets"] - s["duplicated"] + s["queued"] for s in link["segments"])
        assert came == left + sum(sum(s["dropped"].values()) for s in link["segments"]), link
    return read


def segments(read: dict[str, Any], source: str, sink: str) -> list[dict[str, Any]]:
    (found,) = (
        link["segments"] for link in read["links"] if (link["from"], link["to"]) == (source, sink)
    )
    return list(found)


def test_what_the_kernel_does_is_reported_beside_what_was_asked(netem: Machine) -> None:
    done = netem.command("run", "n.yaml", "--json")
    assert done.returncode == 0, done.stderr
    read = account(netem)
    assert (read["mover"], read["missed"], read["problems"]) == ("netem", 0, [])
    before, after = segments(read, "h1", "h2")
    assert before["asked"]["rate_bps"] == 1_000_000
    assert (after["asked"]["rate_bps"], after["asked"]["loss"]["probability"]) == (2_000_000, 0.01)
    assert before["since_ns"] < 0 < 300_000_000 <= after["since_ns"]
    assert before["out"]["packets"] > 20 and after["out"]["packets"] > 100
    assert after["delay_ns"]["max"] > 0 and after["late_ns"]["p50"] is None
    # Nothing was lost, so all that came had left when the run was over.
    assert [each["queued"] for each in (before, after)] == [0, 0]
    # Each message went over each link, and what answers it over the way back, which was not asked.
    assert sum(s["out"]["packets"] for s in segments(read, "h2", "h3")) >= 200
    assert sum(s["out"]["packets"] for s in segments(read, "h2", "h1")) >= 50

    found = json.loads(done.stdout)
    found = found["points"][0] if "points" in found else found
    links = {(link["from"], link["to"], link["since_ns"] > 0): link for link in found["links"]}
    assert links["h1", "h2", True]["mover"] == "netem"
    assert links["h1", "h2", True]["lost"]["inside"] is None, "a loss or a full queue"
    assert links["h2", "h3", False]["lost"]["inside"] is True
    said = netem.command("report", "runs/links/latest").stdout
    head = said.partition("Emulated links\n")[2].partition("\n")[0]
    assert "loss asked" in head and "rate" in head and "late" not in head, said
    assert netem.leftovers() == []


def test_links_are_shown_and_changed_while_they_are_used(netem: Machine) -> None:
    process = netem.start("run", "n.yaml", "-p", "count=20000")
    assert process.stderr is not None
    assert any("phase run" in line for line in process.stderr)
    try:
        done = netem.command("net", "set", "h2 -> h3", "rate=20Mbit", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["h2 -> h3"]["rate_bps"] == 20_000_000
        # One on which nothing was asked.
        done = netem.command("net", "set", "h3 -> h1", "rate=1Mbit")
        assert done.returncode == 0, done.stderr
        queues = on_port(netem, "tc", "qdisc", "show", "dev", "d1")
        assert "tbf 4: parent 1:3 rate 1Mbit" in queues, queues
        for words, message in {
            ("h2 -> h3", "loss={every: 10}"): "netem does not count packets",
            ("h2 -> h3", "rate=none", "jitter=1ms"): "above the delay",
        }.items():
            refused = netem.command("net", "set", *words)
            assert refused.returncode == 2, refused.stdout
            assert message in refused.stderr
        said = netem.command("net", "show").stdout
        assert "rate=20Mbit" in said and "{" not in said
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    rates = [each["asked"]["rate_bps"] for each in segments(account(netem), "h2", "h3")]
    assert rates == [10_000_000, 20_000_000]
    assert netem.leftovers() == []


def on_port(machine: Machine, *words: str) -> str:
    (switch,) = (name for name in machine.namespaces() if name.endswith("-net"))
    inside = ["ip", "netns", "exec", switch, *words]
    return subprocess.run(inside, capture_output=True, text=True, check=True).stdout


def alone(machine: Machine, meanwhile: str) -> subprocess.CompletedProcess[str]:
    """Two ports' router in a namespace that outlives it; what is left of it comes after `ended`."""
    inside = "\n".join(
        [
            "for i in 1 2; do ip link add d$i type veth peer name p$i",
            "ip link set d$i up; ip link set p$i up; done",
            "loopscope-host emulate --settings n.json & pid=$!",
            "until ip link show ls-netem > /dev/null 2>&1 && tc qdisc show | grep -q tbf",
            "do kill -0 $pid || exit 3; done",
            meanwhile,
            "kill -TERM $pid; wait $pid && echo ended",
            "ip link show ls-netem; tc qdisc show | grep htb; ip link | grep master",
        ]
    )
    ports = [
        {"host": f"h{i}", "device": f"d{i}", "address": f"02:00:00:00:00:0{i}"} for i in (1, 2)
    ]
    links = [{"from": "h1", "to": "h2", "settings": {"delay_ns": 1000}}]
    document = {"version": 1, "seed": 1, "mover": "netem", "ports": ports, "links": links}
    machine.write("n.json", json.dumps(document))
    return subprocess.run(
        ["unshare", "-n", "sh", "-c", inside],
        cwd=machine.directory,
        env=machine.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_bridge_and_the_queues_end_with_the_router(netem: Machine) -> None:
    done = alone(netem, ":")
    assert "ended" in done.stdout, (done.stdout, done.stderr)
    left = done.stdout.partition("ended")[2].strip()
    assert left == "" and "does not exist" in done.stderr, (left, done.stderr)


# Stops the router, sends more than there is room for meanwhile, and has it go on.
FLOOD = """\
import os, signal, socket, sys
router = int(sys.argv[1])
end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
end.bind(("p1", 0))
os.kill(router, signal.SIGSTOP)
head = bytes.fromhex("020000000002" "020000000001" "88b5")
for number in range(200_000):
    end.send(head + number.to_bytes(8, "little") + bytes(40))
os.kill(router, signal.SIGCONT)
"""


def test_what_the_account_missed_is_told(netem: Machine) -> None:
    netem.write("flood.py", FLOOD)
    done = alone(netem, "python3 flood.py $pid")
    assert "ended" in done.stdout, (done.stdout, done.stderr)
    read = json.loads((netem.directory / "links.json").read_text())
    assert read["missed"] > 0
    (problem,) = read["problems"]
    assert problem.startswith(f"{read['missed']} sights of frames were missed")
    for segment in segments(read, "h1", "h2"):
        lost = sum(segment["dropped"].values()) + segment["queued"]
        left = segment["out"]["packets"] - segment["duplicated"]
        assert segment["in"]["packets"] == left + lost > 10_000
