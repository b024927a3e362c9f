"""Whether the main stream records an event."""

from __future__ import annotations

import re

from . import event_values
from .place import Place


def check_recorded(at: Place, event: str, at_key: bool = False) -> None:
    """Reports an event (``group:name``) that no pattern of the main stream records.

    It may have a component; nothing is reported where the patterns are not known. Those that are
    told from the kernel's events are not recorded by programs.
    """
    entity = event.rpartition("/")[2]
    group, _, name = entity.partition(":")
    for key, names in event_values.TOLD.items():
        if group in (given for given, _ in at.whole.entries("trace", key)):
            if name not in names:
                known = " and ".join(f"{group}:{each}" for each in names)
                at.report(f"the events of {group!r} of trace.{key} are {known}", at_key=at_key)
            return
    patterns = _recorded(at.whole)
    if patterns is None or not re.fullmatch(f"{event_values.EVENT}:{event_values.EVENT}", entity):
        return
    if not event_values.chosen(entity, patterns):
        message = f"no pattern of trace.user records {entity}: add {group}:*"
        at.report(message, at_key=at_key)


def _recorded(root: Place) -> list[str] | None:
    """The patterns of what is recorded.

    None: everything, or not readable, or other tools record too.
    """
    if any(component.get("traces") for _, component in root.entries("components")):
        return None
    given = root.get("trace", "user")
    patterns = [item.text for item in root.elements("trace", "user")]
    return None if given is None or None in patterns else [each for each in patterns if each]
