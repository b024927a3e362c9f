"""Settings of a machine that it has while a run lasts: the keys of ``settings``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from . import values
from .file_section import Section
from .machine_settings import MachineSettings
from .place import Place
from .quantity import DURATION, SIZE
from .values import Integer, JsonSchema, Names, Quantity, Rule, text, wrong

_PROCESSORS: Final = r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*"
_SYSCTL: Final = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+"
# As the kernel has them: without a slash, a colon, or a blank.
_INTERFACE: Final = r"[^\s/:\x00-\x20\x7f-\uffff]{1,15}"


@dataclass(frozen=True)
class Processors(Rule):
    """Numbers of processors, as ``0-1,3``."""

    def read(self, value: object, names: Names) -> str:
        listed = str(value) if type(value) is int else text(value)
        if not re.fullmatch(_PROCESSORS, listed):
            wrong(f"{listed!r} is no list of processors, such as 0 or 0-1,3")
        return listed

    def schema(self) -> JsonSchema:
        number = {"type": "integer", "minimum": 0}
        return {"anyOf": [number, {"type": "string", "minLength": 1}]}


@dataclass(frozen=True)
class Sysctl(Rule):
    """Name of a sysctl."""

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if not re.fullmatch(_SYSCTL, name):
            meant = name.strip("/").removeprefix("proc/sys/").replace("/", ".")
            wrong(
                f"{name!r} is no name of a sysctl: its parts have dots between them",
                meant if re.fullmatch(_SYSCTL, meant) else None,
            )
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^{_SYSCTL}$"}


@dataclass(frozen=True)
class SysctlValue(Rule):
    """Text or a whole number."""

    def read(self, value: object, names: Names) -> str:
        given = str(value) if type(value) is int else text(value)
        if not given.isprintable():
            wrong("a value of a sysctl is one line of text")
        return given

    def schema(self) -> JsonSchema:
        return {"type": ["string", "integer"]}


@dataclass(frozen=True)
class Interface(Rule):
    """Name of a network interface of the machine."""

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if not re.fullmatch(_INTERFACE, name) or name in (".", ".."):
            wrong(f"{name!r} cannot be the name of a network interface, such as eth1")
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1, "maxLength": 15}


class InterfaceSettings(Section):
    """Settings of a network interface of the machine."""

    mtu: Annotated[int | None, Quantity(SIZE, "1280B", "65536B")] = Field(
        default=None, description="Largest IP packet that it sends, such as 9000B."
    )
    txqueuelen: Annotated[int | None, Integer(0, 1_000_000)] = Field(
        default=None, description="Packets that wait at it at most, by its default discipline."
    )
    gro_flush_timeout: Annotated[int | None, Quantity(DURATION, "0ns", "1s")] = Field(
        default=None,
        description="How long after the last packets its processor looks for more, before it has "
        "the next interrupt, such as 20us; with `napi_defer_hard_irqs`.",
    )
    napi_defer_hard_irqs: Annotated[int | None, Integer(0, 2**31 - 1)] = Field(
        default=None,
        description="How often its processor looks without finding packets before interrupts are "
        "switched on again.",
    )
    gro: Annotated[bool | None, values.Boolean()] = Field(
        default=None, description="Whether packets that come in are joined to larger ones."
    )
    gso: Annotated[bool | None, values.Boolean()] = Field(
        default=None, description="Whether the kernel cuts large packets only as they leave."
    )
    qdisc: Literal["pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "sfq"] | None = Field(
        default=None,
        description="Queueing discipline of what it sends, with its defaults. Only in place of the "
        "kernel's own choice: another one could not be restored exactly.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        if not at.keys:
            at.report("this sets nothing: give a setting, or remove it")


class Settings(Section):
    """Settings that a machine has while the run lasts.

    They are restored afterwards, whatever ends the run. Those of one machine are one run's at a
    time. Most need root; one that cannot be made ends the run before anything is started.
    """

    governor: Annotated[str | None, values.Name("a governor", 16)] = Field(
        default=None,
        description="Governor of the frequency of all processors, such as performance.",
    )
    interrupts: Annotated[str | None, Processors()] = Field(
        default=None,
        description="Processors to which all interrupts go that can be moved, such as 0 or 0-1,3. "
        "Those that the kernel keeps where they are stand in the manifest.",
    )
    sysctls: dict[Annotated[str, Sysctl()], Annotated[str, SysctlValue()]] = Field(
        default={},
        description="Values of the kernel's settings in /proc/sys, by their names with dots.",
    )
    interfaces: dict[Annotated[str, Interface()], InterfaceSettings] = Field(
        default={}, description="Settings of the machine's network interfaces, by their names."
    )

    def resolved(self) -> MachineSettings:
        """The same as texts."""
        return MachineSettings(
            governor=self.governor or "",
            interrupts=self.interrupts or "",
            sysctls=dict(self.sysctls),
            interfaces={name: _texts(each) for name, each in self.interfaces.items()},
        )


def _texts(settings: InterfaceSettings) -> dict[str, str]:
    given = settings.model_dump(exclude_none=True)
    states = {True: "on", False: "off"}
    return {
        name: states[value] if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }


def check_settings(at: Place) -> None:
    """Refuses settings at the place of another testbed's."""
    if at.text_at("testbed") == "ssh":
        if given := at.get("settings"):
            given.report(
                "settings of the machines of testbed ssh stand with each: move this into "
                "`machines`, below the host's name",
                at_key=True,
            )
        return
    for _, machine in at.entries("machines"):
        if given := machine.get("settings"):
            given.report(
                "all hosts of testbed local are on this machine, whose settings stand at the top "
                "of the file: move this there, or use testbed: ssh",
                at_key=True,
            )
