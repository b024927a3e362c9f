"""What of the kernel's events is recorded alone: the keys of ``trace.kernel_filters``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from . import event_values, kernel_events, values
from .file_section import Section
from .place import Place
from .quantity import DURATION
from .values import Integer, Quantity

_LONGEST_NAME = 15
_CLASSES = {
    "ports": ("tcp", "udp", "drop"),
    "devices": ("tcp", "udp"),
    "calls_over": ("call",),
}
"""The classes that each key is about."""


class KernelFilters(Section):
    """Events of the classes tcp, udp, drop and call that are recorded alone, by the kernel."""

    ports: list[Annotated[int, Integer(1, 65535)]] = Field(
        default=[],
        max_length=256,
        description="Of tcp, udp and drop: the events of sockets with one of these ports at either "
        "end, and of their packets. Default: any.",
    )
    devices: list[Annotated[str, values.Text()]] = Field(
        default=[],
        max_length=64,
        description="Of tcp and udp: the packets at devices with these names, such as data0; what "
        "sockets do is recorded too. Default: any.",
    )
    calls_over: Annotated[int, Quantity(DURATION, "1ns")] | None = Field(
        default=None,
        description="Of call: the system calls that took this long or longer, such as 100us. "
        "Default: all.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        trace = at.whole.get("trace")
        assert trace is not None
        recorded = _recorded(trace)
        for key, classes in _CLASSES.items():
            given = at.get(key)
            if given is not None and not recorded & {*classes}:
                of = " or ".join(f"{name}:*" for name in classes)
                given.report(f"it is about {of}, which 'kernel' does not record", at_key=True)
        for device in at.elements("devices"):
            if len((device.text or "").encode()) > _LONGEST_NAME:
                device.report(f"names of devices have at most {_LONGEST_NAME} bytes")
        ports = [each.scalar for each in at.elements("ports")]
        for name, each in trace.entries("messages"):
            port = each.get("to") or each.get("from")
            if ports and port is not None and port.scalar not in ports:
                port.report(f"'kernel_filters' leaves out port {port.scalar}: add it to its ports")
            if at.get("devices") is not None:
                each.report(
                    f"messages {name} are told from the packets at all devices: remove 'devices' "
                    "of 'kernel_filters'"
                )


def _recorded(trace: Place) -> set[str]:
    """The classes of which something is recorded."""
    patterns: Iterable[str] = [each.text or "" for each in trace.elements("kernel")]
    word = trace.text_at("kernel")
    if word is not None or trace.get("kernel") is None:
        patterns = {"full": ["*"], "off": []}.get(word or "auto", kernel_events.AUTO)
    known = [each for each in patterns if event_values.is_pattern(each.removeprefix("!"))]
    protocols = {each.text_at("protocol") for _, each in trace.entries("messages")}
    told = [p for name in protocols for p in kernel_events.OF_MESSAGES.get(name or "", ())]
    return {*kernel_events.selected([*known, *told])}
