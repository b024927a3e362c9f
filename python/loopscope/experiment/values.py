"""Readers of single values of the file, for use in the models' annotations.

Each rule reads a value or refuses it with a message for a person, and gives the JSON Schema of its
spelling. Names are checked against the file's own (``Names``, which comes as pydantic's context).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final, NoReturn

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from . import quantity
from .measures import key_of
from .params import REFERENCE
from .path_dag import Shape
from .problem import nearest

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"

JsonSchema = dict[str, Any]


@dataclass(frozen=True)
class Names:
    """The names that a file gives, as far as they can be read; None: not at all.

    ``paths`` holds each path's events as written, None for one that cannot be read; ``graphs``, of
    each path that is one, what leads where, None for one that is not right; ``values`` the unit of
    each value, None for one that cannot be read; ``swept`` each swept parameter's values as
    written. ``services`` are the components that serve channels, each with its host. ``folder`` is
    what the names of files are relative to.
    """

    hosts: frozenset[str] | None = None
    components: frozenset[str] | None = None
    services: Mapping[str, str] = field(default_factory=dict)
    groups: frozenset[str] | None = None
    phases: frozenset[str] | None = None
    paths: Mapping[str, tuple[str | None, ...]] | None = None
    graphs: Mapping[str, Shape | None] = field(default_factory=dict)
    values: Mapping[str, str | None] | None = None
    swept: Mapping[str, tuple[str, ...]] | None = None
    folder: Path = Path()

    def refer(self, what: str, name: str) -> None:
        """Refuses a name that the file does not give.

        It is of a host, component, phase, path or swept parameter.
        """
        known = self.swept if what == "swept parameter" else getattr(self, what + "s")
        if known is not None and name not in known:
            wrong(f"there is no {what} {name!r}", nearest(name, known))


def wrong(message: str, hint: str | None = None) -> NoReturn:
    """Refuses a value. Within a validator only."""
    raise PydanticCustomError("wrong", "{message}", {"message": message, "hint": hint})


def text(value: object) -> str:
    """A value that is text, or a refusal."""
    if isinstance(value, bool | int | float):
        spelling = str(value).lower() if isinstance(value, bool) else value
        wrong("this should be text", f'"{spelling}"')
    if not isinstance(value, str):
        wrong("this should be text")
    if not value:
        wrong("this text is empty")
    return value


def or_reference(schema: JsonSchema) -> JsonSchema:
    """A JSON Schema that also allows a parameter in the value's place."""
    return {"anyOf": [schema, {"type": "string", "pattern": f"^{REFERENCE}$"}]}


EXAMPLES_OF_NAMES: Final = {
    "component": "sensor",
    "environment variable": "HOME",
    "field": "size",
    "governor": "performance",
    "host": "h1",
    "parameter": "delay",
    "path": "loop",
    "phase": "run",
    "swept parameter": "delay",
}
EXAMPLES: Final = {
    "Amount": "10us",
    "Axis": "delay",
    "Boolean": "true",
    "Callable": "own:doubled",
    "Columns": "[id, host]",
    "Destination": "robot1.local",
    "FilePattern": "config/*.yaml",
    "IpAddress": "192.168.1.11",
    "IpAddresses": "[192.168.1.11, 'fd00::11']",
    "Command": "./loop sensor 5000",
    "Entity": "loop:sent",
    "Event": "sensor/loop:sent",
    "Expectation": "loop.p99 < 5ms",
    "HostClock": "ptp0",
    "HostOrComponent": "sensor",
    "Interface": "eth1",
    "KernelClass": "sched",
    "Key": "id",
    "LeftBehind": "trace",
    "Misses": "0.1%",
    "NoKernel": "",
    "Number": "8",
    "OfValues": "mean",
    "Pattern": "loop:*",
    "Predicate": "id % 100 == 0",
    "Processors": "0-1,3",
    "Recorded": "recorded.txt",
    "Single": "5",
    "Statistics": "[loop.p99, loop.max]",
    "StatisticList": "[mean, p99]",
    "StreamName": "slow",
    "Subnet": "10.77.0.0/24",
    "Sysctl": "net.core.busy_poll",
    "SysctlValue": "50",
    "Sweep": "{delay: [10ms, 20ms]}",
    "TableName": "paths.loop",
    "ToldName": "frame",
    "TableNames": "[loops, others]",
    "Text": "'a text'",
    "User": "nobody",
    "Variables": "ROS_*",
}
"""A right value of each kind, in YAML, for the reference page."""


