"""A run of three hosts, each with its own counter, written by the formats' pages.

It has streams (schema/trace.md), probe logs (schema/clock-log.md), accounts, and a capture.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from loopscope.experiment import load

HZ = 1_000_000_000
EPOCH = 1_700_000_000 * HZ
MESSAGES = 600
DROPPED = 7
TWICE = ("h2", "received", 200)
"""A message that both threads take, at the same tick; their records tell them apart by size."""
PACKET = 80
RECORD = 14

EXPERIMENT = """\
name: recorded
hosts: [h1, h2, h3]
components:
  source: {host: h1, run: source}
  node: {host: h2, run: node}
  sink: {host: h3, run: sink}
phases: [{name: run, measured: true, timeout: 5s}]
trace: {user: ["pipe:*"]}
CLOCK
measure:
  paths:
    loop:
      key: id
      events: [source/pipe:sent, node/pipe:received, node/pipe:sent, sink/pipe:received]
expect: [loop.p99 < 5ms]
"""
OFF = {"h1": (10**12, 0.0), "h2": (5 * 10**11, 30e-6), "h3": (3 * 10**12, -20e-6)}
"""What each host's counter showed at zero, and how much too quick it runs."""

Record = tuple[int, int, int, bytes]
"""Class, counter, id, fields."""


def write_run(run: Path, repeats: int = 1, messages: bool = False) -> Path:
    """With ``messages`` those of the path bound the clocks too."""
    run.mkdir(parents=True)
    clock = "clock: {messages: [loop]}" if messages else ""
    (run / "experiment.yaml").write_text(EXPERIMENT.replace("CLOCK", clock))
    experiment = load(run / "experiment.yaml")
    manifest = {"version": 1, "status": "complete", "experiment": experiment.to_manifest()}
    (run / "manifest.json").write_text(json.dumps(manifest))
    for repeat in range(1, repeats + 1):
        _write_repeat(run / "base" / str(repeat), random.Random(repeat))
    return run


def _write_repeat(repeat: Path, chance: random.Random) -> None:
    hosts = repeat / "hosts"
    times: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for number in range(MESSAGES):
        # Two of the source's threads send at the same tick, that of the later stream file first.
        at = 500_000_000 + (number - (number == 102)) * 3_000_000
        for host, event in (("h1", "sent"), ("h2", "received"), ("h2", "sent"), ("h3", "received")):
            if number % 97 == 5 and host == "h3":
                continue
            times.setdefault((host, event), []).append((at, number))
            # The first hop is quicker than probes are: its messages say something of the clock.
            at += (3_000 if host == "h1" else 40_000) + chance.randrange(3_000)
    programs = {"h1": "source", "h2": "node", "h3": "sink"}
    for (host, event), seen in times.items():
        kind = 0 if event == "sent" else 1
        # Two threads that take turns: their streams overlap in time.
        for thread in range(2):
            records = [
                (kind, _counter(host, at), number, struct.pack("<I", number % 11 + thread) * kind)
                for at, number in seen
                if number % 2 == thread or (host, event, number) == TWICE
            ]
            _stream(
                hosts / host / "trace", f"{programs[host]}-7-{event}{thread}", 7, thread, records
            )
    for host, program in programs.items():
        events = {"pipe:sent": (), "pipe:received": ("uint32_t _size",)}
        _metadata(hosts / host / "trace", host, program, events)
        count = sum(len(seen) for (at, _), seen in times.items() if at == host)
        count += host == TWICE[0]
        _account(hosts / host, program, count, DROPPED if host == "h3" else 0)
    # A record of the node's is of no class: the rest of its packet is lost.
    file = hosts / "h2/trace/node-7-received0"
    content = bytearray(file.read_bytes())
    at = PACKET + 30 * (RECORD + 4)
    content[at : at + 2] = b"\x63\x00"
    file.write_bytes(content)
    _write_probes(hosts, chance)
    _write_capture(hosts / "h2/imports/tcpdump")


def _counter(host: str, at: int) -> int:
    zero, quick = OFF[host]
    return zero + round(at * (1 + quick))


