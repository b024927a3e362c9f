"""The experiment file: its keys at the top. Those of its sections are in the modules ``model_…``.

Each key is defined once, with its type, unit, default, check and description. The JSON Schema, the
reference page and the checks of files are made from these models. They see the file after the
replacement of parameters.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from . import expect_lines, statement_values, values
from .component_order import check_order
from .event_selection import check_recorded
from .expect_lines import MessageLine, NumberLine
from .file_section import Section, word_or_mapping
from .model_channels import Channel
from .model_clocks import ClockExchange, SyntheticClocks
from .model_components import Component, part_of
from .model_figures import Figure, a_path, statistics_at
from .model_machines import FilePattern, Machine, check_machines
from .model_network import Network, check_subnets
from .model_paths import Measure
from .model_phases import Phase, check_phases
from .model_settings import Settings, check_settings
from .model_trace import Trace
from .pipelines import Pipeline, check_pipelines
from .place import Place
from .quantity import DURATION
from .sweep_points import Sweep
from .values import Integer, Quantity

Text = Annotated[str, values.Text()]
Scalar = str | int | float | bool

# Hosts without a component that are each named; of more there is one warning.
FEW = 3


class ExperimentFile(Section):
    """An experiment: hosts, programs, network, load and deadlines.

    $name and ${name} stand for a parameter in every value but name, description, hosts and
    params; $$ is a dollar sign.
    """

    name: Annotated[str, values.Name("an experiment", 64)] = Field(
        description="Name; also of the folder of its runs."
    )
    description: Text = Field(default="", description="What it is for, in a sentence.")
    testbed: Literal["local", "ssh"] = Field(
        default="local",
        description="Where the hosts come from: local makes each a network namespace of this "
        "machine, ssh takes machines that are there, by their names or as `machines` says.",
    )
    hosts: list[Annotated[str, values.Name("a host", 20)]] = Field(
        min_length=1, description="Names of the hosts. The first is the reference of time."
    )
    settings: Settings = Field(
        default=Settings(),
        description="Settings that this machine has while the run lasts, with `testbed: local`; "
        "with `testbed: ssh` they stand in `machines`.",
    )
    machines: dict[Annotated[str, values.Reference("host")], Machine] = Field(
        default={},
        description="How the machines of hosts are reached with `testbed: ssh`; of no effect with "
        "another testbed.",
    )
    send: list[Annotated[str, FilePattern()]] = Field(
        default=[],
        description="Files that the hosts get before the run with `testbed: ssh`: files and "
        "folders in this file's folder, or patterns such as config/*.yaml. Words of `run` that "
        "begin with ./ and name a file are sent anyway. With `testbed: local` they are there.",
    )
    clocks: Annotated[
        Annotated[Literal["plain", "synthetic"], Tag("<word>")]
        | Annotated[SyntheticClocks, Tag("<mapping>")],
        word_or_mapping("clocks should be plain, synthetic or {synthetic: {seed: N}}"),
    ] = Field(
        default="plain",
        description="plain: the hosts' clocks as they are. synthetic: each host's hidden behind "
        "one with an offset, rate and wander of its own.",
    )
    clock: ClockExchange = Field(
        default=ClockExchange(), description="How the hosts' clocks are compared."
    )
    network: Network = Field(
        default_factory=lambda: Network.model_validate({}), description="The data links."
    )
    params: dict[
        Annotated[str, values.Identifier("a parameter")],
        Annotated[Scalar, values.Single("a parameter")],
    ] = Field(
        default={},
        description="Values to use as $name elsewhere; `run -p name=value` replaces them.",
    )
    components: dict[Annotated[str, values.Name("a component", 40)], Component] = Field(
        min_length=1, description="Programs by role."
    )
    groups: dict[
        Annotated[str, values.Name("a group", 40)],
        Annotated[list[Annotated[str, values.Reference("component")]], Field(min_length=1)],
    ] = Field(
        default={},
        examples=[{"sensors": ["sensor"]}],
        description="Names for several components, to be used in `after`.",
    )
    channels: dict[Annotated[str, values.Name("a channel", 40)], Channel] = Field(
        default={},
        description="Channels of space-time memory by name, which the components of a host share. "
        "What is done with them is recorded as events of the channel's name, such as frames:put, "
        "frames:got, frames:looked, frames:consumed and frames:collected, whose ids are the times "
        "of the items, where `trace` says so.",
    )
    phases: list[Phase] = Field(
        min_length=1,
        description="Stages of the run. Every component ends a phase before the next begins.",
    )
    drain: Annotated[int, Quantity(DURATION, "0s", "1h")] | None = Field(
        default=None,
        description="How long the components go on after the last phase, so that messages on their "
        "way still arrive, such as 1s. Default: as long as the emulated links can hold a message "
        "of any path (delay, jitter and queue, by their slowest settings), and 200ms more.",
    )
    trace: Trace = Field(default=Trace(), description="What is recorded.")
    measure: Measure = Field(
        default=Measure(), description="What is computed from the recorded events."
    )
    expect: list[Annotated[NumberLine | MessageLine, statement_values.Expectation()]] = Field(
        default=[],
        description="Deadlines. Of each message: PATH OP TIME or PATH[EVENT -> EVENT] OP TIME, "
        "such as loop < 10ms; PATH.age OP TIME; PATH[EVENT before EVENT]; PATH in order; PATH "
        "complete; PATH symmetric within TIME; COMPONENT/GROUP:NAME every TIME within TIME. These "
        "may be followed by 'for SHARE%' and, each after a comma, 'no N misses in a row' and 'at "
        "most M misses in any N'. Of one number: PATH.STAT OP VALUE or PATH[EVENT -> EVENT].STAT "
        "OP VALUE, such as loop.p99 < 5ms, COMPONENT/GROUP:NAME.rate OP FREQUENCY, .jitter OP "
        "TIME, or NAME OP VALUE of a value, such as sent_rate >= 90Mbit. All but a value's may be "
        "about a time: 'after TIME' or 'between TIME and TIME', before 'for'. STAT is count "
        "(messages seen at every event), lost (messages seen at the first event and missing at a "
        "later one), duplicates, or of the time from the first event to the last: min, mean, p50, "
        "p90, p99, p999 (also p99.9), max, deviation (standard deviation). Of the messages at the "
        "last event rate (a second, such as 90Hz) and jitter (the longest time between two less "
        "the shortest). Of a branching path also superseded (messages instead of which a "
        "newer one was used); there the times are to the first use, and age is that of the data "
        "at each use, where an event joins. OP is < <= > >= == !=. "
        "HOST.realtime.offset, or hosts.realtime.offset for every host, is how far the host's "
        "CLOCK_REALTIME was from the first host's at most.",
    )
    repeat: Annotated[int, Integer(1, 100_000)] = Field(
        default=1, description="How often the experiment, or each point of its sweep, is run."
    )
    sweep: Annotated[object, Sweep()] | None = Field(
        default=None,
        description="Values that parameters take, one run each: a mapping of parameters to lists "
        "is a grid, run in all combinations, the last parameter's values fastest. A list of "
        "mappings of parameters to values or lists of them puts points and grids together; a point "
        "that comes twice is run once. Each point is judged by itself.",
    )
    table: (
        Annotated[tuple[statement_values.StatisticName, ...], statement_values.Statistics()] | None
    ) = Field(
        default=None,
        description="The statistics that the table of a sweep's points shows, written as in "
        "figures. Default: each path's p50, p99 and lost, and each value.",
    )
    figures: dict[Annotated[str, values.Name("a figure", 64)], Figure] = Field(
        default={}, description="Figures by name; files of that name are made of each."
    )
    analyse: dict[Annotated[str, values.Name("a pipeline", 64)], Pipeline] = Field(
        default={},
        description="Pipelines by name: tables and figures made of the run's, or of all points' of "
        "a sweep, after the others.",
    )

    @classmethod
    def check(cls, at: Place) -> None:
        at.report_repeated("host", [(host.text, host) for host in at.elements("hosts")])
        _check_idle_hosts(at)
        check_subnets(at)
        check_machines(at)
        check_settings(at)
        check_phases(at)
        parts = {name: part_of(place) for name, place in at.entries("components")}
        names = (each.text_at("name") for each in at.elements("phases"))
        check_order(at, parts, [name for name in names if name])
        for item in at.elements("expect"):
            if event := expect_lines.event_of(item.text or ""):
                check_recorded(item, event)
        table = at.get("table")
        if table is not None and at.get("sweep") is None:
            table.report("a table is of the points of a sweep: give sweep, or leave it out")
        for place, column in statistics_at(table):
            if column.is_messages(at.names):
                place.report(a_path(column))
        check_pipelines(at)


def _check_idle_hosts(at: Place) -> None:
    """Warns of hosts that no component runs on, where all hosts of components can be read."""
    used = {component.text_at("host") for _, component in at.entries("components")}
    if not used or None in used or not used <= (at.names.hosts or set()):
        return
    network = at.get("network")
    used.add(network.text_at("router") if network is not None else None)
    hosts = [host for host in at.elements("hosts") if host.text]
    idle = [host for host in hosts if host.text not in used]
    if len(idle) > FEW:
        names = ", ".join(str(host.text) for host in idle[:FEW])
        message = f"no component runs on {len(idle)} of {len(hosts)} hosts: {names}, …"
        idle[0].report(message, severity="warning")
        return
    for host in idle:
        host.report(f"no component runs on the host {host.text!r}", severity="warning")
