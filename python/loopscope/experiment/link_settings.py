"""A link's settings: their spelling in the file, and what they are in the links document.

What several of them must be together, the link model itself says (``_native.check_link``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from . import quantity, values
from .file_section import Section
from .model_phases import longest_ns
from .place import Place
from .problem import nearest
from .quantity import DURATION, PACKETS, RATE, RATIO, SIZE
from .values import JsonSchema, Names, Quantity, Rule
from .yaml_tree import Mapping

# A setting's name in the links document, where it is another than in the file.
DOCUMENT_NAMES: Final = {"delay": "delay_ns", "rate": "rate_bps", "burst": "burst_bytes"}

NONE: Final = "none"

STEP: Final = "at "
"""Beginning of the key of a change."""

Pair = tuple[str, str]

# A share of packets without its unit is in per cent, not in the ppm of clocks.
_SHARE: Final = replace(RATIO, example="1%")


def ends(key: str) -> list[Pair]:
    """The directions that a key names, ``A -> B`` or ``A <-> B``; none where it names no link."""
    arrow = "<->" if "<->" in key else "->"
    hosts = [host.strip() for host in key.split(arrow)]
    if len(hosts) != 2:
        return []
    source, target = hosts
    return [(source, target), (target, source)] if arrow == "<->" else [(source, target)]


def step_ns(key: str) -> int:
    """When the change of this key comes, in ns. Raises QuantityError."""
    return quantity.parse_whole(key.removeprefix(STEP).strip(), quantity.DURATION)


@dataclass(frozen=True)
class Probability(Rule):
    """A ratio from 0% to 100%, as a number from 0 to 1."""

    def read(self, value: object, names: Names) -> float:
        Quantity(_SHARE, "0%", "100%").read(value, names)
        return float(quantity.parse(value, _SHARE) / 10**6)

    def schema(self) -> JsonSchema:
        return Quantity(_SHARE, "0%", "100%").schema()

    type_text = "share from 0% to 100%"
    units = "%, ppm"
    example = "1%"


@dataclass(frozen=True)
class Recorded(Rule):
    """A file that the link model reads, relative to the experiment file's folder."""

    kind: Literal["table", "loss", "delays", "opportunities"]

    def read(self, value: object, names: Names) -> str:
        name = values.text(value)
        path = (names.folder / name).absolute()
        from loopscope._native import check_link_trace

        mistake = check_link_trace(self.kind, str(path))
        if mistake is not None:
            line, message = mistake
            place = name if line is None else f"{name}, line {line}"
            values.wrong(f"{place}: {message}")
        return str(path)

    def schema(self) -> JsonSchema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class QueueLimit(Rule):
    """Limit of a queue: packets, bytes or time."""

    def read(self, value: object, names: Names) -> dict[str, int]:
        of = {PACKETS: "packets", SIZE: "bytes", DURATION: "time-ns"}
        dimension = quantity.dimension_of(value)
        if dimension not in of:
            values.wrong(f"a queue's limit is 100packets, 64kB or 50ms, not {value}")
        return {of[dimension]: quantity.parse_whole(value, dimension)}

    def schema(self) -> JsonSchema:
        patterns = [quantity.pattern(each) for each in (PACKETS, SIZE, DURATION)]
        return values.or_reference({"type": "string", "pattern": "|".join(patterns)})

    type_text = "number of packets, size or duration"
    units = ", ".join(unit for each in (PACKETS, SIZE, DURATION) for unit in each.units)
    example = "100packets"


@dataclass(frozen=True)
class OrNone(Rule):
    """A value, or the word ``none``, which takes back what `default` or an earlier step set.

    ``make`` turns the value into what the links document has.
    """

    rule: Rule
    make: Callable[[Any], Any] = lambda value: value
    other: str | None = None

    def read(self, value: object, names: Names) -> object:
        if value == NONE:
            return None
        if self.other is not None and value == self.other:
            return value
        return self.make(self.rule.read(value, names))

    def schema(self) -> JsonSchema:
        words = [NONE] if self.other is None else [NONE, self.other]
        return {"anyOf": [{"enum": words}, self.rule.schema()]}

    @property
    def type_text(self) -> str:
        words = [NONE] if self.other is None else [NONE, self.other]
        return f"{self.rule.type_text}, or {' or '.join(f'`{word}`' for word in words)}"

    @property
    def units(self) -> str:
        return self.rule.units

    @property
    def example(self) -> str:
        return self.rule.example


