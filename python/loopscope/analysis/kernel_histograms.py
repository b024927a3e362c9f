"""The histograms that kernels kept, with the threads' components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from loopscope.analysis.kernel_result import HistogramSlot, KernelHistogram
from loopscope.analysis.threads import Threads
from loopscope.timeline.kernel_counts import read_counts

if TYPE_CHECKING:
    from loopscope.timeline import Run


def read_histograms(run: Run) -> list[KernelHistogram]:
    """The histograms of all repeats and kernels, those of the most time first.

    Raises `RunError` where a table cannot be read.
    """
    found = [
        each
        for repeat, kernels in run.kernels.items()
        for kernel, of in kernels.items()
        if "recorded" in of
        for each in _of_kernel(run, repeat, kernel)
    ]
    return sorted(found, key=lambda each: -each.sum_ns)


def missed(run: Run) -> list[str]:
    """A problem for each kernel whose histograms lack waits."""
    return [
        f"{kernel}, repeat {repeat}: {count} waits for a processor are in no histogram: a kernel "
        "keeps those of 4096 threads"
        for repeat, kernels in run.kernels.items()
        for kernel, of in kernels.items()
        if "recorded" in of and (count := _kept(run, repeat, kernel).get("missed"))
    ]


def _kept(run: Run, repeat: int, kernel: str) -> dict[str, Any]:
    """The histograms of a kernel; empty: it kept none."""
    return read_counts(run.repeats[repeat], kernel).get("histograms") or {}


def _of_kernel(run: Run, repeat: int, kernel: str) -> Iterator[KernelHistogram]:
    kept = _kept(run, repeat, kernel)
    if not kept:
        return
    threads = Threads(run, repeat, kernel)
    for each in kept["run_queue"]:
        kind = "preempted" if each["preempted"] else "woken"
        name = threads.named(each["tid"], each["name"], each["process"])
        yield _histogram(repeat, kernel, kind, name, each["waits"])
    for each in kept["softirq"]:
        name = f"{each['name']} on cpu{each['processor']}"
        yield _histogram(repeat, kernel, "softirq", name, each["times"])


def _histogram(
    repeat: int, kernel: str, kind: str, of: str, kept: Mapping[str, Any]
) -> KernelHistogram:
    slots = tuple(HistogramSlot(*slot) for slot in kept["slots"])
    largest = kept["largest_ns"]
    return KernelHistogram(
        repeat,
        kernel,
        kind,
        of,
        kept["count"],
        kept["sum_ns"],
        min(_percentile(slots, 50), largest),
        min(_percentile(slots, 99), largest),
        largest,
        slots,
    )


def _percentile(slots: tuple[HistogramSlot, ...], percent: int) -> int:
    """The end of the slot in which a percentile is."""
    left = sum(slot.count for slot in slots) * percent / 100
    for slot in slots:
        left -= slot.count
        if left <= 0:
            return slot.below_ns
    return 0