def _write_probes(hosts: Path, chance: random.Random) -> None:
    logs: dict[str, list[Record]] = {host: [] for host in OFF}

    def seen(host: str, moment: int, number: int, peer: int, at: int) -> None:
        lo = _counter(host, at) - chance.randrange(40)
        fields = struct.pack("<IQQB", peer, lo, lo + 40, 1)
        logs[host].append((moment, _counter(host, at) + 100, number, fields))

    for peer, host in enumerate(OFF):
        for number in range(300):
            at = number * 10_000_000
            if host != "h1":
                sent = at + peer * 100_000
                for moment, side in enumerate((host, "h1", "h1", host)):
                    seen(side, moment, 2 * number, peer, sent)
                    sent += 20_000 + round(chance.expovariate(1 / 3_000))
            if number % 10 == 0:
                lo = _counter(host, at)
                fields = b"realtime\0" + struct.pack("<qQQ", EPOCH + at + 50, lo, lo + 100)
                logs[host].append((4, lo + 100, number, fields))
    span = ("uint64_t _lo", "uint64_t _hi")
    probe = ("uint32_t _peer", *span, "uint8_t _source")
    moments = ("probe_sent", "probe_received", "reply_sent", "reply_received")
    events = {f"clock:{moment}": probe for moment in moments}
    events["clock:anchor"] = ("string _clock", "int64_t _ns", *span)
    for host, records in logs.items():
        folder = hosts / host / "clock/probes"
        records.sort(key=lambda record: record[1])
        _stream(folder, "probes", 9, 9, records)
        _metadata(folder, host, "clock", events)


def _write_capture(folder: Path) -> None:
    """Packets of no link layer that anyone knows, by the host's clock of the day."""
    folder.mkdir(parents=True)
    packets = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 147)]
    for number in range(50):
        seconds, ns = divmod(EPOCH + 600_000_000 + number * 20_000_000, HZ)
        packets.append(struct.pack("<IIII", seconds, ns, 4, 4) + b"abcd")
    (folder / "dump.pcap").write_bytes(b"".join(packets))
    about = {"version": 1, "trace": "dump.pcap", "from": "", "clock": None}
    (folder / "import.json").write_text(json.dumps(about))


def _stream(folder: Path, name: str, pid: int, tid: int, records: Sequence[Record]) -> None:
    """Packets of a hundred records."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("wb") as file:
        for sequence, begin in enumerate(range(0, len(records), 100)):
            part = records[begin : begin + 100]
            content = b"".join(
                struct.pack("<HIq", kind, counter & 0xFFFFFFFF, number) + fields
                for kind, counter, number, fields in part
            )
            bits = 8 * (PACKET + len(content))
            file.write(struct.pack("<I16sI", 0xC1FC1FC1, stream_uuid(folder), 0))
            numbers = (part[0][1], part[-1][1], bits, bits, sequence, 0, pid, tid)
            file.write(struct.pack("<QQQQQQII", *numbers) + content)


def stream_uuid(folder: Path) -> bytes:
    return "/".join(folder.parts[-3:]).encode()[-16:].rjust(16, b"-")


def _metadata(folder: Path, host: str, program: str, events: Mapping[str, Iterable[str]]) -> None:
    golden = Path(__file__).resolve().parents[2] / "schema/golden/host/trace/metadata"
    head, _, _ = golden.read_text().partition("\nevent {")
    begin, end = head.index("env {"), head.index("clock {")
    said = {"tracer_name": "loopscope", "host": host, "process_0": program}
    entries = "".join(f'\t{key} = "{value}";\n' for key, value in said.items())
    env = f"env {{\n{entries}}};\n\n"
    digits = stream_uuid(folder).hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    text = head[:begin] + env + head[end:]
    text = text.replace("676f6c64-656e-2d74-7261-63652d303031", uuid)
    text = text.replace("freq = 2500000000", f"freq = {HZ}")
    for number, (name, fields) in enumerate(events.items()):
        declared = " ".join(f"{field};" for field in ("int64_t _id", *fields))
        text += (
            f'\nevent {{\n\tname = "{name}";\n\tid = {number};\n\tstream_id = 0;\n'
            f'\tmodel.emf.uri = "file:{program}.c:{number + 1}";\n'
            f"\tfields := struct {{ {declared} }};\n}};\n"
        )
    (folder / "metadata").write_text(text)


def _account(host: Path, program: str, recorded: int, dropped: int) -> None:
    counts = {"emitted": recorded + dropped, "recorded": recorded, "dropped": dropped}
    counts |= {"overwritten": 0, "torn": 0, "filtered": 0, "final": 0}
    site = {"entity": "pipe:received", "file": f"{program}.c", "line": 2}
    sites = [{**site, "dropped": {"ring-full": dropped}, "filtered": 0}] if dropped else []
    process = {"process": program, "pid": 7, **counts, "sites": sites}
    (host / "loss.json").write_text(json.dumps({"version": 2, **counts, "processes": [process]}))
