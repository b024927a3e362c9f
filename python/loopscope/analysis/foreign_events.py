"""Where an experiment asks of another tool's events what only loopscope's own can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from loopscope.experiment import PathTrigger

if TYPE_CHECKING:
    from loopscope.experiment import Experiment
    from loopscope.timeline import Run


def unsupported_requests(run: Run, experiment: Experiment) -> Iterator[str]:
    """Paths that were to bound clocks or to trigger, and could not.

    They have events that came into the run when it had ended, with stamps of another clock than the
    counter.
    """
    theirs = {table for each in run.foreign for table in each.tables}
    for path in experiment.paths:
        foreign = [str(event) for event in path.events if event.table in theirs]
        if foreign and path.name in experiment.clock.messages:
            yield (
                f"clock: messages: {path.name}: {', '.join(foreign)} was recorded by another tool, "
                "by a clock of its own: such messages bound no clock of a host"
            )
        ends = [str(path.events[end]) for end in (0, -1) if path.events[end].table in theirs]
        for stream in experiment.streams if ends else ():
            if any(isinstance(t, PathTrigger) and t.path == path.name for t in stream.triggers):
                yield (
                    f"stream {stream.name}: no message of {path.name} could trigger it: "
                    f"{', '.join(ends)} was recorded by another tool, and seen after the run"
                )
