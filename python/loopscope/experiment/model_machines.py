"""The machines behind the hosts, for testbed ssh: the keys of ``machines``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from . import values
from .file_section import Section
from .model_settings import Settings
from .place import Place
from .quantity import SIZE
from .sent_files import matches
from .values import Integer, JsonSchema, Names, Quantity, Rule, text, wrong

# Why a key of ``network`` has no place where machines have networks of their own.
_NOT_MADE = "the machines of testbed ssh have their own"


# Settings of a link that name a file.
_FILES = (("loss", "trace"), ("jitter", "table"), ("delays",), ("opportunities",))


@dataclass(frozen=True)
class Destination(Rule):
    """A machine as ssh takes it: a name or an address."""

    def read(self, value: object, names: Names) -> str:
        destination = text(value)
        # A leading hyphen would be an option of ssh.
        if not re.fullmatch(r"[\w.:%@\[\],][\w.:%@\[\],-]*", destination, re.ASCII):
            wrong(f"{destination!r} is no name or address of a machine")
        return destination

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class IpAddress(Rule):
    """An IPv4 or IPv6 address."""

    def read(self, value: object, names: Names) -> str:
        try:
            return str(ip_address(text(value)))
        except ValueError:
            wrong(f"{value!r} is no IP address, such as 192.168.1.11")

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 2}


@dataclass(frozen=True)
class IpAddresses(Rule):
    """An IPv4 or IPv6 address or a list of them."""

    def read(self, value: object, names: Names) -> tuple[str, ...]:
        one = IpAddress()
        if not isinstance(value, list):
            return (one.read(value, names),)
        if not value:
            wrong("this list is empty: give an address, or remove the key")
        addresses = tuple(one.read(each, names) for each in value)
        for number, address in enumerate(addresses):
            if address in addresses[:number]:
                wrong(f"{address} is there twice")
        return addresses

    def schema(self) -> JsonSchema:
        one = IpAddress().schema()
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


@dataclass(frozen=True)
class FilePattern(Rule):
    """A file or folder in this file's folder, or a pattern with ``*``."""

    def read(self, value: object, names: Names) -> str:
        pattern = text(value)
        path = PurePosixPath(pattern)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            wrong(f"{pattern!r} is not within this file's folder")
        if not matches(names.folder, pattern):
            wrong(f"there is no file {pattern!r} in this file's folder")
        return pattern

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


class Machine(Section):
    """How to reach the machine of a host; else it is as in ~/.ssh/config."""

    address: Annotated[str, Destination()] | None = Field(
        default=None,
        description="Name or address that ssh connects to; names of ~/.ssh/config work. Default: "
        "the host's name.",
    )
    user: Annotated[str, values.User()] | None = Field(
        default=None, description="User to log in as. Default: as ssh chooses it."
    )
    port: Annotated[int, Integer(1, 65535)] | None = Field(
        default=None, description="Port of its ssh server. Default: as ssh chooses it."
    )
    jump: Annotated[str, Destination()] | None = Field(
        default=None,
        description="Machine to connect through, or several with commas, as of `ssh -J`. Default: "
        "as ssh chooses it.",
    )
    key: Annotated[str, values.Text()] | None = Field(
        default=None,
        examples=["~/.ssh/lab"],
        description="File of the private key; ~ is the home folder. Default: those that ssh finds, "
        "those of an ssh-agent among them.",
    )
    data: Annotated[tuple[str, ...], IpAddresses()] | None = Field(
        default=None,
        description="Its IP address on the network of the messages, which the other programs get, "
        "or several, the preferred one first. Programs use the first one of the family, IPv4 or "
        "IPv6, that all hosts have, and can see the others. Default: the one that the ssh "
        "connection arrives at.",
    )
    clock: Annotated[tuple[str, ...], IpAddresses()] | None = Field(
        default=None,
        description="Its IP address on the network of the clock probes, or several, the preferred "
        "one first. The probes use the first one of the family, IPv4 or IPv6, that all hosts have. "
        "Default: as `data`.",
    )
    become: Literal["sudo"] | None = Field(
        default=None,
        description="How its agent gets rights that its user does not have: `sudo`, which has to "
        "work without a password there. They are for emulated links, packet stamps by network "
        "interfaces and real-time priorities; components run as the user and get no capability. "
        "`loopscope host setup` has sudo allow nothing but this.",
    )
    settings: Settings = Field(
        default=Settings(),
        description="Settings that the machine has while the run lasts, as those of `settings` at "
        "the top.",
    )
    quota: Annotated[int, Quantity(SIZE, "1B", "1TiB")] = Field(
        default="16GB",
        validate_default=True,
        description="What is taken from the machine in a run at most: its measurements with 4 kB "
        "for each file, and apart from them what its agent reports. A machine that has more fails "
        "the run, and its measurements stay there.",
    )


def check_machines(at: Place) -> None:
    """Refuses what only a network that is made for the run can have, and probes without a way."""
    if at.text_at("testbed") == "ssh":
        _check_families(at)
    network = at.get("network")
    if network is None:
        return
    if at.text_at("testbed") != "ssh":
        if given := network.get("router"):
            given.report(
                "testbed local makes a router of its own: remove this, or use testbed: ssh"
            )
        return
    for key in ("data", "clock"):
        if given := network.get(key):
            message = f"network.{key} is about addresses that testbed local gives; {_NOT_MADE}"
            given.report(f"{message}: give them by `{key}` in `machines`, or remove it")
    if given := network.get("default", "mtu"):
        given.report(
            f"an mtu of default is that of the devices that testbed local makes; {_NOT_MADE}: "
            "give the mtu of a link, or remove it"
        )
    for _, link in network.entries():
        for settings in (link, *(part for _, part in link.entries())):
            for keys in _FILES:
                given = settings.get(*keys)
                if given and given.text != "none":
                    given.report("a machine of testbed ssh does not have this file of a link")
    mover = network.text_at("mover")
    if mover not in (None, "auto", "tap"):
        place = network.get("mover") or network
        place.report(
            f"mover: {mover} is for testbed local: a machine of testbed ssh impairs what it sends "
            "by tap; use mover: auto"
        )


def _check_families(at: Place) -> None:
    """Refuses addresses for clock probes of which no family is common to all hosts.

    Where the file leaves the addresses of a host open, the run finds out.
    """
    key = "data" if at.text_at("clock", "network") == "data" else "clock"
    common, seen = {4, 6}, []
    for host in at.elements("hosts"):
        machine = at.get("machines", host.text or "")
        given = machine and (machine.get(key) or machine.get("data"))
        if not given:
            return
        try:
            texts = [each.text for each in given.elements()] or [given.text]
            versions = {ip_address(text or "").version for text in texts}
        except ValueError:
            return
        seen.append(f"{' and '.join(f'IPv{each}' for each in sorted(versions))} on {host.text}")
        if not common & versions:
            given.report(
                "clock probes need addresses of a family that all hosts have, and there are "
                f"{', '.join(seen)}: `{key}` takes a list, so add one of the other family"
            )
            return
        common &= versions
