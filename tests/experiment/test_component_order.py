"""The order of components within a phase: what it is, and what is wrong with it."""

import pytest

from loopscope import experiment

FILE = """
name: ordered
hosts: [h1]
groups: {both: [server, other]}
components:
  server: {host: h1, run: s, ready: phases%(server)s}
  other: {host: h1, run: o, ready: phases, phases: [connect]%(other)s}
  client: {host: h1, run: c, ready: {exit: 0}, start: run%(client)s}
phases:
  - {name: connect, timeout: 1s}
  - {name: run, timeout: 1s}
"""


def load(write, **keys):
    more = {name: ", " + keys[name] if name in keys else "" for name in ("server", "other")}
    client = ", " + keys["client"] if "client" in keys else ""
    return experiment.load(write(FILE % {**more, "client": client}))


def test_a_list_holds_wherever_both_may_have_a_part(write):
    made = load(write, client="after: [both]", other="after: [server]")
    server, other, client = made.components
    assert server.after == {}
    # `other` takes no part in run, and the client starts in it.
    assert client.after == {"run": ("server",)}
    assert other.after == {"": ("server",), "connect": ("server",)}
    assert made.groups == {"both": ("server", "other")}
    assert experiment.from_manifest(made.to_manifest()) == made


def test_a_mapping_holds_in_its_phases_only(write):
    _, other, _ = load(write, other="after: {connect: [server]}").components
    assert other.after == {"connect": ("server",)}


def test_a_group_is_not_after_its_own_member(write):
    server, other, _ = load(write, other="after: [both]").components
    assert (server.after, other.after["connect"]) == ({}, ("server",))


@pytest.mark.parametrize(
    ("keys", "line", "message"),
    [
        ({"other": "after: [servr]"}, 7, "no component or group 'servr'"),
        ({"other": "after: {run: [servr]}"}, 7, "no component or group 'servr'"),
        ({"other": "after: {rum: [server]}"}, 7, "there is no phase 'rum'"),
        ({"other": "after: server"}, 7, "after should be a list of components and groups"),
        ({"other": "after: []"}, 7, "after names nobody"),
        ({"other": "after: {connect: server}"}, 7, "after of phase 'connect' should be a list"),
        ({"other": "after: {run: [server]}"}, 7, "other takes no part in phase run"),
        ({"client": "after: {run: [other]}"}, 8, "other takes no part in phase run"),
        ({"other": "after: [other]"}, 7, "components wait for each other before the first phase"),
        (
            {"other": "after: {connect: [server]}", "server": "after: {connect: [both]}"},
            6,
            "wait for each other in phase connect: server after other after server",
        ),
        ({"client": "background: true"}, 8, "cannot be needed to the end"),
        ({"server": "background: 1"}, 6, "true or false"),
        ({"server": "allow_failure: maybe"}, 6, "true or false"),
    ],
)
def test_what_cannot_be_is_named_with_its_place(write, keys, line, message):
    with pytest.raises(experiment.ExperimentErrors) as errors:
        load(write, **keys)
    assert any(
        problem.line == line and message in problem.message for problem in errors.value.problems
    ), errors.value


COMMON = (
    ("{name: run, timeout: 1s}", "{name: run, timeout: 1s, common_start: 20ms}"),
    ("start: run", "start: connect"),
)


def test_a_common_start_knows_no_order(write):
    text = FILE % {"server": "", "other": "", "client": ", after: [server], phases: [run, connect]"}
    text = text.replace("ready: {exit: 0}", "ready: phases")
    for old, new in COMMON:
        text = text.replace(old, new)
    made = experiment.load(write(text))
    assert made.phases[1].common_start_ns == 20_000_000
    assert made.components[2].after == {"connect": ("server",)}
    with pytest.raises(experiment.ExperimentErrors, match="phase run begins for all at once"):
        experiment.load(write(text.replace("after: [server]", "after: {run: [server]}")))


@pytest.mark.parametrize(
    ("phase", "keys", "message"),
    [
        ("run", "common_start: 0s", "0s is too small: at least 1ms"),
        ("run", "common_start: 1min", "too large: at most 10s"),
        ("run", "common_start: 20", "unit"),
        ("run", "common_start: 1s", "`timeout` has to be longer than this"),
        ("run", "warmup: 2s", "a warm-up belongs to the first phase that is measured"),
    ],
)
def test_a_common_start_and_a_warm_up_are_times_of_a_phase(write, phase, keys, message):
    text = FILE % {"server": "", "other": "", "client": ""}
    text = text.replace(f"name: {phase}, timeout: 1s", f"name: {phase}, timeout: 1s, {keys}")
    with pytest.raises(experiment.ExperimentErrors, match=message):
        experiment.load(write(text))


def test_the_warm_up_is_what_paths_leave_out(write):
    text = FILE % {"server": "", "other": "", "client": ""}
    text = text.replace(
        "name: run, timeout: 1s", "name: run, timeout: 1s, measured: true, warmup: 2s"
    )
    text += "measure:\n  paths:\n"
    events = "key: id, events: [server/a:b, other/a:c]"
    text += f"    whole: {{{events}, trim: 0s}}\n    warm: {{{events}}}\n"
    whole, warm = experiment.load(write(text)).paths
    assert (whole.trim_ns, warm.trim_ns) == (0, 2_000_000_000)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("{both: [servr]}", "no component 'servr'"),
        ("{both: []}", "at least"),
        ("{client: [server]}", "'client' is a component"),
    ],
)
def test_a_group_has_members_and_a_name_of_its_own(write, groups, message):
    text = FILE % {"server": "", "other": "", "client": ""}
    with pytest.raises(experiment.ExperimentErrors, match=message):
        experiment.load(write(text.replace("{both: [server, other]}", groups)))
