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
