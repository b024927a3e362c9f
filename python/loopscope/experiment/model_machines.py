"""The machines behind the hosts, for testbed ssh: the keys of ``machines``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field

from . import values
from .file_section import Section
from .place import Place
from .sent_files import matches
from .values import Integer, JsonSchema, Names, Rule, text, wrong

# What only the machines of testbed local have: their links are made for the run.
_MADE_LINKS = "the links that testbed local makes; the machines of testbed ssh have their own"


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
class FilePattern(Rule):
    """A file or folder in this file's folder, or a pattern with ``*``."""

    folder: str = "this file's folder"

    def read(self, value: object, names: Names) -> str:
        pattern = text(value)
        path = PurePosixPath(pattern)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            wrong(f"{pattern!r} is not within {self.folder}")
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
    data: Annotated[str, IpAddress()] | None = Field(
        default=None,
        description="Its IP address on the network of the messages, which the other programs get. "
        "Default: the one that the ssh connection arrives at.",
    )
    clock: Annotated[str, IpAddress()] | None = Field(
        default=None,
        description="Its IP address on the network of the clock probes. Default: as `data`.",
    )


def check_machines(at: Place) -> None:
    """Nothing is said of links where they are the machines' own."""
    network = at.get("network")
    if at.text_at("testbed") == "ssh" and network is not None:
        network.report(f"network is about {_MADE_LINKS}: remove it")
