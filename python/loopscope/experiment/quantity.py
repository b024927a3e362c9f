"""Numbers with units, as the experiment file writes them: ``2ms``, ``1500B``, ``10Hz``, ``1ppm``.

Values are exact: ``2.1ms`` is 2 100 000 ns, never a binary float near it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from .problem import nearest


@dataclass(frozen=True, eq=False)
class Dimension:
    """Dimension of a quantity, and the units in which it may be written.

    ``units`` maps a unit to its size in ``base``. ``aliases`` are accepted but never printed.
    ``whole`` says that a value is a whole number of the base unit.
    """

    name: str
    base: str
    example: str
    units: dict[str, Fraction]
    aliases: dict[str, str]
    whole: bool


def _scaled(**units: int | Fraction) -> dict[str, Fraction]:
    return {unit: Fraction(size) for unit, size in units.items()}


DURATION = Dimension(
    name="duration",
    base="ns",
    example="5ms",
    units=_scaled(ns=1, us=10**3, ms=10**6, s=10**9, min=60 * 10**9, h=3600 * 10**9),
    aliases={"\u00b5s": "us", "\u03bcs": "us"},
    whole=True,
)
SIZE = Dimension(
    name="size",
    base="B",
    example="1500B",
    units=_scaled(
        B=1, kB=10**3, KiB=2**10, MB=10**6, MiB=2**20, GB=10**9, GiB=2**30, TB=10**12, TiB=2**40
    ),
    aliases={},
    whole=True,
)
RATE = Dimension(
    name="rate",
    base="bit",
    example="100Mbit",
    units=_scaled(bit=1, kbit=10**3, Mbit=10**6, Gbit=10**9),
    aliases={f"{unit}/s": unit for unit in ("bit", "kbit", "Mbit", "Gbit")},
    whole=True,
)
FREQUENCY = Dimension(
    name="frequency",
    base="Hz",
    example="10Hz",
    units=_scaled(Hz=1, kHz=10**3, MHz=10**6),
    aliases={},
    whole=False,
)
RATIO = Dimension(
    name="ratio",
    base="ppm",
    example="1ppm",
    units={"ppm": Fraction(1), "%": Fraction(10**4)},
    aliases={},
    whole=False,
)
PACKETS = Dimension(
    name="number of packets",
    base="packets",
    example="100packets",
    units=_scaled(packets=1),
    aliases={"packet": "packets"},
    whole=True,
)

DIMENSIONS = (DURATION, SIZE, RATE, FREQUENCY, RATIO, PACKETS)

_LARGEST = 2**63 - 1
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
# More digits than any 64-bit value in any unit needs.
_LONGEST = 64


class QuantityError(ValueError):
    """A text that is not a quantity of the wanted dimension. ``hint`` is a right spelling."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def parse(text: object, dimension: Dimension) -> Fraction:
    """Reads a quantity; the result is in the dimension's base unit, not negative, below 2^63.

    Raises QuantityError for anything else, a number without unit among it.
    """
    wanted = f"a {dimension.name} such as {dimension.example}"
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise QuantityError(f"this should be {wanted}")
    text = str(text)
    if is_number(text):
        raise QuantityError(f"{text!r} has no unit: write {wanted}")
    match = (
        re.fullmatch(rf"({_NUMBER})(\s*)([^\s\d.:]\S*)", text) if len(text) <= _LONGEST else None
    )
    if match is None:
        raise QuantityError(f"{text!r} is not {wanted}")
    number, space, unit = match.groups()
    scale = _unit_size(number, unit, dimension)
    if space:
        raise QuantityError(f"{text!r} has a space before its unit", number + unit)
    value = Fraction(number) * scale
    if value > _LARGEST:
        raise QuantityError(f"{text!r} is too large")
    if dimension.whole and value.denominator != 1:
        raise QuantityError(f"{text!r} is not a whole number of {dimension.base}")
    return value


def parse_whole(text: object, dimension: Dimension) -> int:
    """Parses as ``parse``, for dimensions whose values are whole numbers of the base unit."""
    return int(parse(text, dimension))


def is_number(text: str) -> bool:
    """Whether this is a decimal number, perhaps with a sign and an exponent."""
    return re.fullmatch(rf"[-+]?{_NUMBER}(?:[eE][-+]?[0-9]+)?", text) is not None


def dimension_of(text: object) -> Dimension | None:
    """The dimension that a text is a right quantity of, or None."""
    for dimension in DIMENSIONS:
        try:
            parse(text, dimension)
        except QuantityError:
            continue
        return dimension
    return None


def format(value: int | Fraction, dimension: Dimension) -> str:
    """The exact text of a value in the base unit, in the largest unit that it reaches.

    Units in which the value has no finite decimal are passed over, so that ``parse`` gives the
    same value back.
    """
    exact = Fraction(value)
    smallest = min(dimension.units.values())
    for unit, size in sorted(dimension.units.items(), key=lambda unit: unit[1], reverse=True):
        number = _decimal(exact / size)
        if number is not None and (exact >= size or size == smallest):
            return number + unit
    raise ValueError(f"{exact} {dimension.base} has no finite decimal")


def pattern(dimension: Dimension) -> str:
    """A regular expression (JSON Schema's dialect) for the dimension's spelling."""
    units = "|".join([*dimension.units, *dimension.aliases])
    return f"^{_NUMBER}({units})$"


def _unit_size(number: str, unit: str, dimension: Dimension) -> Fraction:
    size = dimension.units.get(dimension.aliases.get(unit, unit))
    if size is not None:
        return size
    for other in DIMENSIONS:
        if other is not dimension and other.aliases.get(unit, unit) in other.units:
            raise QuantityError(
                f"{number}{unit} is a {other.name}: write a {dimension.name} "
                f"such as {dimension.example}"
            )
    close = nearest(unit, dimension.units)
    raise QuantityError(
        f"{unit!r} is not a unit of a {dimension.name} (they are {', '.join(dimension.units)})",
        number + close if close else None,
    )


def _decimal(value: Fraction) -> str | None:
    """The finite decimal of a value of at most nine decimal places, or None."""
    scaled = value * 10**9
    if scaled.denominator != 1:
        return None
    whole, rest = divmod(scaled.numerator, 10**9)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")
