"""The schedule of an experiment: what happens when, as far as the file says it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .component_order import START_UP
from .plan import Component, Experiment, Phase, PhasesReady


@dataclass(frozen=True)
class Act:
    """What a component does in a stage.

    ``enters`` is None where only its program knows whether it takes part. It does so once the
    components ``after`` have done their part.
    """

    component: Component
    starts: bool
    enters: bool | None
    after: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """In the types of JSON."""
        spec = self.component
        return {
            "component": spec.name,
            "host": spec.host,
            "starts": self.starts,
            "enters": self.enters,
            "after": list(self.after),
            "ready": spec.ready.rule if self.starts else None,
            "command": list(spec.argv) if self.starts else None,
            "background": spec.background,
            "allow_failure": spec.allow_failure,
        }


@dataclass(frozen=True)
class Stage:
    """A phase, None: start-up, and those who have a part in it."""

    phase: Phase | None
    acts: tuple[Act, ...]

    def to_json(self) -> dict[str, Any]:
        """In the types of JSON."""
        phase = self.phase
        return {
            "phase": None if phase is None else phase.name,
            "timeout_ns": None if phase is None else phase.timeout_ns,
            "measured": phase is not None and phase.measured,
            "common_start_ns": None if phase is None else phase.common_start_ns,
            "components": [act.to_json() for act in self.acts],
        }


def schedule(experiment: Experiment) -> list[Stage]:
    """Start-up and the phases, in order."""
    stages = (None, *experiment.phases)
    return [Stage(phase, tuple(_acts(experiment, phase))) for phase in stages]


def _acts(experiment: Experiment, phase: Phase | None) -> Iterator[Act]:
    name = None if phase is None else phase.name
    for spec in experiment.components:
        starts = spec.start == name
        enters = phase is not None and _enters(experiment, spec, phase.name)
        if starts or enters is not False:
            yield Act(spec, starts, enters, spec.after.get(name or START_UP, ()))


def _enters(experiment: Experiment, spec: Component, phase: str) -> bool | None:
    order = [each.name for each in experiment.phases]
    if not isinstance(spec.ready, PhasesReady):
        return False
    if spec.start is not None and order.index(phase) < order.index(spec.start):
        return False
    return None if spec.phases is None else phase in spec.phases
