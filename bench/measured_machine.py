"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

CPU0 = Path("/sys/devices/system/cpu/cpu0")


def describe() -> dict[str, object]:
    """Kernel, CPU model, number of CPUs and the caches of the first CPU; null where unknown."""
    return {
        "kernel": f"{platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "model": _model(),
        "caches": _caches(),
    }


def _model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "CPU part"):
            return value.strip()
    return None


def _caches() -> dict[str, str] | None:
    """Sizes by level and type, such as ``{"L1 Data": "48K", "L3 Unified": "32768K"}``."""
    found = {}
    for index in sorted(CPU0.glob("cache/index*")):
        level, kind, size = (
            (index / name).read_text(encoding="utf-8").strip() for name in ("level", "type", "size")
        )
        found[f"L{level} {kind}"] = size
    return found or None


def cpu_time() -> tuple[int, int]:
    """Time of all CPUs since boot, and the part of it that the hypervisor gave to others.

    Both are in clock ticks (proc_stat(5)).
    """
    ticks = _ticks()
    return sum(ticks), ticks[7]


def _ticks() -> list[int]:
    """User nice system idle iowait irq softirq steal; guest time is in the first two."""
    first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    return [int(word) for word in first.split()[1:9]]


def busy_time() -> float:
    """Seconds that all CPUs together were busy, from some instant on.

    They are what is left of all time: kernels without a tick while a CPU is idle measure its idle
    time, but count the other times by ticks, which short work between two of them escapes.
    """
    ticks = _ticks()
    left = ticks[3] + ticks[4] + ticks[7]
    return time.monotonic() * (os.cpu_count() or 1) - left / os.sysconf("SC_CLK_TCK")


def stolen_share(before: tuple[int, int]) -> float | None:
    """The share of all CPUs' time since ``before`` that the hypervisor gave to others."""
    (begin, stolen), (end, now) = before, cpu_time()
    return round((now - stolen) / (end - begin), 5) if end > begin else None