class Rule(ABC):
    """Reads one value of the file."""

    @abstractmethod
    def read(self, value: object, names: Names) -> object:
        """Meaning of the value; refuses it with ``wrong``."""

    @abstractmethod
    def schema(self) -> JsonSchema:
        """JSON Schema of the value in the file."""

    @property
    def type_text(self) -> str:
        """Type of the value, for the reference page."""
        first = " ".join((type(self).__doc__ or "").split()).partition(". ")[0].removesuffix(".")
        return first[:1].lower() + first[1:]

    @property
    def units(self) -> str:
        """The units that the value may be written in, for the reference page."""
        return ""

    @property
    def example(self) -> str:
        """A right value, in YAML, for the reference page."""
        return EXAMPLES[type(self).__name__]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            lambda value, info: self.read(value, info.context or Names())
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        return self.schema()


@dataclass(frozen=True)
class Text(Rule):
    """Text that is not empty."""

    def read(self, value: object, names: Names) -> str:
        return text(value)

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class Boolean(Rule):
    """true or false."""

    def read(self, value: object, names: Names) -> bool:
        if not isinstance(value, bool):
            meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}
            wrong("this should be true or false", meant.get(str(value).lower()))
        return value

    def schema(self) -> JsonSchema:
        return or_reference({"type": "boolean"})


@dataclass(frozen=True)
class Integer(Rule):
    """A whole number without unit, from ``low`` to ``high``."""

    low: int
    high: int

    def read(self, value: object, names: Names) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            wrong("this should be a whole number without unit")
        if not self.low <= value <= self.high:
            wrong(f"{value} is out of range: from {self.low} to {self.high}")
        return value

    def schema(self) -> JsonSchema:
        return or_reference({"type": "integer", "minimum": self.low, "maximum": self.high})

    @property
    def type_text(self) -> str:
        most = f" to {self.high}" if self.high < 2**62 else " on"
        return f"whole number from {self.low}{most}"

    @property
    def example(self) -> str:
        return str(max(self.low, 2))


@dataclass(frozen=True)
class Quantity(Rule):
    """A value with unit, as a number of the dimension's base unit."""

    dimension: quantity.Dimension
    lowest: str
    highest: str | None = None

    def read(self, value: object, names: Names) -> int | float:
        try:
            exact = quantity.parse(value, self.dimension)
        except quantity.QuantityError as error:
            wrong(error.message, error.hint)
        if exact < quantity.parse(self.lowest, self.dimension):
            wrong(f"{value} is too small: at least {self.lowest}")
        if self.highest is not None and exact > quantity.parse(self.highest, self.dimension):
            wrong(f"{value} is too large: at most {self.highest}")
        return int(exact) if self.dimension.whole else float(exact)

    def schema(self) -> JsonSchema:
        return or_reference({"type": "string", "pattern": quantity.pattern(self.dimension)})

    @property
    def type_text(self) -> str:
        most = f" to {self.highest}" if self.highest is not None else " on"
        return f"{self.dimension.name} from {self.lowest}{most}"

    @property
    def units(self) -> str:
        return ", ".join(self.dimension.units)

    @property
    def example(self) -> str:
        given = quantity.parse(self.dimension.example, self.dimension)
        low = quantity.parse(self.lowest, self.dimension)
        high = given if self.highest is None else quantity.parse(self.highest, self.dimension)
        return self.dimension.example if low <= given <= high else self.lowest


@dataclass(frozen=True)
class Name(Rule):
    """A name that the file gives to something."""

    what: str
    longest: int

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if not re.fullmatch(_NAME, name):
            wrong(
                f"{name!r} cannot name {self.what}: "
                "use letters, digits, - and _, a letter or a digit first"
            )
        if len(name) > self.longest:
            wrong(f"{name!r} is too long to name {self.what}: at most {self.longest} characters")
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^{_NAME}$", "maxLength": self.longest}

    @property
    def type_text(self) -> str:
        return f"name of {self.what}, at most {self.longest} characters"

    @property
    def example(self) -> str:
        return EXAMPLES_OF_NAMES.get(self.what.partition(" ")[2], "my-name")


@dataclass(frozen=True)
class Reference(Rule):
    """The name of a host, component, phase, path or swept parameter that the file gives."""

    what: str

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        names.refer(self.what, name)
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string"}

    @property
    def type_text(self) -> str:
        return f"name of a {self.what}"

    @property
    def example(self) -> str:
        return EXAMPLES_OF_NAMES[self.what]


