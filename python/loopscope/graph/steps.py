"""The computation of each step, by its name. The options are described in ``experiment.steps``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from loopscope.graph import custom_steps, deadline, groups, intervals, joins, outputs, rows
from loopscope.graph.build import Step

STEPS: Final[Mapping[str, Step]] = {
    "select": rows.select,
    "where": rows.where,
    "trim": rows.trim,
    "rename": rows.rename,
    "derive": rows.derive,
    "top": rows.top,
    "window": rows.window,
    "merge": joins.merge,
    "join": joins.join,
    "as-of": joins.as_of,
    "pair": intervals.pair,
    "path": intervals.path,
    "deadline": deadline.deadline,
    "resample": groups.resample,
    "group": groups.group,
    "histogram": groups.histogram,
    "statistics": groups.statistics,
    "narrate": outputs.narrate,
    "plot": outputs.plot,
    "export": outputs.export,
    "python": custom_steps.python,
}
