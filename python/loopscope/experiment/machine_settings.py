"""Settings that a machine has while a run lasts, as resolved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_UNITS: Final = {"mtu": " B", "txqueuelen": " packets", "gro_flush_timeout": " ns"}


@dataclass(frozen=True)
class MachineSettings:
    """Values by setting; what is empty stays as it is.

    ``governor`` is of all processors, ``interrupts`` a list of processors such as ``0-1,3``.
    ``interfaces`` has by network interface the values of its settings; times are in nanoseconds,
    sizes in bytes.
    """

    governor: str = ""
    interrupts: str = ""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    interfaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def shown(self) -> Iterator[tuple[str, str]]:
        """Every setting, as its keys in the experiment file with dots, and its value with unit."""
        for name, value in (("governor", self.governor), ("interrupts", self.interrupts)):
            if value:
                yield name, value
        yield from self.sysctls.items()
        for interface, values in self.interfaces.items():
            for name, value in values.items():
                yield f"{interface}.{name}", value + _UNITS.get(name, "")
