import json

import pytest

from loopscope import experiment
from loopscope.experiment import (
    EntityTrigger,
    PathTrigger,
    Stream,
    StreamFilter,
    format_problem,
)

STREAMS = """\
trace:
  user: ["s:*"]
  streams:
    recorder:
      kind: flight-recorder
      entities: ["s:*", "!s:noise"]
      buffer: 4MB
      filters:
        - {entities: "s:out", where: "id % 100 == 0", every: 10, rate: 100}
      triggers:
        - {entities: "s:in", where: "size > 1000"}
        - {path: loop, over: 5ms}
      post: 100ms
      on_death: false
    thin:
      filters:
        - {entities: "*", every: $count}
"""
# The path of the right file ends where it does not begin.
ROUND = ("[a/s:out, b/s:in, b/s:out]", "[a/s:out, b/s:in, b/s:out, a/s:in]")


@pytest.fixture
def streams(changed):
    """The right file with streams, its path a loop; texts replaced as by ``changed``."""

    def change(*replacements):
        text = STREAMS
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new, 1)
        return changed(('trace: {user: ["s:*"]}\n', text), ROUND)

    return change


def test_a_plan_of_streams(streams):
    plan = experiment.load(streams())
    assert plan.trace == ("s:*",)
    recorder, thin = plan.streams
    assert recorder == Stream(
        name="recorder",
        kind="flight-recorder",
        entities=("s:*", "!s:noise"),
        subbuffer=250_000,
        subbuffers=16,
        filters=(StreamFilter("s:out", "id % 100 == 0", 10, 100),),
        triggers=(EntityTrigger("s:in", "size > 1000"), PathTrigger("loop", 5_000_000)),
        post_ns=100_000_000,
        on_death=False,
    )
    assert (thin.kind, thin.entities, thin.subbuffer) == ("normal", ("*",), 2**18)
    assert thin.filters == (StreamFilter("*", None, 10, None),)
    assert experiment.from_manifest(plan.to_manifest()) == plan
    manifest = plan.to_manifest()
    # One of before there were streams.
    del manifest["streams"]
    assert experiment.from_manifest(manifest).streams == ()


@pytest.mark.parametrize("buffer", ["4KiB", "4097B", "1MB", "16GiB"])
def test_a_ring_is_no_smaller_than_the_buffer_and_in_steps_of_8_bytes(streams, buffer):
    stream = experiment.load(streams(("4MB", buffer))).streams[0]
    wanted = experiment.quantity.parse_whole(buffer, experiment.quantity.SIZE)
    assert stream.subbuffer % 8 == 0
    assert wanted <= stream.subbuffer * stream.subbuffers < wanted + 128


