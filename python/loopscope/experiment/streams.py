"""Streams that the host side records: the document of ``schema/streams.md``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loopscope.strict_json import to_json

from .measures import Path, PathEvent
from .plan import MAIN, EntityTrigger, Experiment, PathTrigger, Stream

_VERSION = 1
SOCKET_STAMPS = ("socket:came", "socket:left")
"""The events with the kernel's stamps of messages that a program has received and sent."""


def streams_document(
    streams: Iterable[Stream], paths: Iterable[Path] = (), host: str | None = None
) -> str:
    """The document for these streams, with the deadlines that they have for these paths.

    ``host`` is whom it is for: where a path begins or ends elsewhere it is told which end it has.
    """
    made = [_stream(each) for each in streams]
    deadlines = [
        {
            "path": path.name,
            "stream": stream.name,
            "first": _point(path.events[0]),
            "last": _point(path.events[-1]),
            "limit_ns": trigger.over_ns,
            "role": _role(path, host),
        }
        for stream in streams
        for trigger in stream.triggers
        if isinstance(trigger, PathTrigger)
        for path in paths
        if path.name == trigger.path
    ]
    return to_json({"version": _VERSION, "streams": made, "deadlines": deadlines})


def streams_of_host(experiment: Experiment, host: str, *, socket_stamps: bool = False) -> str:
    """Streams of a host's components; empty where nothing is recorded.

    ``socket_stamps``: what the file says is recorded, and when messages left and came to sockets.
    """
    more = SOCKET_STAMPS if socket_stamps else ()
    streams = [main_stream((*experiment.trace, *more))] if experiment.trace else []
    streams += experiment.streams
    paths = [path for path in experiment.paths if host in _ends(path)]
    return streams_document(streams, paths, host) if streams else ""


def main_stream(entities: Iterable[str]) -> Stream:
    """The stream of a trace that asks for nothing but entities."""
    # 4 MiB for each thread in 16 parts.
    return Stream(
        name=MAIN,
        kind="normal",
        entities=tuple(entities),
        subbuffer=2**18,
        subbuffers=16,
        filters=(),
        triggers=(),
        post_ns=0,
        on_death=True,
    )


def _ends(path: Path) -> tuple[str, str]:
    return path.events[0].host, path.events[-1].host


def _role(path: Path, host: str | None) -> str | None:
    first, last = _ends(path)
    if first == last:
        return None
    return "first" if host == first else "last"


def _point(event: PathEvent) -> dict[str, str]:
    return {"process": event.component, "entity": event.entity}


def _stream(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "kind": stream.kind,
        "entities": list(stream.entities),
        "subbuffer": stream.subbuffer,
        "subbuffers": stream.subbuffers,
        "filters": [
            {
                "entities": each.entities,
                "where": each.where,
                "every": each.every,
                "rate": each.rate,
            }
            for each in stream.filters
        ],
        "post_ns": stream.post_ns,
        "triggers": [
            {"entities": each.entities, "where": each.where}
            for each in stream.triggers
            if isinstance(each, EntityTrigger)
        ],
        "on_death": stream.on_death,
    }
