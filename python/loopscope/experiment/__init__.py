"""The experiment file: its keys, its checks, and the plan that it stands for.

>>> experiment = load("experiments/pipeline.yaml", {"period": "1ms"})
>>> experiment.phases[0].timeout_ns
5000000000

The parsers are imported at first use, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .acceleration import Acceleration
from .acceleration import service as acceleration_service
from .channel import LAYERS, Channel, channels_document, service
from .machine_settings import MachineSettings
from .measures import (
    Allowed,
    Expectation,
    Figure,
    Hop,
    MessageType,
    MissesIn,
    PathEdge,
    PathEvent,
    Pattern,
    Requirement,
    Statistic,
    TimeWindow,
    Value,
)
from .measures import Path as MessagePath
from .path_text import described
from .plan import (
    AnalysisStep,
    ClockExchange,
    Clocks,
    Component,
    Emulation,
    EntityTrigger,
    ExitReady,
    Experiment,
    ForeignTrace,
    Graph,
    LineReady,
    Link,
    LinkStep,
    Machine,
    Network,
    PathTrigger,
    Phase,
    PhasesReady,
    Pipeline,
    Point,
    PortReady,
    Readiness,
    RealtimeStep,
    StartedReady,
    Stream,
    StreamFilter,
)
from .problem import ExperimentErrors, Problem, format_problem
from .sent_files import files_to_send
from .sent_files import matches as files_that_match
from .streams import main_stream, streams_document, streams_of_host

if TYPE_CHECKING:
    from .document import check, from_text, load, load_text, place_in
    from .emulated_links import document as links_document
    from .graph_file import is_graph, load_graph, read_graph
    from .live_link_change import link_change
    from .manifest import from_manifest
    from .schema import experiment_schema as json_schema
    from .schema import graph_schema, manifest_schema
    from .streams_file import check_pattern, load_streams, stream_filter

__all__ = [
    "LAYERS",
    "Acceleration",
    "Allowed",
    "AnalysisStep",
    "Channel",
    "ClockExchange",
    "Clocks",
    "Component",
    "Emulation",
    "EntityTrigger",
    "ExitReady",
    "Expectation",
    "Experiment",
    "ExperimentErrors",
    "Figure",
    "ForeignTrace",
    "Graph",
    "Hop",
    "LineReady",
    "Link",
    "LinkStep",
    "Machine",
    "MachineSettings",
    "MessagePath",
    "MessageType",
    "MissesIn",
    "Network",
    "PathEdge",
    "PathEvent",
    "PathTrigger",
    "Pattern",
    "Phase",
    "PhasesReady",
    "Pipeline",
    "Point",
    "PortReady",
    "RealtimeStep",
    "Problem",
    "Readiness",
    "Requirement",
    "StartedReady",
    "Statistic",
    "Stream",
    "StreamFilter",
    "TimeWindow",
    "Value",
    "acceleration_service",
    "check",
    "channels_document",
    "check_pattern",
    "described",
    "files_that_match",
    "files_to_send",
    "format_problem",
    "from_manifest",
    "from_text",
    "graph_schema",
    "is_graph",
    "json_schema",
    "link_change",
    "links_document",
    "load",
    "load_graph",
    "load_streams",
    "load_text",
    "main_stream",
    "manifest_schema",
    "place_in",
    "read_graph",
    "service",
    "stream_filter",
    "streams_document",
    "streams_of_host",
]

_AT_FIRST_USE: Final = {
    "check": ("document", "check"),
    "check_pattern": ("streams_file", "check_pattern"),
    "from_manifest": ("manifest", "from_manifest"),
    "from_text": ("document", "from_text"),
    "graph_schema": ("schema", "graph_schema"),
    "is_graph": ("graph_file", "is_graph"),
    "json_schema": ("schema", "experiment_schema"),
    "link_change": ("live_link_change", "link_change"),
    "links_document": ("emulated_links", "document"),
    "load": ("document", "load"),
    "load_graph": ("graph_file", "load_graph"),
    "load_streams": ("streams_file", "load_streams"),
    "load_text": ("document", "load_text"),
    "manifest_schema": ("schema", "manifest_schema"),
    "place_in": ("document", "place_in"),
    "read_graph": ("graph_file", "read_graph"),
    "stream_filter": ("streams_file", "stream_filter"),
}
"""Functions of this package: the modules that they are in, and their names there."""


# mypy would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _AT_FIRST_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, function = _AT_FIRST_USE[name]
        return getattr(import_module(f".{module}", __name__), function)
