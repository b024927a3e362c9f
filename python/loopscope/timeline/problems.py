"""Problems that the making of a time line found, in a few lines however many hosts there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FEW = 3
"""Largest number of loops of a kind with a problem each; more of them have one together."""
_NAMED = 5

# As loopscope_clocksync::others::contradiction words it.
_CONTRADICTION = re.compile(
    r"its time and (\S+)'s contradict the probes between the two, at (\d+) of (\d+) instants"
)
_MESH = "clock/mesh/"


@dataclass(frozen=True)
class Problem:
    """A problem with a file of a host, in a repeat."""

    repeat: int
    host: str
    file: str
    what: str

    @property
    def text(self) -> str:
        return f"{self.host}, repeat {self.repeat}: {self.file}: {self.what}"


def problem_lines(found: Mapping[int, Sequence[Mapping[str, str]]]) -> tuple[str, ...]:
    """The problems of each repeat (`problems` of ``summary.json``) as lines.

    Where more than `FEW` loops of two hosts and the reference failed, they are one line with the
    worst and their names; so are those that contradict themselves.
    """
    plain: list[Problem] = []
    failed: list[tuple[float, str, Problem]] = []
    contradicting: list[tuple[float, str, Problem]] = []
    for repeat, problems in found.items():
        for given in problems:
            each = Problem(repeat, given["host"], given["file"], given["what"])
            of = f" (repeat {repeat})" if len(found) > 1 else ""
            if each.file.startswith(_MESH):
                name = f"{each.host} {each.file.removeprefix(_MESH)}{of}"
                failed.append((0, name, each))
            elif match := _CONTRADICTION.search(each.what):
                share = int(match[2]) / int(match[3])
                contradicting.append((share, f"{each.host} {match[1]}{of}", each))
            else:
                plain.append(each)
    lines = [each.text for each in plain]
    for what, loops in (
        ("could not be checked", failed),
        ("contradict themselves", contradicting),
    ):
        if len(loops) <= FEW:
            lines += [each.text for *_, each in loops]
            continue
        (_, worst, problem), *others = sorted(loops, key=lambda loop: -loop[0])
        more = len(others) - (_NAMED - 1)
        names = ", ".join(name for _, name, _ in others[: _NAMED - 1])
        lines.append(
            f"clocks: {len(loops)} loops of two hosts and the reference {what}; of {worst}: "
            f"{problem.what}; also of {names}" + (f" and {more} more" if more > 0 else "")
        )
    return tuple(lines)
