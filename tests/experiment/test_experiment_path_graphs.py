"""Paths that branch, join, renumber and sample: what the file says, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopscope import experiment
from loopscope.cli import app
from loopscope.experiment import Hop, PathEdge, described
from loopscope.experiment.measures import fields_of

FILE = """\
name: graph
hosts: [h1, h2, h3]
components:
  camera: {host: h1, run: sleep}
  tracker: {host: h2, run: sleep}
  logger: {host: h3, run: sleep}
  controller: {host: h3, run: sleep}
phases:
  - {name: run, timeout: 60s}
measure:
  paths:
    control:
      key: frame
      events:
        - camera/cam:sent
        - {event: logger/cam:received, after: camera/cam:sent}
        - {event: tracker/cam:received, after: camera/cam:sent}
        - {event: tracker/est:made, key: estimate, from: number}
        - controller/est:received
        - {event: controller/act:applied, join: {controller/est:received: latest}}
expect:
  - control[camera/cam:sent -> controller/act:applied].age < 50ms
  - control[camera/cam:sent -> controller/act:applied].rate > 90Hz
  - control[controller/est:received -> controller/act:applied].superseded < 9
  - control[camera/cam:sent -> logger/cam:received].jitter < 1ms
"""


@pytest.fixture
def written(write: Callable[[str], Path]) -> Callable[..., tuple[Path, tuple[int, int] | None]]:
    """The file with texts replaced, and where « stood in the replacements."""

    def change(*replacements: tuple[str, str]) -> tuple[Path, tuple[int, int] | None]:
        text = FILE
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new, 1)
        before, mark, after = text.partition("«")
        place = None
        if mark:
            place = (before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        return write(before + after), place

    return change


def test_a_key_may_be_several_fields(tmp_path: Path) -> None:
    file = tmp_path / "key.yaml"
    file.write_text(FILE.replace("key: frame", "key: [camera, frame]"))
    path = experiment.load(file).paths[0]
    assert path.key == path.keys[0] == path.edges[0].field == "camera, frame"
    assert fields_of(path.key) == ("camera", "frame")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("[]", "a key has one field at least"),
        ("[frame, frame]", "the field 'frame' is there twice"),
        ("[frame, 2]", "this should be text"),
        ("[frame, a-b]", "'a-b' cannot name a field"),
    ],
)
def test_a_key_of_several_fields_that_is_wrong_is_told(
    tmp_path: Path, key: str, message: str
) -> None:
    file = tmp_path / "key.yaml"
    file.write_text(FILE.replace("key: frame", f"key: {key}"))
    with pytest.raises(experiment.ExperimentErrors) as raised:
        experiment.load(file)
    assert [message in each.message for each in raised.value.problems] == [True]


def test_the_plan_says_what_each_event_is_made_of(written) -> None:
    file, _ = written()
    made = experiment.load(file)
    [path] = made.paths
    events = [str(event) for event in path.events]
    assert events == [
        "camera/cam:sent",
        "logger/cam:received",
        "tracker/cam:received",
        "tracker/est:made",
        "controller/est:received",
        "controller/act:applied",
    ]
    assert path.keys == ("frame", "frame", "frame", "estimate", "estimate", None)
    assert path.edges == (
        PathEdge(0, 1, "key", "frame"),
        PathEdge(0, 2, "key", "frame"),
        PathEdge(2, 3, "key", "number"),
        PathEdge(3, 4, "key", "estimate"),
        PathEdge(4, 5, "latest", None),
    )
    assert path.ends == [(0, 1), (0, 5)] and path.sinks == [1, 5]
    assert path.before(5) == {0, 2, 3, 4}
    age, rate, superseded, jitter = made.expectations
    assert (age.kind, age.hop, age.op, age.limit_ns) == ("age", Hop(0, 5), "<", 50_000_000)
    assert (rate.stat, rate.value, rate.is_time) == ("rate", 90.0, False)
    assert (superseded.stat, superseded.value, superseded.is_time) == ("superseded", 9, False)
    assert (jitter.hop, jitter.value, jitter.is_time) == (Hop(0, 1), 1_000_000, True)
    assert experiment.from_manifest(made.to_manifest()) == made
    assert described(path)[3:] == [
        "tracker/est:made follows tracker/cam:received by number; numbered by estimate",
        "controller/est:received follows tracker/est:made by estimate; numbered by estimate",
        "controller/act:applied uses the latest controller/est:received, by time",
    ]


def test_a_list_is_as_it_was(written) -> None:
    lines = FILE[FILE.index("        - {event: logger") : FILE.index("expect:")]
    rest = FILE[FILE.index("expect:") :]
    file, _ = written((lines, "        - {event: logger/cam:received}\n"), (rest, ""))
    [path] = experiment.load(file).paths
    assert (path.edges, path.keys, path.hops, path.loop) == ((), (), [(0, 1)], (0, 1))
    assert described(path) == []


def test_events_may_stand_in_any_order_and_join_in_every_way(written) -> None:
    join = "{controller/est:received: latest}"
    file, _ = written(
        (
            f"{{event: controller/act:applied, join: {join}}}",
            "{event: controller/fused:made, key: step, join: {controller/cam:received: "
            "{window: 5ms}, controller/est:received: {use: latest, from: used}, "
            "controller/set:made: every}}\n"
            "        - {event: controller/cam:received, after: camera/cam:sent}\n"
            "        - {event: controller/set:made, key: step, source: true}",
        ),
        (
            FILE[FILE.index("expect:") :],
            "expect:\n  - control[controller/set:made -> controller/fused:made].p99 < 1ms\n",
        ),
    )
    assert experiment.check(file) == []
    [path] = experiment.load(file).paths
    events = [str(event) for event in path.events]
    at = events.index("controller/fused:made")
    into = {events[edge.start]: edge for edge in path.edges if edge.end == at}
    assert all(edge.start < edge.end for edge in path.edges)
    assert {name: (e.use, e.field, e.window_ns) for name, e in into.items()} == {
        "controller/cam:received": ("window", None, 5_000_000),
        "controller/est:received": ("latest", "used", None),
        "controller/set:made": ("every", "step", None),
    }
    assert len(path.ends) == 3


LATEST = "{controller/est:received: latest}"
MISTAKES = {
    "unknown event": (
        (
            "after: camera/cam:sent}\n        - {event: tr",
            "after: «camera/cam:snt}\n        - {event: tr",
        ),
        "has no event 'camera/cam:snt'",
        "camera/cam:sent",
    ),
    "unknown joined event": (
        (LATEST, "{«controller/est:receved: latest}"),
        "no event 'controller/est:receved'",
        "controller/est:received",
    ),
    "unknown component": (
        ("tracker/est:made", "trucker/est:made"),
        "no component 'trucker'",
        "tracker",
    ),
    "circle": (
        ("- camera/cam:sent", "- {event: camera/cam:sent, after: «tracker/est:made}"),
        "these events wait for each other: camera/cam:sent after tracker/est:made after tracker",
        None,
    ),
    "of itself": ((LATEST, "{controller/act:applied: latest}"), "wait for each other", None),
    "which number": (
        ("key: estimate, from: number", "key: «estimate"),
        "numbered by estimate and tracker/cam:received by frame",
        None,
    ),
    "no input": (("join: " + LATEST, "join: «{}"), "joins nothing", None),
    "no such way": ((": latest", ": «lates"), "'lates' is not known here", "latest"),
    "two ways": (
        (LATEST, "{«controller/est:received: {use: latest, window: 5ms}}"),
        "one of them",
        None,
    ),
    "no way": ((LATEST, "{«controller/est:received: {from: used}}"), "one of them", None),
    "window without unit": ((": latest", ": {window: «100}"), "has no unit", None),
    "field of a window": (
        (": latest", ": {window: 5ms, from: «used}"),
        "no field can name the one",
        None,
    ),
    "elsewhere": (
        (LATEST, "{«tracker/est:made: latest}"),
        "is on h2 and controller/act:applied on h3: join the event of its arrival",
        None,
    ),
    "apart": (
        (
            "- {event: tracker/cam:received, after: camera/cam:sent}",
            "- «{event: tracker/cam:received, source: true}",
        ),
        "nothing connects tracker/cam:received with camera/cam:sent",
        None,
    ),
    "after and join": (
        ("applied, join", "applied, after: camera/cam:sent, join"),
        "has after and join",
        None,
    ),
    "from of a join": (
        ("applied, join", "applied, from: «used, join"),
        "from is of an event that follows one other",
        None,
    ),
    "from of nothing": (
        ("- camera/cam:sent", "- {event: camera/cam:sent, from: «frame}"),
        "comes after nothing",
        None,
    ),
    "twice": (("- controller/est:received", "- «tracker/est:made"), "in the path twice", None),
    "without a number": (
        (
            LATEST + "}",
            LATEST + "}\n        - {event: logger/act:seen, after: «controller/act:applied}",
        ),
        "have no number to know them by: give it a key",
        None,
    ),
    "misspelt key": (("from: number", "«form: frame, from: number"), "unknown key 'form'", "from"),
    "neither text nor mapping": (
        ("- controller/est:received", "- «[a]"),
        "an event is written",
        None,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_at_its_place(written, name: str) -> None:
    replacement, message, hint = MISTAKES[name]
    file, place = written(replacement)
    found = [each for each in experiment.check(file) if each.path.startswith("measure")]
    assert message in found[0].message, found
    if place is not None:
        assert (found[0].line, found[0].column) == place, found
    if hint is not None:
        assert found[0].hint == hint
    assert len(found) == 1 or name in ("of itself", "two ways", "twice"), found


EXPECTED = {
    "several ends": (
        "control.p99 < 5ms",
        "has 2 ends (logger/cam:received, controller/act:applied)",
    ),
    "backwards": (
        "control[tracker/est:made -> camera/cam:sent].p99 < 5ms",
        "nothing leads from tracker/est:made to camera/cam:sent",
    ),
    "beside": (
        "control[logger/cam:received -> controller/act:applied].p99 < 5ms",
        "nothing leads from logger/cam:received to",
    ),
    "asymmetry": ("control.asymmetry < 5ms", "has 2 ends"),
    "a time": ("control[camera/cam:sent -> logger/cam:received].age < 5", "has no unit"),
    "a rate": ("control[camera/cam:sent -> logger/cam:received].rate < 5ms", "frequency"),
    "a count": (
        "control[camera/cam:sent -> controller/act:applied].superseded < 5ms",
        "superseded is a count",
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_expectation_names_what_there_is(written, name: str) -> None:
    line, message = EXPECTED[name]
    file, _ = written((FILE[FILE.index("expect:") :], f"expect:\n  - {line}\n"))
    [found] = experiment.check(file)
    assert message in found.message and found.path == "expect[0]"


BESIDE = {
    "subtract_cost": ("  paths:\n", "  subtract_cost: true\n  paths:\n", "lists of events only"),
    "trigger": (
        "measure:\n",
        "trace:\n  streams:\n    late: {kind: flight-recorder, triggers: "
        "[{path: control, over: 5ms}]}\nmeasure:\n",
        "only a list of events can trigger",
    ),
    "clock": (
        "measure:\n",
        "clock: {messages: [control]}\nmeasure:\n",
        "only messages of a list of events bound clocks",
    ),
    "figure": (
        "expect:",
        "figures: {f: {x: time, y: control}}\nexpect:",
        "'control' has 2 ends (logger/cam:received, controller/act:applied): say which",
    ),
    "not recorded": (
        "measure:\n",
        'trace: {user: ["cam:*", "act:*"]}\nmeasure:\n',
        "no pattern of trace.user records est:made",
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_of_lists_only_is_refused(written, name: str) -> None:
    old, new, message = BESIDE[name]
    file, _ = written((old, new))
    found = experiment.check(file)
    assert any(message in each.message for each in found), found


APPLIED = "control[camera/cam:sent -> controller/act:applied]"
SHOWN = {
    "times": (f'x: time, y: "{APPLIED}"', None),
    "ages": (f'x: time, y: "{APPLIED}.age"', None),
    "both": (f'x: time, y: ["{APPLIED}", "{APPLIED}.age"]', None),
    "a statistic": (f'x: n, y: "{APPLIED}.age"', None),
    "of messages": (f'x: n, y: "{APPLIED}.rate"', None),
    "a statistic over time": (f'x: time, y: "{APPLIED}.p99"', f"a path or a value: {APPLIED}"),
    "no number": (f'x: n, y: "{APPLIED}"', f"{APPLIED} is a path: name one of its statistics"),
    "no bar": (f'x: n, y: "{APPLIED}.mean", error: "{APPLIED}"', "name one of its statistics"),
    "no age": ('x: time, y: "control[camera/cam:sent -> logger/cam:received].age"', "age is one"),
    "nothing": ('x: time, y: "control[logger/cam:received -> controller/act:applied]"', "nothing"),
    "two units": (f'x: n, y: ["{APPLIED}.rate", "{APPLIED}.age"]', "cannot show Hz and ns"),
}


def errors(file) -> list[experiment.Problem]:
    """Without the warning that nothing uses the swept parameter."""
    return [each for each in experiment.check(file) if each.severity == "error"]


@pytest.mark.parametrize("name", SHOWN)
def test_figures_show_graphs(written, name: str) -> None:
    figure, message = SHOWN[name]
    sections = f"params: {{n: 1}}\nsweep: {{n: [1, 2]}}\nfigures: {{f: {{{figure}}}}}\nexpect:"
    file, _ = written(("expect:", sections))
    found = errors(file)
    if message is None:
        assert not found, found
        y = experiment.load(file).figures[0].y
        assert {each.hop for each in y} == {experiment.Hop(0, 5)}
    else:
        assert len(found) == 1 and message in found[0].message, found


@pytest.mark.parametrize(
    "stat", ["age", "rate", "jitter", "superseded", "lost", "settling", "mean", "p99.9"]
)
def test_tables_show_graphs(written, stat: str) -> None:
    sections = f'params: {{n: 1}}\nsweep: {{n: [1, 2]}}\ntable: ["{APPLIED}.{stat}"]\nexpect:'
    file, _ = written(("expect:", sections))
    assert not errors(file)


@pytest.mark.parametrize("line", ["control.superseded == 0"])
def test_what_joins_have_is_of_graphs(write, line: str) -> None:
    lines = FILE[FILE.index("        - {event: logger") : FILE.index("expect:")]
    text = FILE.replace(lines, "        - logger/cam:received\n")
    [found] = experiment.check(write(text[: text.index("expect:")] + f"expect: [{line}]\n"))
    assert "is of a branching path; 'control' is a list of events" in found.message


def test_check_tells_what_each_event_is_made_of(written) -> None:
    file, _ = written()
    told = CliRunner().invoke(app, ["check", str(file)])
    [path] = experiment.load(file).paths
    assert told.exit_code == 0
    assert told.stdout.splitlines() == [
        f"{file}: good",
        "path control:",
        *(f"  {line}" for line in described(path)),
    ]
    as_json = json.loads(CliRunner().invoke(app, ["check", str(file), "--json"]).stdout)
    assert as_json["graphs"] == {"control": described(path)}
