"""Figures of how runs are made, controlled and ended: each by the function that measures it."""

from __future__ import annotations

from control import around, barriers, death, hosts, scale, skew

FIGURES = {
    "hosts": hosts.up_and_down,
    "components": hosts.components,
    "barriers": barriers.measure,
    "around": around.measure,
    "death": death.measure,
    "skew": skew.measure,
    "scale": scale.measure,
}