# As in test_experiment_mistakes: what to replace, by what with « at the mistake, message, hint.
MISTAKES = {
    "main": ("    thin:", "    «main:", "'main' is the stream of trace.user", None),
    "name": ("    thin:", "    «a/b:", "cannot name a stream", None),
    "kind": ("kind: flight-recorder", "kind: «ring", "'ring' is not known here", None),
    "key": ("      buffer: 4MB", "      «bufer: 4MB", "unknown key 'bufer'", "buffer"),
    "filter key": ("every: 10", "«evry: 10", "unknown key 'evry'", "every"),
    "trigger key": ("over: 5ms", "over: 5ms, «ovr: 1ms", "unknown key 'ovr'", "over"),
    "pattern": ('["s:*", ', '["s", '.replace('"', '«"', 1), "names no event", "s:*"),
    "excluded": ('"!s:noise"', '«"!!s:noise"', "not a pattern", None),
    "buffer": ("4MB", "«4", "no unit", None),
    "small buffer": ("4MB", "«4kB", "at least 4KiB", None),
    "predicate": ("id % 100 == 0", "«id % 100 = 0", "column 10: `==` compares", None),
    "trigger's predicate": ("size > 1000", "«size > 1000MB", "column 12: `ns`, `us`", None),
    "predicate's length": (
        '"size > 1000"',
        "«" + " + ".join(["id"] * 17),
        "at most 32 are allowed",
        None,
    ),
    "filter that filters nothing": (
        '- {entities: "*", every: $count}',
        '- «{entities: "*"}',
        "lets everything through",
        None,
    ),
    "filter of nothing": ('- {entities: "*", every', "- «{every", "'entities' is missing", None),
    "every zero": ("every: 10", "every: «0", "from 1 to", None),
    "trigger": ("{path: loop, over: 5ms}", "«[loop]", "a trigger should be {entities:", None),
    "unknown path": ("path: loop", "path: «lop", "no path 'lop'", "loop"),
    "no deadline": ("{path: loop, over: 5ms}", "«{path: loop}", "'over' is missing", None),
    "deadline": ("over: 5ms", "over: «5", "no unit", None),
    "triggers of a normal stream": (
        "    thin:\n",
        "    thin:\n      triggers: «[]\n",
        "only a flight recorder has triggers",
        None,
    ),
    "post of a normal stream": (
        "    thin:\n",
        "    thin:\n      post: «1ms\n",
        "only a flight recorder has post",
        None,
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_mistake_one_problem(streams, mistake):
    old, new, message, hint = MISTAKES[mistake]
    before = streams((old, new)).read_text(encoding="utf-8").partition("«")[0]
    # A quoted text begins at its quote.
    quoted = before.endswith('"')
    place = (before.count("\n") + 1, len(before) - quoted - before.rfind("\n"))
    found = [p for p in experiment.check(streams((old, new.replace("«", "")))) if p.message]
    errors = [p for p in found if p.severity == "error"]
    told = [p for p in errors if (p.line, p.column) == place and message in p.message]
    assert told, "\n".join(map(format_problem, errors))
    assert told[0].hint == hint
    assert errors == told, "\n".join(map(format_problem, errors))


def test_both_ends_of_a_path_between_hosts_are_told(changed):
    """Without ROUND the path begins on h1 and ends on h2."""
    plan = experiment.load(changed(('trace: {user: ["s:*"]}\n', STREAMS)))
    told = [json.loads(experiment.streams_of_host(plan, host))["deadlines"] for host in plan.hosts]
    ((first,), (last,)) = told
    assert (first["role"], last["role"]) == ("first", "last")
    assert first["first"] == {"process": "a", "entity": "s:out"}
    assert first["last"] == {"process": "b", "entity": "s:out"}
    assert first == {**last, "role": "first"}


def test_a_path_by_another_key_cannot_trigger(changed):
    keyed = ("{events: [a/s:out, b/s:in, b/s:out]}", "{key: n, events: [a/s:out, a/s:in]}")
    (problem,) = experiment.check(changed(('trace: {user: ["s:*"]}\n', STREAMS), keyed))
    assert "goes by n" in problem.message


def test_at_most_thirty_streams(changed):
    many = "".join(f"    s{i}: {{}}\n" for i in range(31))
    text = 'trace:\n  user: ["s:*"]\n  streams:\n' + many
    (problem,) = experiment.check(changed(('trace: {user: ["s:*"]}\n', text)))
    assert "at most 30" in problem.message
    fits = text.replace("    s30: {}\n", "")
    assert experiment.check(changed(('trace: {user: ["s:*"]}\n', fits))) == []


def test_what_a_pattern_takes_out_is_not_recorded(changed):
    path = changed(('["s:*"]', '["s:*", "!s:in"]'))
    (problem,) = experiment.check(path)
    assert "no pattern of trace.user records s:in" in problem.message
    assert experiment.check(changed(('["s:*"]', '["!s:in", "s:*"]'))) == []


def test_a_file_of_streams_may_hold_main(tmp_path):
    path = tmp_path / "streams.yaml"
    path.write_text("main: {entities: ['a:*']}\nlast: {kind: flight-recorder, buffer: 1MiB}\n")
    main, last = experiment.load_streams(path)
    assert (main.name, main.entities, main.kind) == ("main", ("a:*",), "normal")
    assert (last.kind, last.subbuffer * last.subbuffers) == ("flight-recorder", 2**20)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: {bufer: 1MiB}", (1, 5), "unknown key 'bufer'"),
        ("a: {post: 1ms}", (1, 11), "only a flight recorder has post"),
        ("a:\n  filters: [{entities: 'a:*', where: id = 1}]", (2, 38), "`==` compares"),
        (
            "a: {kind: flight-recorder, triggers: [{path: p, over: 1ms}]}",
            (1, 46),
            "there is no path 'p'",
        ),
        ("[a]", (1, 1), "should be a mapping"),
        ("", (1, 1), "the file is empty"),
    ],
)
def test_mistakes_in_a_file_of_streams(tmp_path, text, place, message):
    path = tmp_path / "streams.yaml"
    path.write_text(text)
    with pytest.raises(experiment.ExperimentErrors) as refused:
        experiment.load_streams(path)
    (problem,) = refused.value.problems
    assert (problem.line, problem.column) == place, format_problem(problem)
    assert message in problem.message


def test_what_the_host_side_is_told(streams):
    plan = experiment.load(streams())
    told = json.loads(experiment.streams_of_host(plan, "h1"))
    assert [each["name"] for each in told["streams"]] == ["main", "recorder", "thin"]
    assert told["streams"][1]["triggers"] == [{"entities": "s:in", "where": "size > 1000"}]
    (deadline,) = told["deadlines"]
    assert deadline == {
        "path": "loop",
        "stream": "recorder",
        "first": {"process": "a", "entity": "s:out"},
        "last": {"process": "a", "entity": "s:in"},
        "limit_ns": 5_000_000,
        "role": None,
    }
    # The path ends elsewhere.
    assert json.loads(experiment.streams_of_host(plan, "h2"))["deadlines"] == []


KEPT = "      post: 100ms\n", "      post: 100ms\n      kernel: 1s\n"


def test_a_flight_recorder_may_keep_the_kernels_events(streams):
    plan = experiment.load(streams(KEPT))
    assert [each.kernel_ns for each in plan.streams] == [1_000_000_000, None]
    assert plan.kernel_asked and "sched:sched_switch" in plan.kernel
    assert experiment.from_manifest(plan.to_manifest()) == plan


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (("    thin:\n", "    thin:\n      kernel: 1s\n"), "only a flight recorder has kernel"),
        (
            ("    thin:\n", "    two: {kind: flight-recorder, kernel: 2s}\n    thin:\n"),
            "another flight recorder has the kernel's events",
        ),
        (("trace:\n", "trace:\n  kernel: off\n"), "remove 'kernel: off'"),
        (
            ("trace:\n", "trace:\n  wakeups: {tick: {by: timer}}\n"),
            "told from all of the kernel's events",
        ),
        (("trace:\n", "clocks: synthetic\ntrace:\n"), "synthetic clocks do not have"),
        (("kernel: 1s", "kernel: 2min"), "1min"),
    ],
)
def test_kernel_events_that_cannot_be_kept_are_refused(streams, given, wrong):
    problems = experiment.check(streams(KEPT, given))
    assert any(wrong in each.message for each in problems), problems


def test_a_recording_has_no_kernel(tmp_path):
    file = tmp_path / "streams.yaml"
    file.write_text("last: {kind: flight-recorder, kernel: 1s}\n")
    with pytest.raises(experiment.ExperimentErrors) as raised:
        experiment.load_streams(file)
    assert "in experiments alone" in str(raised.value)
