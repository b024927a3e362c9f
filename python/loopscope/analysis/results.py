"""What was found out about a run: the one source of the terminal, the JSON and the page.

Times are whole nanoseconds; a mean is rounded to a tenth. What was not measured is None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loopscope.analysis.expectation import Verdict

if TYPE_CHECKING:
    from loopscope.analysis.messages import Messages

TIMES = ("min", "mean", "p50", "p99", "p999", "max")
"""The statistics of every interval, in order; `<name>_ns` in the JSON."""


@dataclass(frozen=True)
class IntervalResult:
    """From one event to another: a whole path, or one of its hops."""

    first: str
    last: str
    count: int
    """Path: messages at its first event. Hop: messages seen at both ends."""
    lost: int
    """Messages seen at the first end and not at the last."""
    duplicates: int
    """Occurrences at the last end beyond each message's first."""
    times: Mapping[str, int | float | None]
    """By the names in `TIMES`, ns, over the messages seen at both ends."""
    err_ns: int | None
    """The largest half-width among them. No statistic is farther from its true value, as long as
    the trace dropped nothing."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "lost": self.lost,
            "duplicates": self.duplicates,
            **{f"{name}_ns": self.times[name] for name in TIMES},
            "err_ns": self.err_ns,
        }


@dataclass(frozen=True)
class PathResult:
    name: str
    loop: IntervalResult
    hops: tuple[IntervalResult, ...]

    def to_dict(self) -> dict[str, Any]:
        hops = [{"from": hop.first, "to": hop.last, **hop.to_dict()} for hop in self.hops]
        return {**self.loop.to_dict(), "hops": hops}


@dataclass(frozen=True)
class ExpectationResult:
    text: str
    verdict: Verdict
    measured: int | float | None
    """ns or a number of messages; None where nothing was measured."""
    err_ns: int | None
    """How far the true value may be from `measured`; None for numbers of messages, where nothing
    was measured and where nothing bounds it."""
    is_time: bool
    reason: str | None
    """Why it is UNKNOWN."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "verdict": str(self.verdict),
            "measured": self.measured,
            "err_ns": self.err_ns,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class ClockResult:
    host: str
    reference: bool
    max_err_ns: int | None

    def to_dict(self) -> dict[str, Any]:
        return {"max_err_ns": self.max_err_ns, "reference": self.reference}


@dataclass(frozen=True)
class CostResult:
    """What an event costs on a host, ns: the most of all repeats."""

    host: str
    event_ns: float
    err_ns: float

    def to_dict(self) -> dict[str, Any]:
        return {"event_ns": self.event_ns, "err_ns": self.err_ns}


@dataclass(frozen=True)
class Drop:
    """Events of one call site of one process that one cause took."""

    host: str
    process: str
    entity: str
    cause: str
    count: int

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class LossResult:
    emitted: int
    recorded: int
    dropped: int
    balanced: bool
    """`emitted == recorded + dropped` for every process."""
    causes: Mapping[str, int]
    drops: tuple[Drop, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "emitted": self.emitted,
            "recorded": self.recorded,
            "dropped": self.dropped,
            "balanced": self.balanced,
            "causes": dict(self.causes),
            "drops": [drop.to_dict() for drop in self.drops],
        }


@dataclass(frozen=True)
class Results:
    run: str
    experiment: str
    repeats: int
    verdict: Verdict | None
    """None where nothing was expected."""
    expectations: tuple[ExpectationResult, ...]
    paths: tuple[PathResult, ...]
    clock: tuple[ClockResult, ...]
    loss: LossResult
    subtracted: tuple[CostResult, ...] | None
    """The cost of recording, where it was subtracted from the times."""
    problems: tuple[str, ...]
    messages: Mapping[str, Messages] = field(repr=False, compare=False)
    """Path name to its messages, for the figures; not in the JSON."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "verdict": None if self.verdict is None else str(self.verdict),
            "expectations": [each.to_dict() for each in self.expectations],
            "paths": {path.name: path.to_dict() for path in self.paths},
            "clock": {"hosts": {each.host: each.to_dict() for each in self.clock}},
            "loss": self.loss.to_dict(),
            "subtracted": None
            if self.subtracted is None
            else {"hosts": {each.host: each.to_dict() for each in self.subtracted}},
            "repeats": self.repeats,
            "problems": list(self.problems),
        }

    def to_json(self) -> str:
        """The content of `results.json`, which is what `loopscope run --json` prints."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"
