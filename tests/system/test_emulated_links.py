"""Experiments with emulated links, whole: what a link is told is what the messages meet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from linked_pipeline import linked_pipeline
from machine import BIN, Machine

pytestmark = pytest.mark.usefixtures("root")

Read = Callable[[subprocess.CompletedProcess[str]], dict[str, Any]]

DELAYED = "h2 -> h3: {delay: 20ms}"

# Datagrams with their number to a group; receivers wait for the last, or until all is quiet.
DATAGRAMS = """\
import socket, struct, time
from loopscope.phase import Session
from loopscope_trace import flow_in, flow_out
sent, received = flow_out("data", "sent"), flow_in("data", "received")
GROUP = "239.1.2.3"
with Session(["listen", "run"]) as session:
    own, count, sends = (session.config[key] for key in ("own", "count", "sends"))
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for phase in session:
        if phase.name == "listen" and sends:
            end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        elif phase.name == "listen":
            end.bind((GROUP, 5000))
            both = socket.inet_aton(GROUP) + socket.inet_aton(own)
            end.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, both)
            end.settimeout(3)
        elif sends:
            for number in range(1, count + 1):
                sent(number)
                end.sendto(struct.pack("<Q", number), (GROUP, 5000))
                time.sleep(0.01)
        else:
            number = 0
            while number < count:
                try:
                    (number,) = struct.unpack("<Q", end.recv(2000))
                except TimeoutError:
                    break
                received(number)
"""
MULTICAST = """\
name: links
hosts: [h1, h2, h3]
trace: {kernel: off}
params: {count: 200}
network:
  h1 -> h2: {delay: 5ms, at 1s: {delay: 60ms}}
  h1 -> h3: {delay: 30ms, loss: 20%}
clocks: CLOCKS
components:
  source: {host: h1, run: PROGRAM, with: {own: 10.77.0.1, count: $count, sends: true}}
  near: {host: h2, run: PROGRAM, with: {own: 10.77.0.2, count: $count, sends: false}}
  far: {host: h3, run: PROGRAM, with: {own: 10.77.0.3, count: $count, sends: false}}
phases:
  - {name: listen, timeout: 20s}
  - {name: run, measured: true, timeout: 120s}
measure:
  paths:
    near: {events: [source/data:sent, near/data:received]}
    far: {events: [source/data:sent, far/data:received]}
expect: [near.lost == 0, far.lost == 0]
"""


def repeat(machine: Machine) -> Path:
    """The directory of the latest run's only repeat."""
    return machine.directory / "runs/links/latest/base/1"


def rows(machine: Machine, entity: str) -> list[dict[str, Any]]:
    """A table of the latest run."""
    group, name = entity.split(":")
    file = repeat(machine) / "timeline" / group / name / "part-0.parquet"
    made: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return made


def achieved(machine: Machine) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What the router says of each link's time with one set of settings."""
    file = repeat(machine) / "hosts/_router/components/_links/files/links.json"
    return {
        (link["from"], link["to"]): link["segments"]
        for link in json.loads(file.read_text())["links"]
    }