# A setting as the links document has it; None: it does nothing.
Document = dict[str, Any] | None


class Shape(Section):
    """A setting that is a mapping."""

    @abstractmethod
    def document(self) -> Document:
        """The setting in the links document's terms."""


def _jitter(
    ns: int, distribution: str | dict[str, str] = "normal", correlation: float = 0.0
) -> Document:
    made = {"distribution": distribution, "ns": ns, "correlation": correlation}
    return made if ns else None


Deviation = Annotated[int, Quantity(DURATION, "0ms")]


class _Jitter(Shape):
    correlation: Annotated[float, Probability()] = Field(
        default=0.0, description="Of a delay with the one before, from 0% to 100%, such as 25%."
    )

    def document(self) -> Document:
        (name,) = type(self).model_fields.keys() - {"correlation"}
        return _jitter(getattr(self, name), name, self.correlation)


class NormalJitter(_Jitter):
    """Delays vary after a normal distribution."""

    normal: Deviation = Field(description="Standard deviation, such as 1ms.")


class UniformJitter(_Jitter):
    """Delays vary evenly."""

    uniform: Deviation = Field(description="How far at most from the mean, such as 1ms.")


class ParetoJitter(_Jitter):
    """Delays vary after a Pareto distribution of shape 3."""

    pareto: Deviation = Field(description="Standard deviation, such as 1ms.")


class ExponentialJitter(_Jitter):
    """Delays vary after an exponential distribution."""

    exponential: Deviation = Field(description="Standard deviation, such as 1ms.")


class TableJitter(_Jitter):
    """Delays vary as the values of a file do."""

    table: Annotated[str, Recorded("table")] = Field(
        description="File of numbers, one a line, of which only the distribution's shape counts."
    )
    deviation: Deviation = Field(description="Standard deviation, such as 1ms.")

    def document(self) -> Document:
        return _jitter(self.deviation, {"table": self.table}, self.correlation)


def _loss(probability: float, correlation: float = 0.0) -> Document:
    made = {"kind": "independent", "probability": probability, "correlation": correlation}
    return made if probability else None


class IndependentLoss(Shape):
    """Each packet is lost by itself."""

    probability: Annotated[float, Probability()] = Field(description="Of a packet, such as 0.1%.")
    correlation: Annotated[float, Probability()] = Field(
        default=0.0, description="With the packet before, from 0% to 100%, such as 25%."
    )

    def document(self) -> Document:
        return _loss(self.probability, self.correlation)


class GilbertElliott(Section):
    """Two states, each with its loss."""

    p: Annotated[float, Probability()] = Field(
        description="Probability at a packet of going from good to bad, such as 1%."
    )
    r: Annotated[float, Probability()] = Field(
        description="Probability at a packet of going back, such as 30%."
    )
    good: Annotated[float, Probability()] = Field(
        default=0.0, description="Packets lost in the good state. Default: 0%."
    )
    bad: Annotated[float, Probability()] = Field(
        default=1.0, description="Packets lost in the bad state. Default: 100%."
    )


class GilbertElliottLoss(Shape):
    """Packets are lost in bursts."""

    gilbert_elliott: GilbertElliott = Field(
        alias="gilbert-elliott", description="Two states, each with its loss."
    )

    def document(self) -> dict[str, Any]:
        return {"kind": "gilbert-elliott", **self.gilbert_elliott.model_dump()}


class PeriodicLoss(Shape):
    """Packets are lost at regular intervals."""

    every: Annotated[int, values.Integer(1, 2**63 - 1)] = Field(
        description="One packet in so many is lost."
    )

    def document(self) -> dict[str, Any]:
        return {"kind": "periodic", "every": self.every}


