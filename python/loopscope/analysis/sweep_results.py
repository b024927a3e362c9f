"""The results of a sweep: each point's own, and the verdict over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loopscope.analysis.analyse import analyse
from loopscope.analysis.results import Results, StatisticResult
from loopscope.analysis.verdict import Verdict, overall
from loopscope.experiment import Experiment, Statistic
from loopscope.strict_json import to_json
from loopscope.timeline import (
    Run,
    described,
    open_run,
    points_of,
    read_manifest,
    read_point,
    run_id,
)

COMPLETE, FAILED, NOT_RUN = "complete", "failed", "not run"


@dataclass(frozen=True)
class PointResult:
    """Results at one combination of swept parameters."""

    name: str
    params: Mapping[str, str | int | float | bool]
    results: Results | None
    """None where nothing was measured."""
    status: str = COMPLETE
    """Status of the point in the run's manifest, or `not run`."""
    failure: str | None = None
    """Why it failed, if it did."""

    @property
    def error(self) -> str | None:
        """Why there is nothing to be said of it."""
        if self.status == COMPLETE and self.failure is None:
            return None
        return self.failure or f"it was {self.status}"

    @property
    def verdict(self) -> Verdict | None:
        """None where nothing was expected, or the point failed."""
        return self.results.verdict if self.results and self.error is None else None

    def statistic(self, text: str) -> StatisticResult | None:
        """None where nothing was measured."""
        return self.results.statistics.get(text) if self.results else None

    def to_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = {"point": self.name, "params": dict(self.params)}
        if self.results is None:
            return {**document, "verdict": None, "error": self.error}
        own = {key: each for key, each in self.results.to_dict().items() if key != "run"}
        statistics = {text: each.to_dict() for text, each in self.results.statistics.items()}
        return {**document, **own, "statistics": statistics, "error": self.error}


@dataclass(frozen=True)
class SweepResults:
    run: str
    experiment: Experiment
    points: tuple[PointResult, ...]

    @property
    def without(self) -> list[PointResult]:
        """The points without results: they failed, or were not run to their end."""
        return [point for point in self.points if point.error is not None]

    @property
    def verdict(self) -> Verdict | None:
        """The worst of the points; None where nothing was expected.

        What such a point would have shown nobody knows, so without a FAIL it is UNKNOWN.
        """
        verdicts = [point.verdict for point in self.points if point.verdict is not None]
        if self.without:
            verdicts.append(Verdict.UNKNOWN)
        return overall(verdicts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "verdict": None if self.verdict is None else str(self.verdict),
            "points": [point.to_dict() for point in self.points],
        }

    def to_json(self) -> str:
        """The content of `results.json`, which is what `loopscope run --json` prints."""
        return to_json(self.to_dict(), indent=2, ensure_ascii=False) + "\n"


def wanted(experiment: Experiment) -> list[Statistic]:
    """The statistics that the table and the figures of an experiment show, each once."""
    found = list(experiment.table)
    for figure in experiment.figures:
        if figure.x != "time":
            found += [*figure.y, *([figure.error] if figure.error else [])]
    return list({each.text: each for each in found}.values())


def analyse_sweep(
    path: Path, seen: Callable[[Run, Results], None] = lambda run, results: None
) -> SweepResults:
    """Measures and judges every point of a run, one after the other.

    ``seen`` is called for each with its messages, which are not kept. Raises `RunError`, and
    `AnalysisError` where a point cannot be judged.
    """
    manifest = read_manifest(path)
    experiment = described(path, manifest)
    there = set(points_of(path))
    statistics = wanted(experiment)
    points = []
    for point in experiment.points:
        said = read_point(path, manifest, point.name)
        status = said.get("status", NOT_RUN)
        results = None
        if point.name in there and status == COMPLETE:
            run = open_run(path, point.name)
            results = analyse(run, statistics=statistics)
            seen(run, results)
            results = replace(results, messages={}, graph_messages={})
        points.append(PointResult(point.name, point.params, results, status, said.get("error")))
    return SweepResults(run_id(path, manifest), experiment, tuple(points))