@pytest.mark.parametrize(
    ("mover", "clocks"), [("auto", "plain"), ("auto", "{synthetic: {seed: 5}}"), ("tap", "plain")]
)
def test_a_hop_takes_what_its_link_takes(
    machine: Machine, results: Read, mover: str, clocks: str
) -> None:
    machine.write("p.yaml", linked_pipeline(f"mover: {mover}", DELAYED, clocks=clocks))
    done = machine.command("run", "p.yaml", "--json")
    assert done.returncode == 0, done.stderr
    read = results(done)
    hops = read["paths"]["loop"]["hops"]
    assert [hop["count"] for hop in hops] == [100] * 3
    # How fast a shared machine is, is not known; that one link is slow and the others are not, is.
    assert hops[2]["min_ns"] >= 20_000_000 - hops[2]["err_ns"]
    assert max(hop["min_ns"] for hop in hops[:2]) < 10_000_000
    assert read["loss"]["emitted"] == read["loss"]["recorded"] + read["loss"]["dropped"]

    # Its own account agrees with its events, which are recorded whatever the file's streams are.
    segments = achieved(machine)
    (slow,), (fast,) = segments["h2", "h3"], segments["h1", "h2"]
    assert slow["delay_ns"]["min"] >= 20_000_000
    assert fast["delay_ns"]["min"] < 10_000_000
    departed = [row for row in rows(machine, "link:departed") if (row["from"], row["to"]) == (1, 2)]
    assert len(departed) == slow["out"]["packets"]
    assert {row["host"] for row in departed} == {"_router"}
    left = {row["id"]: row for row in rows(machine, "pipe:sent") if row["host"] == "h2"}
    messages = [row for row in departed if row["id"] in left]
    assert len(messages) > 50
    for row in messages:
        before = left[row["id"]]
        assert row["ts"] - before["ts"] >= 20_000_000 - row["err_ns"] - before["err_ns"]
    # Between what the sender and the receiver say: the router says neither too much nor too little.
    came = {row["id"]: row for row in rows(machine, "pipe:received") if row["host"] == "h3"}
    for row in messages:
        assert row["ts"] <= came[row["id"]]["ts"] + row["err_ns"] + came[row["id"]]["err_ns"]
    losses = json.loads((repeat(machine) / "hosts/_router/loss.json").read_text())
    assert [process["process"] for process in losses["processes"]] == ["_links"]


@pytest.mark.full
def test_a_wrong_place_of_the_messages_number_is_a_problem(machine: Machine, results: Read) -> None:
    """The lowest two bytes do, the next eight do not."""
    for place, wrong in (("{width: 2B}", False), ("{offset: 4B}", True)):
        machine.write("p.yaml", linked_pipeline(DELAYED, f"message: {place}"))
        done = machine.command("run", "p.yaml", "--json")
        assert done.returncode == 0, done.stderr
        read = results(done)
        hops = read["paths"]["loop"]["hops"]
        matched = [[split["matched"] for split in hop["splits"]] for hop in hops]
        told = [each for each in read["problems"] if "network: {message: {" in each]
        if wrong:
            assert matched == [[0], [], [0]]
            links = ("link h1 → h2", "link h2 → h3")
            assert [link in each for link, each in zip(links, told, strict=True)] == [True, True]
        else:
            assert matched[2][0] > 50 and told == []


# Frames that the first host's device is given with the tag of IEEE 802.1Q outside their bytes, by
# a BPF program (bpf(2), Linux 6.6 or later): not every kernel has devices of type vlan.
TAGGED = """\
import ctypes, os, platform, socket, struct
from loopscope.phase import Session
from loopscope_trace import flow_in, flow_out
sent, received = flow_out("data", "sent"), flow_in("data", "received")
KIND = 0x88B5  # IEEE 802 local experimental Ethertype

def bpf(command, attributes):
    data = ctypes.create_string_buffer(attributes, len(attributes))
    number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
    got = ctypes.CDLL(None, use_errno=True).syscall(number, command, data, len(attributes))
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got

def tag_all_that_leave(device, tag):
    # skb_vlan_push(skb, htons(ETH_P_8021Q), tag); return TCX_PASS;
    steps = [(0xB7, 2, 0x0081), (0xB7, 3, tag), (0x85, 0, 18), (0xB7, 0, 0), (0x95, 0, 0)]
    code = b"".join(struct.pack("<BBhi", op, register, 0, value) for op, register, value in steps)
    code, license = ctypes.create_string_buffer(code, len(code)), ctypes.c_char_p(b"GPL")
    texts = ctypes.addressof(code), ctypes.cast(license, ctypes.c_void_p).value
    # BPF_PROG_LOAD of a BPF_PROG_TYPE_SCHED_CLS; BPF_LINK_CREATE as BPF_TCX_EGRESS.
    program = bpf(5, struct.pack("<IIQQ", 3, len(steps), *texts) + bytes(120))
    return bpf(28, struct.pack("<IIII", program, socket.if_nametoindex(device), 47, 0) + bytes(48))

with Session(["listen", "run"]) as session:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    for phase in session:
        if phase.name == "listen" and session.config["sends"]:
            link = tag_all_that_leave("data0", 7)
        elif phase.name == "listen":
            end.setsockopt(263, 8, 1)  # SOL_PACKET, PACKET_AUXDATA
            end.settimeout(20)
        end.bind(("data0", 3))
        if phase.name == "run" and session.config["sends"]:
            for message in range(1, 51):
                sent(message)
                end.send(b"\\xff" * 6 + bytes(6) + struct.pack(">HB", KIND, message) + bytes(60))
        message = 0
        while phase.name == "run" and not session.config["sends"] and message < 50:
            data, control, _, _ = end.recvmsg(2048, 256)
            # The kernel has taken the tag off: struct tpacket_auxdata, tp_vlan_tci.
            if data[12:14] == KIND.to_bytes(2, "big"):
                message = data[14]
                if struct.unpack("IIIHHHH", control[0][2])[5] == 7:
                    received(message)
"""
TAGGED_HOSTS = """\
name: links
hosts: [h1, h2]
trace: {kernel: off}
network: {mover: MOVER, h1 -> h2: {delay: 5ms}}
components:
  source: {host: h1, run: PROGRAM, with: {sends: true}}
  sink: {host: h2, run: PROGRAM, with: {sends: false}}
phases:
  - {name: listen, timeout: 20s}
  - {name: run, measured: true, timeout: 60s}
measure: {paths: {loop: {events: [source/data:sent, sink/data:received]}}}
expect: [loop.lost == 0, loop.count == 50]
"""