class TraceLoss(Shape):
    """Packets are lost as they once were."""

    trace: Annotated[str, Recorded("loss")] = Field(
        description="File with a line for each packet: 1 lost, 0 not. It repeats."
    )

    def document(self) -> dict[str, Any]:
        return {"kind": "trace", "path": self.trace}


def _queue(limit: dict[str, int] | None, discipline: Any = "drop-tail") -> dict[str, Any]:
    return (
        {"discipline": discipline} if limit is None else {"limit": limit, "discipline": discipline}
    )


class Queue(Shape):
    """The queue of packets that wait for the rate."""

    limit: Annotated[dict[str, int] | None, OrNone(QueueLimit())] = Field(
        default=None,
        description="How much may wait: 100packets, 64kB or 50ms. Default: from rate and delay.",
    )
    discipline: Literal["drop-tail", "codel"] = Field(
        default="drop-tail",
        description="drop-tail: who finds the queue full is dropped. codel: CoDel, RFC 8289.",
    )
    target: Annotated[int, Quantity(DURATION, "1us")] = Field(
        default="5ms",
        validate_default=True,
        description="CoDel's: how long packets may wait at least once in each interval.",
    )
    interval: Annotated[int, Quantity(DURATION, "1us")] = Field(
        default="100ms", validate_default=True, description="CoDel's interval."
    )

    @classmethod
    def check(cls, at: Place) -> None:
        for key in ("target", "interval") if at.text_at("discipline") != "codel" else ():
            if given := at.get(key):
                given.report(f"only CoDel has {key}: add discipline: codel", at_key=True)

    def document(self) -> dict[str, Any]:
        if self.discipline == "drop-tail":
            return _queue(self.limit)
        codel = {"target_ns": self.target, "interval_ns": self.interval}
        return _queue(self.limit, {"codel": codel})


def _skip(probability: float) -> Document:
    return {"skip": {"probability": probability}} if probability else None


def _one_of(form: str, *keys: str) -> Discriminator:
    """A discriminator: a setting has the shape that belongs to the one of ``keys`` that it has."""

    def kind(value: object) -> str | None:
        if not isinstance(value, dict):
            return "<word>"
        found = [key for key in keys if key in value]
        return f"<{found[0]}>" if len(found) == 1 else None

    return Discriminator(kind, custom_error_type="wrong", custom_error_message=form)


