"""The time of all threads at channels by layers: application, waiting, runtime and messaging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopscope.analysis.channel_result import ThreadTimes
from loopscope.analysis.results import ValueResult
from loopscope.experiment import Value

_CLOCK = ("application_ns", "blocked_ns", "runtime_ns", "messaging_ns")
_PROCESSOR = ("application_cpu_ns", "runtime_cpu_ns", "messaging_cpu_ns")
# The whole that a layer is a part of.
_WHOLES = {
    **dict.fromkeys(_CLOCK, _CLOCK),
    **dict.fromkeys(_PROCESSOR, _PROCESSOR),
    "memory_ns": ("runtime_ns",),
    "synchronisation_ns": ("runtime_ns",),
    "messaging_synchronisation_ns": ("messaging_ns",),
}


@dataclass(frozen=True)
class Layer:
    """A part of a whole, summed over the threads of which it is known."""

    ns: int
    whole_ns: int
    threads: int
    unknown: int
    """Threads of which it is not known; they are in neither sum."""

    @property
    def percent(self) -> float | None:
        """None where there is no whole."""
        return 100 * self.ns / self.whole_ns if self.whole_ns else None


def layer(threads: Sequence[ThreadTimes], name: str) -> Layer | None:
    """The layer of a name, one of `LAYERS`; None where it is known of no thread."""
    part = f"{name}_ns"
    known = [each for each in threads if getattr(each, part) is not None]
    if not known:
        return None
    whole = sum(getattr(each, of) for each in known for of in _WHOLES[part])
    ns = sum(getattr(each, part) for each in known)
    return Layer(ns, whole, len(known), len(threads) - len(known))


def measure_layer(value: Value, threads: Sequence[ThreadTimes]) -> tuple[ValueResult, list[str]]:
    """A value of `measure.values` that is a layer's, and what makes it doubtful."""
    assert value.layer is not None
    found = layer(threads, value.layer)
    problems = []
    if found is None:
        problems.append(f"value {value.name}: {value.layer} is known of no thread at channels")
    elif found.unknown:
        problems.append(
            f"value {value.name}: {value.layer} is not known of {found.unknown} of the "
            f"{len(threads)} threads at channels"
        )
    lost = [each.missing for each in threads if each.missing != 0]
    if lost:
        problems.append(f"value {value.name}: records of the threads at channels may be missing")
    repeats = {each.repeat for each in threads}
    by_repeat = {
        repeat: _number(
            value, layer([each for each in threads if each.repeat == repeat], value.layer)
        )
        for repeat in sorted(repeats)
    }
    result = ValueResult(
        name=value.name,
        entity=value.entity,
        component=None,
        field=value.layer,
        stat=value.stat,
        value=_number(value, found),
        unit=value.unit,
        count=found.threads if found else 0,
        missing=sum(1 if each is None else each for each in lost),
        unknown=found.unknown if found else 0,
        by_repeat=by_repeat if len(repeats) > 1 else None,
    )
    return result, problems


def _number(value: Value, found: Layer | None) -> int | float | None:
    # What some threads do says nothing of the others.
    if found is None or found.unknown:
        return None
    return found.percent if value.stat == "share" else found.ns
