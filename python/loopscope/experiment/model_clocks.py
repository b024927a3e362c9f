"""The hosts' clocks and how they are compared: the keys of ``clocks`` and ``clock``."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from . import model_paths, values
from .file_section import Section
from .place import Place
from .quantity import DURATION, FREQUENCY, RATIO
from .values import Integer, Quantity

Counter = Literal["cycles", "monotonic-raw"]


class RealtimeStep(Section):
    """A step of a host's CLOCK_REALTIME."""

    at: Annotated[int, Quantity(DURATION, "0s", "1h")] = Field(
        description="When, after the start of the clocks' probes, such as 2s."
    )
    by: Annotated[int, Quantity(DURATION, "1ns", "1h")] = Field(
        description="How far forward it is set, such as 22ms."
    )


class SyntheticSettings(Section):
    """Settings of synthetic clocks."""

    seed: Annotated[int, Integer(0, 2**63 - 1)] = Field(
        default=1, description="Seed of the hidden offsets, rates and wander."
    )
    realtime: dict[Annotated[str, values.Reference("host")], RealtimeStep] = Field(
        default={},
        description="Hosts whose CLOCK_REALTIME is set in mid-run, as far as loopscope sees it.",
    )


class SyntheticClocks(Section):
    """Synthetic clocks with settings."""

    synthetic: SyntheticSettings = Field(description="Settings of synthetic clocks.")


class ClockExchange(Section):
    """Comparison of the hosts' clocks."""

    network: Literal["clock", "data"] = Field(
        default="clock",
        description="clock: the probes have a network of their own. data: they share that of the "
        "messages, for hosts that have one only; emulated links delay them too, maximum errors are "
        "those of such links, and the report says what they cost.",
    )
    port: Annotated[int | None, Integer(1, 65535)] = Field(
        default=None,
        description="UDP port on which hosts answer probes, such as 31900, for firewalls. Programs "
        "cannot use it on the network of the probes. Ports below 1024 need root on the hosts. "
        "Default: one that the system chooses.",
    )
    rate: Annotated[float, Quantity(FREQUENCY, "0.1Hz", "1kHz")] = Field(
        default="100Hz",
        validate_default=True,
        description="Exchanges a second between the bursts, such as 100Hz. Of more than twenty "
        "hosts fewer: the first host answers 2000 a second of all together.",
    )
    burst: Annotated[int, Integer(2, 10_000)] = Field(
        default=100,
        description="Exchanges of a burst: the first, the last, and those when load is seen. Of "
        "more than 200 hosts the first and the last have fewer, of more than 20 those under load.",
    )
    within: Annotated[int | None, Quantity(DURATION, "1ns", "1h")] = Field(
        default=None,
        description="The first measured phase begins only when the time of every host is known "
        "within this maximum error, such as 2us. Default: whatever it is.",
    )
    patience: Annotated[int, Quantity(DURATION, "0s", "1h")] = Field(
        default="30s",
        validate_default=True,
        description="How long to wait for that before the run is given up.",
    )
    wander: Annotated[float, Quantity(RATIO, "0.001ppm", "1000ppm")] = Field(
        default="1ppm",
        validate_default=True,
        description="Assumed bound on the wander of an oscillator's rate during the run, such as "
        "1ppm. The maximum errors of times are true under this assumption.",
    )
    messages: list[Annotated[str, values.Reference("path")]] = Field(
        default=[],
        description="Paths whose messages to and from the first host bound the others' clocks too, "
        "besides the probes. Each event must be recorded before its message is sent, or after it "
        "came.",
    )
    counters: dict[Annotated[str, values.Reference("host")], Counter] = Field(
        default={},
        examples=[{"h2": "monotonic-raw"}],
        description="What stamps the events of hosts. cycles: the processor's cycle counter, which "
        "is refused where it may change its rate. monotonic-raw: CLOCK_MONOTONIC_RAW, which costs "
        "more and steps as the kernel's clock source does. Default: of each host cycles, if they "
        "are invariant and its kernel keeps time by them, else monotonic-raw.",
    )
    mesh: bool = Field(
        default=True,
        description="Whether, of more than two hosts, each also checks its time against at most "
        "six others, up to ten times a second: the report then says how well times agree.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        hosts = [host.text for host in at.whole.elements("hosts")]
        host_of = {
            name: component.text_at("host") for name, component in at.whole.entries("components")
        }
        for item in at.elements("messages"):
            events = (at.names.paths or {}).get(item.text or "")
            hosts_of_path = [host_of.get((event or "").partition("/")[0]) for event in events or ()]
            if item.text in at.names.graphs:
                item.report(
                    f"{item.text!r} branches: only messages of a list of events bound clocks"
                )
            elif told := model_paths.told_afterwards(at.root, item.text):
                item.report(
                    f"{told} is told from the kernel's events, which are stamped when a message is "
                    "on its way already: such messages bound no clock"
                )
            elif hosts and events is not None and None not in hosts_of_path:
                hops = pairwise(hosts_of_path)
                if not any((a == hosts[0]) != (b == hosts[0]) for a, b in hops):
                    item.report(
                        f"no message of {item.text!r} goes to or from {hosts[0]}, the reference"
                    )
