"""Account of each process of the events it emitted: `hosts/<host>/loss.json`.

`schema/trace.md` describes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from loopscope.strict_json import from_json

UNACCOUNTED = 1 << 62
"""The number of events that may be missing from a process that gave no account, or no whole one."""


@dataclass(frozen=True)
class SiteLoss:
    """The drops of one call site, by cause. Only causes that occurred are listed."""

    entity: str
    file: str
    line: int
    dropped: Mapping[str, int]
    filtered: int = 0
    """Hits that a filter kept out."""


@dataclass(frozen=True)
class ProcessLoss:
    """One process's account. It balances if `emitted == recorded + overwritten + dropped`."""

    repeat: int
    host: str
    process: str
    pid: int
    emitted: int
    recorded: int
    dropped: int
    """All causes, torn records among them."""
    torn: int
    sites: tuple[SiteLoss, ...]
    overwritten: int = 0
    """Records that a flight recorder replaced by newer ones."""
    final: int = 0
    """Records of the last states of counters and histograms: no hit, but on the time line."""
    unknown: tuple[str, ...] = ()
    """Why more may have happened than is counted."""

    @property
    def balanced(self) -> bool:
        return self.emitted == self.recorded + self.overwritten + self.dropped

    @property
    def no_tables(self) -> int:
        """Drops of a process that had no memory to count them by call site."""
        by_site = sum(n for site in self.sites for n in site.dropped.values())
        return max(0, self.dropped - self.torn - by_site)

    @property
    def missing(self) -> int:
        """Events that were emitted and may not be on the time line, whatever the account says."""
        if self.unknown:
            return UNACCOUNTED
        return max(self.overwritten + self.dropped, self.emitted - self.recorded)

    def missing_at(self, entity: str) -> int:
        """The most events of `entity` that may be missing.

        Those that no call site accounts for (overwritten and torn records, an account that does
        not balance or is not whole) may be of any entity.
        """
        if self.unknown:
            return UNACCOUNTED
        by_site = sum(n for site in self.sites for n in site.dropped.values())
        here = sum(n for site in self.sites if site.entity == entity for n in site.dropped.values())
        return here + max(0, self.missing - by_site)


def read_loss(path: Path, repeat: int, host: str) -> list[ProcessLoss]:
    """Reads one `loss.json`.

    Raises `ValueError` (a `KeyError`'s or `TypeError`'s text included) where it is not of the form
    that `schema/trace.md` gives, in either version, or where its totals are not the sums of its
    processes.
    """
    try:
        document = from_json(path.read_text(encoding="utf-8"))
        processes = [_process(each, repeat, host) for each in document["processes"]]
        if (version := document["version"]) not in (1, 2):
            raise ValueError(f"version {version} is not known: 1 and 2 are")
        totals = {key: int(document[key]) for key in ("emitted", "recorded", "dropped", "torn")}
        totals |= {key: int(document.get(key, 0)) for key in ("overwritten", "final")}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    for key, total in totals.items():
        if total != (added := sum(getattr(each, key) for each in processes)):
            raise ValueError(f"{key} is {total}, but its processes' sum is {added}")
    return processes


class KernelGap(NamedTuple):
    """Two values of the counter between which events of a kernel are missing, and how many.

    With 0 its class was not recorded then.
    """

    begin: int
    end: int
    events: int


def kernel_gaps(file: Path) -> dict[str, list[KernelGap]]:
    """When events of a kernel are missing, by class.

    `schema/kernel.md` describes the file, `counts.json`.
    """
    classes = from_json(file.read_text(encoding="utf-8"))["classes"]
    return {
        name: sorted(KernelGap(*gap) for each in processors.values() for gap in each["gaps"])
        for name, processors in classes.items()
    }


def _process(given: Mapping[str, Any], repeat: int, host: str) -> ProcessLoss:
    sites = tuple(
        SiteLoss(
            entity=site["entity"],
            file=site["file"],
            line=int(site["line"]),
            dropped={cause: int(n) for cause, n in site["dropped"].items()},
            filtered=int(site.get("filtered", 0)),
        )
        for site in given["sites"]
    )
    return ProcessLoss(
        repeat=repeat,
        host=host,
        process=given["process"],
        pid=int(given["pid"]),
        emitted=int(given["emitted"]),
        recorded=int(given["recorded"]),
        dropped=int(given["dropped"]),
        torn=int(given["torn"]),
        sites=sites,
        overwritten=int(given.get("overwritten", 0)),
        final=int(given.get("final", 0)),
        unknown=tuple(given.get("unknown", ())),
    )
