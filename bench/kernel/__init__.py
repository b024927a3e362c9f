"""Figures of recording what the kernel does: each by the function that measures it."""

from __future__ import annotations

from kernel import drain, loop, why

FIGURES = {
    "kernel-loop": loop.measure,
    "kernel-drain": drain.measure,
    "kernel-why": why.measure,
}