class LinkSettings(Section):
    """Settings of the packets of one direction between two hosts."""

    delay: Annotated[int, Quantity(DURATION, "0ms", "1h")] = Field(
        default=0, description="Mean of the time on the wire, such as 20ms."
    )
    jitter: Annotated[
        Annotated[Any, OrNone(Quantity(DURATION, "0ms"), _jitter), Tag("<word>")]
        | Annotated[NormalJitter, Tag("<normal>")]
        | Annotated[UniformJitter, Tag("<uniform>")]
        | Annotated[ParetoJitter, Tag("<pareto>")]
        | Annotated[ExponentialJitter, Tag("<exponential>")]
        | Annotated[TableJitter, Tag("<table>")],
        _one_of(
            "jitter should be a duration such as 1ms, none, or one of {normal: 1ms}, "
            "{uniform: 1ms}, {pareto: 1ms}, {exponential: 1ms}, {table: FILE, deviation: 1ms}",
            "normal",
            "uniform",
            "pareto",
            "exponential",
            "table",
        ),
    ] = Field(
        default=None,
        description="How the delay varies about its mean: 1ms is {normal: 1ms}, the standard "
        "deviation. Order is kept unless `reorder` says otherwise.",
    )
    delays: Annotated[str | None, OrNone(Recorded("delays"))] = Field(
        default=None,
        description="File of delays over time, instead of `delay`; relative to this file.",
    )
    loss: Annotated[
        Annotated[Any, OrNone(Probability(), _loss), Tag("<word>")]
        | Annotated[IndependentLoss, Tag("<probability>")]
        | Annotated[GilbertElliottLoss, Tag("<gilbert-elliott>")]
        | Annotated[PeriodicLoss, Tag("<every>")]
        | Annotated[TraceLoss, Tag("<trace>")],
        _one_of(
            "loss should be a ratio such as 0.1%, none, or one of {probability: 1%, correlation: "
            "25%}, {gilbert-elliott: {p: 1%, r: 30%}}, {every: 100}, {trace: FILE}",
            "probability",
            "gilbert-elliott",
            "every",
            "trace",
        ),
    ] = Field(default=None, description="Packets lost, such as 0.1%.")
    duplicate: Annotated[float, Probability()] = Field(
        default=0.0, description="Packets doubled, such as 1%."
    )
    corrupt: Annotated[float, Probability()] = Field(
        default=0.0, description="Packets of which one bit is flipped, such as 0.01%."
    )
    reorder: Annotated[Any, OrNone(Probability(), _skip, "by-jitter")] = Field(
        default=None,
        description="Packets that overtake: a ratio such as 1% skips the delay; by-jitter: where "
        "the delays with their jitter say so.",
    )
    rate: Annotated[int | None, OrNone(Quantity(RATE, "1bit"))] = Field(
        default=None,
        description="Bits a second of Ethernet frames, such as 100Mbit.",
    )
    burst: Annotated[int | None, OrNone(Quantity(SIZE, "1B"))] = Field(
        default=None,
        description="What may pass at once, such as 15kB. Default: one largest frame.",
    )
    opportunities: Annotated[str | None, OrNone(Recorded("opportunities"))] = Field(
        default=None,
        description="File of delivery opportunities in mahimahi's format, instead of a rate; "
        "relative to this file.",
    )
    queue: Annotated[
        Annotated[Any, OrNone(QueueLimit(), _queue), Tag("<word>")]
        | Annotated[Queue, Tag("<mapping>")],
        Discriminator(lambda value: "<mapping>" if isinstance(value, dict) else "<word>"),
    ] = Field(
        default=None,
        description="What waits for the rate: 100packets, 64kB or 50ms. Default: from rate and "
        "delay.",
    )
    mtu: Annotated[int | None, OrNone(Quantity(SIZE, "576B", "9000B"))] = Field(
        default=None,
        description="Largest IP packet, 576B to 9000B, such as 1500B; larger ones are dropped. In "
        "`default` it is the MTU of the hosts' devices.",
    )

    def document(self) -> dict[str, Any]:
        """The given settings, as the links document has them; None: the setting's default."""
        made = {}
        for name in LinkSettings.model_fields:
            if name in self.model_fields_set:
                value = getattr(self, name)
                value = value.document() if isinstance(value, Shape) else value
                made[DOCUMENT_NAMES.get(name, name)] = value
        return made


class Link(LinkSettings):
    """A link from the start. Other keys are steps: `at 30s` and what changes then."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, LinkSettings]

    @property
    def steps(self) -> dict[str, LinkSettings]:
        """Settings under each key that begins a change."""
        return self.__pydantic_extra__ or {}

    @classmethod
    def check(cls, at: Place) -> None:
        link = at.location[-1]
        if link != "default" and not ends(str(link)):
            return
        first: dict[int, Place] = {}
        end = longest_ns(at.root)
        for key, step in at.entries():
            if key in cls.model_fields:
                continue
            if not key.startswith(STEP):
                message = f"unknown key {key!r}: a change of the link is written at 30s: {{…}}"
                step.report(message, nearest(key, cls.model_fields), at_key=True)
                continue
            try:
                time = step_ns(key)
            except quantity.QuantityError as error:
                hint = f"{STEP}{error.hint}" if error.hint else None
                step.report(f"{key!r} is not a time: {error.message}", hint, at_key=True)
                continue
            if time in first:
                text, line = key.removeprefix(STEP).strip(), first[time].key_mark.line
                message = f"there are two changes at {text}: the first is on line {line}"
                step.report(message, at_key=True)
            first.setdefault(time, step)
            if end is not None and time >= end:
                step.report(
                    f"{key} never comes: counted from the beginning of the first measured phase, "
                    f"the run ends after {quantity.format(end, DURATION)} at the latest",
                    at_key=True,
                )
            if isinstance(step.tree, Mapping) and not step.keys:
                step.report(f"{key} changes nothing: give it settings", at_key=True)


# A link that does nothing.
WIRE: Final = Link.model_validate({})
