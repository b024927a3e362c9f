"""Events of a run that are marked on figures over time. No drawing here.

They are links that changed and flight recorders that were triggered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from loopscope.analysis.measured_links import ports, read_links
from loopscope.analysis.quantity_text import duration, number, quantity
from loopscope.timeline.relation import literals

if TYPE_CHECKING:
    from loopscope.timeline import Run

LINK = "link"
TRIGGER = "trigger"
NAMES = {LINK: "links changed", TRIGGER: "flight recorders triggered"}
"""Text of each kind of mark, in a legend or a caption."""
_TICKS = "ticks at the bottom"
_MOST_LINES = 20
"""More of a kind are short ticks: lines would hide the data."""
_MOST_NAMED = 6
"""Largest number of marks with a number in a printed figure and a text in its caption."""
_APART = 1 / 200
"""Share of the axis: what is nearer to the first of a stroke is in the same stroke."""
TICK = 0.05
"""Height of a tick, of the panel's."""
_BEYOND = 0.02
"""Share of the axis by which a mark may lie before the first or behind the last point."""
_PASSED_ON = ("host", "end")
"""Triggers that are another one's, and those at the end of each recording."""


@dataclass(frozen=True)
class Mark:
    """An instant of a repeat on the global time line."""

    repeat: int
    ts: int
    kind: str
    text: str
    hosts: frozenset[str] | None = None
    """Those that it is about; None: all."""


@dataclass(frozen=True)
class Stroke:
    """Marks of one kind that an eye would not tell apart."""

    seconds: float
    kind: str
    texts: tuple[str, ...]
    count: int
    number: int | None = None
    """In a printed figure; None where there are too many to be named."""


@dataclass(frozen=True)
class Strokes:
    """The marks of a figure over time, in its order."""

    every: tuple[Stroke, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.every)

    def kinds(self) -> list[tuple[str, list[Stroke], bool]]:
        """Each kind that there is, its strokes, and whether they are ticks instead of lines."""
        found = []
        for kind in NAMES:
            strokes = [each for each in self.every if each.kind == kind]
            if strokes:
                found.append((kind, strokes, len(strokes) > _MOST_LINES))
        return found

    def caption(self, forms: Mapping[str, str], named: bool = True) -> str:
        """One sentence for each kind of marks.

        It says how they are drawn (`forms`), how many there are, and if `named` what each numbered
        one is.
        """
        parts = []
        for kind, strokes, ticks in self.kinds():
            form = _TICKS if ticks else forms[kind]
            count = sum(each.count for each in strokes)
            text = f"{form}: {NAMES[kind]}"
            if named and strokes[0].number is not None:
                text += " ("
                text += ", ".join(f"{each.number} {'; '.join(each.texts)}" for each in strokes)
                text += ")"
            elif count > 1:
                text += f", {number(count)} times"
            parts.append(text)
        return "; ".join(parts)


def caption_of(panels: Sequence[Strokes], forms: Mapping[str, str], named: bool) -> str:
    """Caption as `Strokes.caption`, of a figure's panels together."""
    if len(panels) == 1:
        return panels[0].caption(forms, named)
    kinds = [each for panel in panels for each in panel.kinds()]
    parts = []
    for kind, name in NAMES.items():
        drawn = {ticks for each, _, ticks in kinds if each == kind}
        forms_of = [_TICKS if ticks else forms[kind] for ticks in sorted(drawn)]
        if forms_of:
            parts.append(f"{' or '.join(forms_of)}: {name}")
    return "; ".join(parts)


def read_marks(run: Run) -> tuple[Mark, ...]:
    """Every change of a link and every trigger, in the order of time.

    Raises `RunError` where the account of the links cannot be read.
    """
    found = [*_changes(run), *_triggers(run)]
    return tuple(sorted(found, key=lambda mark: (mark.repeat, mark.ts)))