@dataclass(frozen=True)
class HostOrComponent(Rule):
    """Name of a host or of a component, which stands for its host."""

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if names.hosts is not None and names.components is not None:
            known = names.hosts | names.components
            if name not in known:
                wrong(f"there is no host or component {name!r}", nearest(name, known))
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string"}


@dataclass(frozen=True)
class Identifier(Rule):
    """A name in somebody else's language: a field, a variable, a parameter."""

    what: str
    reserved: str | None = None

    def read(self, value: object, names: Names) -> str:
        name = text(value)
        if not re.fullmatch(_IDENTIFIER, name):
            wrong(f"{name!r} cannot name {self.what}: use letters, digits and _, no digit first")
        if self.reserved and name.startswith(self.reserved):
            wrong(f"{name!r} is loopscope's own: it is set for every component")
        return name

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": f"^{_IDENTIFIER}$"}

    @property
    def type_text(self) -> str:
        return f"name of {self.what}: letters, digits and _"

    @property
    def example(self) -> str:
        return EXAMPLES_OF_NAMES.get(self.what.partition(" ")[2], "late")


@dataclass(frozen=True)
class Key(Rule):
    """A field, or a list of several that name a message together."""

    _field = Identifier("a field")

    def read(self, value: object, names: Names) -> str:
        if not isinstance(value, list):
            return self._field.read(value, names)
        fields = [self._field.read(each, names) for each in value]
        if not fields:
            wrong("a key has one field at least, such as id")
        if twice := next((each for each in fields if fields.count(each) > 1), None):
            wrong(f"the field {twice!r} is there twice")
        return key_of(fields)

    def schema(self) -> JsonSchema:
        field = self._field.schema()
        several = {"type": "array", "items": field, "minItems": 1, "uniqueItems": True}
        return {"anyOf": [field, several]}


@dataclass(frozen=True)
class Variables(Rule):
    """The name of an environment variable, or with ``*`` at the end all that begin so."""

    def read(self, value: object, names: Names) -> str:
        pattern = text(value)
        if not re.fullmatch(rf"\*|{_IDENTIFIER}\*?", pattern):
            wrong(f"{pattern!r} is no environment variable: write NAME, BEGINNING* or *")
        return pattern

    def schema(self) -> JsonSchema:
        return {"type": "string", "pattern": rf"^(\*|{_IDENTIFIER}\*?)$"}


@dataclass(frozen=True)
class User(Rule):
    """A user of the host, by name or number."""

    def read(self, value: object, names: Names) -> str:
        user = str(value) if type(value) is int else text(value)
        if not re.fullmatch(r"[0-9]+|[A-Za-z_][A-Za-z0-9_.-]*", user):
            wrong(f"{user!r} is no user: write a name or a number, such as nobody")
        return user

    def schema(self) -> JsonSchema:
        return {"type": ["string", "integer"]}


@dataclass(frozen=True)
class Single(Rule):
    """A single value of any type."""

    what: str

    def read(self, value: object, names: Names) -> str | int | float | bool:
        if not isinstance(value, str | int | float):
            wrong(f"{self.what} is a single value: text, a number, a quantity, true or false")
        return value

    def schema(self) -> JsonSchema:
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True)
class Command(Rule):
    """A command line or a list of words. Substitution has split what was given as one text."""

    what: str = "run"

    def read(self, value: object, names: Names) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            wrong(f"{self.what} should be a command line or a list of words")
        if not value or not value[0]:
            wrong(f"{self.what} names no program")
        return value

    def schema(self) -> JsonSchema:
        words = {"type": ["string", "number", "boolean"]}
        return {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": words, "minItems": 1},
            ]
        }


@dataclass(frozen=True)
class Subnet(Rule):
    """A private IPv4 network in CIDR notation."""

    def read(self, value: object, names: Names) -> IPv4Network:
        given = text(value)
        address, slash, _ = given.partition("/")
        try:
            network = IPv4Network(given, strict=False)
        except ValueError:
            wrong(f"{given!r} is not an IPv4 network such as 10.77.0.0/24")
        if not slash:
            wrong(f"{given!r} has no prefix length", f"{address}/24")
        if str(network.network_address) != address:
            wrong(f"{given!r} is an address within a network", str(network))
        if not any(network.subnet_of(IPv4Network(private)) for private in _PRIVATE):
            wrong(f"{given} is not a private network: use one in {', '.join(_PRIVATE)}")
        return network

    def schema(self) -> JsonSchema:
        return or_reference({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+){3}/[0-9]+$"})


_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
