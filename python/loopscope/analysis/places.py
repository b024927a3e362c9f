"""Where messages were at an event: on which host, in which thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loopscope.experiment.measures import fields_of
from loopscope.timeline.relation import literals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loopscope.analysis.messages import Messages
    from loopscope.timeline import Run


class Place(NamedTuple):
    """Where a message was at an event."""

    host: str
    tid: int | None
    counter: int | None
    next: int | None
    """The global time of the thread's next event of the kind, of another message."""
    id: Any
    """The event's id; None: it has none."""


def read_places(
    run: Run, messages: Messages, rows: Sequence[int], number: int
) -> dict[tuple[int, int], Place]:
    """Where messages were at an event, by repeat and global time."""
    event = messages.path.events[number]
    seen = [row for row in rows if messages.seen[number][row]]
    if not seen:
        return {}
    times = ", ".join(str(ts) for ts in messages.ts[number][seen].tolist())
    table = run.relation(event.table).filter(f"process = {literals(event.component)}")
    # Where the path branches its messages may have other numbers there.
    fields = [field for field in fields_of(messages.path.key) if field in table.columns]
    key = ", ".join(f'"{field}"' for field in fields or ("ts",))
    of_thread = "PARTITION BY repeat, host, tid ORDER BY ts"
    # A program may record a message again.
    before = f"lag(row({key})) OVER ({of_thread})"
    id = "id" if "id" in table.columns else "NULL AS id"
    table = table.project(
        f"repeat, ts, host, tid, counter, {id}, row({key}) IS DISTINCT FROM {before} AS another"
    )
    other = "min(CASE WHEN another THEN ts END)"
    after = f"{other} OVER ({of_thread} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)"
    found = table.project(f"repeat, ts, host, tid, counter, {after} AS next, id")
    found = found.filter(f"ts IN ({times})")
    return {(repeat, ts): Place(*place) for repeat, ts, *place in found.fetchall()}