def strokes_over(
    marks: Iterable[Mark],
    origin: Mapping[int, int],
    hosts: Collection[str] | None,
    least: float,
    most: float,
) -> Strokes:
    """The marks for a figure that shows the seconds from `least` to `most`.

    They count from the `origin` of each repeat; repeats without an origin have none. None of the
    `hosts`: all are of interest.
    """
    span = max(most - least, 1e-9)
    placed = []
    for mark in marks:
        of_interest = mark.hosts is None or hosts is None or not mark.hosts.isdisjoint(hosts)
        if mark.repeat in origin and of_interest:
            seconds = (mark.ts - origin[mark.repeat]) / 1e9
            if -_BEYOND * span <= seconds - least and seconds - most <= _BEYOND * span:
                placed.append((seconds, mark))
    placed.sort(key=lambda each: each[0])
    groups: dict[str, list[list[tuple[float, Mark]]]] = {kind: [] for kind in NAMES}
    for seconds, mark in placed:
        of_kind = groups[mark.kind]
        if of_kind and seconds - of_kind[-1][0][0] < _APART * span:
            of_kind[-1].append((seconds, mark))
        else:
            of_kind.append([(seconds, mark)])
    every = sorted((group for of_kind in groups.values() for group in of_kind), key=_first)
    named = len(every) <= _MOST_NAMED
    return Strokes(
        tuple(
            Stroke(
                seconds=group[0][0],
                kind=group[0][1].kind,
                texts=tuple(dict.fromkeys(mark.text for _, mark in group)),
                count=len(group),
                number=place if named else None,
            )
            for place, group in enumerate(every, start=1)
        )
    )


def _first(group: Sequence[tuple[float, Mark]]) -> float:
    return group[0][0]


def _changes(run: Run) -> list[Mark]:
    """Marks of the events `link:set`, each with what differs from the settings before."""
    if "link.set" not in run.tables:
        return []
    asked: dict[tuple[int, str, str], list[Mapping[str, Any]]] = {}
    for link in read_links(run)[0]:
        asked.setdefault((link.repeat, link.sender, link.receiver), []).append(link.asked)
    hosts = ports(run)
    rows = run.relation("link.set").project('repeat, ts, id, "from", "to"').to_arrow_table()
    found = []
    for row in rows.to_pylist():
        names = hosts.get(row["repeat"], [])
        if max(row["from"], row["to"]) >= len(names):
            continue  # the router left no account
        ends = names[row["from"]], names[row["to"]]
        settings = asked.get((row["repeat"], *ends), [])
        what = "changed"
        if 0 < row["id"] < len(settings):
            what = change_text(settings[row["id"] - 1], settings[row["id"]])
        text = f"{ends[0]}→{ends[1]}: {what}"
        found.append(Mark(row["repeat"], row["ts"], LINK, text, frozenset(ends)))
    return found


def _triggers(run: Run) -> list[Mark]:
    """Each trigger once, where it began: it freezes the recorders of all hosts."""
    from loopscope.timeline import RunError

    try:
        table = run.relation("triggers")
    except RunError:  # a time line of an older version
        return []
    began_here = f"cause NOT IN ({literals(*_PASSED_ON)})"
    rows = table.filter(began_here).order("repeat, ts").to_arrow_table()
    found = []
    for row in rows.to_pylist():
        what = {
            "command": "by command",
            "signal": "by SIGUSR1",
            "death": f"end of {row['process'] or 'a program'}",
        }.get(row["cause"], f"{row['entity'] or 'a hit'} {'' if row['id'] is None else row['id']}")
        late = " was late" if row["cause"] == "path" else ""
        text = f"{row['stream']}: {what.strip()}{late}"
        # The end of a program freezes nobody else.
        about = frozenset([row["host"]]) if row["cause"] == "death" else None
        found.append(Mark(row["repeat"], row["ts"], TRIGGER, text, about))
    return found


def change_text(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The settings of a link that differ, as people write them: `delay 200 ms, no loss`."""
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return ", ".join(_setting(key, after.get(key)) for key in keys) or "as before"


def _setting(key: str, value: Any) -> str:
    name = key.removesuffix("_ns").removesuffix("_bps").removesuffix("_bytes")
    if value is None:
        return f"no {name}"
    if key.endswith("_ns"):
        return f"{name} {_short(duration(value))}"
    if key.endswith("_bps"):
        return f"{name} {quantity(value, 'bit/s')}"
    if key.endswith("_bytes") or key == "mtu":
        return f"{name} {quantity(value, 'B')}"
    if isinstance(value, float):
        return f"{name} {value * 100:.4g} %"
    if isinstance(value, str):
        return f"{name} {PurePath(value).name}"
    if key == "jitter":
        return f"jitter {_short(duration(value['ns']))}"
    if key == "loss" and "probability" in value:
        return f"loss {value['probability'] * 100:.4g} %"
    if key == "loss" and "every" in value:
        return f"loss of every {value['every']}."
    if key == "loss":
        return "loss in bursts" if "p" in value else "loss by file"
    return f"other {name}"


def _short(text: str) -> str:
    """A number that was asked for needs no zeros behind the point: `200 ms`."""
    value, _, unit = text.partition(" ")
    return f"{value.rstrip('0').rstrip('.') if '.' in value else value} {unit}"