@pytest.mark.full
@pytest.mark.parametrize("mover", ["xdp", "tap"])
def test_tagged_frames_pass_the_router_with_their_tag(machine: Machine, mover: str) -> None:
    machine.write("d.py", TAGGED)
    text = TAGGED_HOSTS.replace("MOVER", mover)
    machine.write("m.yaml", text.replace("PROGRAM", f"{BIN}/python {machine.directory}/d.py"))
    done = machine.command("run", "m.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("clocks", ["plain", "synthetic"])
def test_every_copy_of_a_multicast_meets_its_own_link(
    machine: Machine, results: Read, clocks: str
) -> None:
    machine.write("d.py", DATAGRAMS)
    text = MULTICAST.replace("CLOCKS", clocks)
    machine.write("m.yaml", text.replace("PROGRAM", f"{BIN}/python {machine.directory}/d.py"))
    done = machine.command("run", "m.yaml", "--json")
    read = results(done)
    near, far = read["paths"]["near"], read["paths"]["far"]
    (near_hop,), (far_hop,) = near["hops"], far["hops"]
    assert (near["count"], near["lost"]) == (200, 0)
    assert near_hop["min_ns"] >= 5_000_000 - near_hop["err_ns"]
    assert far_hop["min_ns"] >= 30_000_000 - far_hop["err_ns"]

    # Lost on the way, as the link says; and so the verdict.
    dropped = [row for row in rows(machine, "link:dropped") if row["reason"] == "loss"]
    assert {(row["from"], row["to"]) for row in dropped} == {(0, 2)}
    lost = {row["id"] for row in dropped} - {0}
    assert 0 < far["lost"] == len(lost)
    came = [row["id"] for row in rows(machine, "data:received") if row["host"] == "h3"]
    assert sorted([*came, *lost]) == list(range(1, 201))
    assert done.returncode == 1
    verdicts = {each["text"]: each["verdict"] for each in read["expectations"]}
    assert verdicts == {"near.lost == 0": "PASS", "far.lost == 0": "FAIL"}

    # What was drawn by chance is written down.
    manifest = json.loads((repeat(machine).parents[1] / "manifest.json").read_text())
    (seeds,) = manifest["seeds"]
    assert seeds["links"] == 1 and ("clocks" in seeds) == (clocks != "plain")

    # The change comes in its time, and stays.
    before, after = achieved(machine)["h1", "h2"]
    assert before["asked"]["delay_ns"] == 5_000_000
    assert after["asked"]["delay_ns"] == 60_000_000
    assert after["since_ns"] >= 1_000_000_000
    sent = {row["id"]: row["ts"] for row in rows(machine, "data:sent")}
    took = {
        row["id"]: row["ts"] - sent[row["id"]]
        for row in rows(machine, "data:received")
        if row["host"] == "h2"
    }
    width = near_hop["err_ns"]
    first = next(number for number in sorted(took) if took[number] >= 60_000_000 - width)
    assert min(took[number] for number in took if number < first) < 60_000_000 - width
    assert all(took[number] >= 60_000_000 - width for number in took if number > first)


@pytest.mark.full
def test_probes_take_the_links_where_the_file_says_so(machine: Machine, results: Read) -> None:
    """The maximum error contains the asymmetry of a link.

    A link that is slow in one direction cannot be distinguished from a clock that is off. No
    estimate puts a message before the time when the link let it through.
    """
    text = linked_pipeline(DELAYED)
    text = text.replace("h2 -> h3", "h1 -> h3") + "\nclock: {network: data}\n"
    direct = text.replace("node/pipe:received, node/pipe:sent, ", "").replace(
        "to: node", "to: sink"
    )
    lines = [line for line in direct.splitlines() if not line.startswith("  node:")]
    machine.write("p.yaml", "\n".join(lines))
    done = machine.command("run", "p.yaml", "--json")
    assert done.returncode == 0, done.stderr
    read = results(done)
    bounds = {host: each["max_err_ns"] for host, each in read["clock"]["hosts"].items()}
    assert bounds["h3"] >= 9_000_000
    assert bounds["_router"] < bounds["h3"]
    (hop,) = read["paths"]["loop"]["hops"]
    assert hop["min_ns"] + hop["err_ns"] >= 20_000_000


def started(machine: Machine) -> subprocess.Popen[str]:
    """A run that goes on for minutes and has reached its measured phase."""
    machine.write("p.yaml", linked_pipeline("trace: false", DELAYED))
    process = machine.start("run", "p.yaml", "-p", "count=20000")
    assert process.stderr is not None
    for line in process.stderr:
        if "phase run" in line:
            return process
    raise AssertionError("the run never reached its phase")


@pytest.mark.full
def test_links_are_shown_and_changed_while_they_are_used(machine: Machine) -> None:
    process = started(machine)
    try:
        shown = machine.command("net", "show", "--json")
        assert shown.returncode == 0, shown.stderr
        links = {(link["from"], link["to"]): link for link in json.loads(shown.stdout)}
        assert links["h2", "h3"]["segments"][-1]["asked"]["delay_ns"] == 20_000_000
        done = machine.command("net", "set", "h2 <-> h3", "delay=40ms", "jitter=1ms", "--json")
        assert done.returncode == 0, done.stderr
        in_force = json.loads(done.stdout)
        assert in_force["h2 -> h3"]["delay_ns"] == in_force["h3 -> h2"]["delay_ns"] == 40_000_000
        (token,) = machine.tokens()
        said = machine.command("net", "show", "--to", token).stdout
        (line,) = (line for line in said.splitlines() if "h2 -> h3" in line)
        assert "delay=40ms jitter=1ms" in line and "{" not in said, said
        other = machine.command("net", "show", "--to", "nobody")
        assert other.returncode == 2 and "nobody is no run" in other.stderr
        for words, message in {
            ("h2 -> h9", "delay=1ms"): "h9",
            ("h2 -> h3", "jitter=50ms"): "above the delay",
            ("h2 -> h3", "dely=50ms"): "did you mean delay?",
            ("h2", "delay=50ms"): "'A -> B'",
        }.items():
            refused = machine.command("net", "set", *words)
            assert refused.returncode == 2, refused.stdout
            assert message in refused.stderr
            assert "Traceback" not in refused.stderr
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    first, second = achieved(machine)["h2", "h3"]
    asked = [each["asked"]["delay_ns"] for each in (first, second)]
    assert asked == [20_000_000, 40_000_000]
    assert second["delay_ns"]["min"] >= 35_000_000
    # With `trace: false` nothing of packets: only that two links were changed.
    account = json.loads((repeat(machine) / "hosts/_router/loss.json").read_text())
    assert (account["emitted"], account["recorded"]) == (2, 2)
    nothing = machine.command("net", "show")
    assert nothing.returncode == 2
    assert "no links are being emulated" in nothing.stderr


@pytest.mark.full
def test_a_killed_controller_leaves_no_router(machine: Machine) -> None:
    process = started(machine)
    assert any(name.endswith("-net") for name in machine.namespaces())
    process.kill()
    process.wait()
    assert machine.command("reset").returncode == 0
    assert machine.leftovers() == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "killed by SIGKILL"),
        (signal.SIGTERM, "it ended (exit status 0) though the run needs it to the end"),
    ],
)
def test_the_end_of_the_links_is_the_end_of_the_run(
    machine: Machine, number: signal.Signals, how: str
) -> None:
    process = started(machine)
    (router,) = [
        pid
        for pid, words in machine.processes().items()
        if words.endswith("loopscope-host emulate")
    ]
    os.kill(router, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 4
    assert f"_links on _router failed in phase run: {how}" in said


def has_netem() -> bool:
    """Whether this kernel has it, tried where nobody is."""
    command = "unshare -n tc qdisc add dev lo root netem delay 1ms"
    return subprocess.run(command.split(), capture_output=True, check=False).returncode == 0


def test_without_netem_it_is_refused_and_nothing_is_left(machine: Machine) -> None:
    if has_netem():
        pytest.skip("SKIPPED LOUDLY: this kernel has netem")
    machine.write("p.yaml", linked_pipeline("mover: netem", DELAYED))
    done = machine.command("run", "p.yaml")
    assert done.returncode == 4
    assert "mover: netem cannot be used here: tc: " in done.stderr
    assert "sch_netem" in done.stderr
    assert "mover: auto" in done.stderr
    assert "Traceback" not in done.stderr
    assert machine.leftovers() == []


IMPAIRMENTS = {
    "delay": "delay: 20ms, jitter: 3ms, reorder: by-jitter",
    "uniform": "delay: 20ms, jitter: {uniform: 3ms}, reorder: by-jitter",
    "loss": "loss: 10%",
    "bursts": "loss: {gilbert-elliott: {p: 2%, r: 20%}}",
    "duplicate": "duplicate: 10%",
}


@pytest.mark.full
@pytest.mark.parametrize("impairment", IMPAIRMENTS)
def test_netem_and_the_own_movers_give_the_same_distributions(
    machine: Machine, impairment: str
) -> None:
    """The distribution of the delays, and each router's account, are as expected.

    Delays are compared by the Kolmogorov-Smirnov test, the rest by a test of two proportions. Each
    router's account is what the receiver got.
    """
    if not has_netem():
        pytest.skip("SKIPPED LOUDLY: this kernel has no netem")
    stats = pytest.importorskip("scipy.stats", reason="SKIPPED LOUDLY: needs scipy")
    machine.write("d.py", DATAGRAMS.replace("0.01)", "0.001)"))
    delays, shares = {}, {}
    for mover in ("netem", "auto"):
        program = f"{BIN}/python {machine.directory}/d.py"
        text = MULTICAST.replace("PROGRAM", program).replace("CLOCKS", "plain")
        head, _, rest = text.partition("  h1 -> h2")
        links = f"  mover: {mover}\n  h1 -> h3: {{{IMPAIRMENTS[impairment]}}}\n"
        machine.write("m.yaml", head + links + rest[rest.index("clocks:") :])
        machine.command("run", "m.yaml", "-p", "count=20000")
        sent = {row["id"]: row["ts"] for row in rows(machine, "data:sent")}
        received = [row for row in rows(machine, "data:received") if row["host"] == "h3"]
        delays[mover] = [row["ts"] - sent[row["id"]] for row in received]
        (segment,) = achieved(machine)["h1", "h3"]
        came, left, lost = segment["in"], segment["out"], segment["dropped"]["loss"]
        assert lost == sum(segment["dropped"].values())
        assert came["packets"] == left["packets"] - segment["duplicated"] + lost
        # Besides the numbered packets there are some that join the group.
        assert 0 <= left["packets"] - len(received) <= 100
        shares[mover] = (lost + segment["duplicated"]) / came["packets"]
    if impairment in ("delay", "uniform"):
        # The movers' own time is some 0.1 ms: the samples are compared about their medians.
        centred = [
            [delay - sorted(each)[len(each) // 2] for delay in each] for each in delays.values()
        ]
        assert stats.ks_2samp(*centred).statistic < 0.03
    else:
        # Lost in bursts: the variance is some ten times that of single losses.
        spread = 10 if impairment == "bursts" else 1
        share = sum(shares.values()) / 2
        deviation = (2 * share * (1 - share) * spread / 20_000) ** 0.5
        assert abs(shares["netem"] - shares["auto"]) < 4 * deviation
