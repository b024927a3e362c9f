"""Components of command lines: one for each phase."""

import pytest

from loopscope import experiment

FILE = """
name: wrapped
params: {many: 3, words: a b}
hosts: [h1]
components:
  w: {host: h1, %s}
phases:
  - {name: connect, timeout: 1s}
  - {name: run, timeout: 1s}
"""


def test_each_phase_has_its_words_behind_the_wrapper(write):
    keys = "commands: {run: [sh, $words, 1.50], configure: bin/make $many, connect: ../x $words}"
    made = experiment.load(write(FILE % keys))
    (component,) = made.components
    assert component.argv == (
        *("loopscope-host", "commands"),
        *("run", "3", "sh", "a b", "1.50"),
        # As a program's own path, from the folder of the file.
        *("configure", "2", "./bin/make", "3"),
        *("connect", "2", "../x", "a b"),
    )
    assert component.commands["connect"] == ("../x", "a b")
    assert component.phases == ("connect", "run")
    assert component.ready.rule == "phases"
    assert experiment.from_manifest(made.to_manifest()) == made


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("env: {A: 1}", "the key 'run' is missing"),
        ("commands: {}", "commands has no phase"),
        ("commands: {rum: 'true'}", "there is no phase 'rum'"),
        ("commands: {run: ''}", "a command names no program"),
        ("commands: {run: a | b}", "'|' needs a shell"),
        ("commands: {run: 5}", "a command should be a command line or a list of words"),
        ("commands: {run: 'true'}, run: 'true'", "give one of them"),
        ("commands: {run: 'true'}, with: {a: 1}", "with is not for commands"),
        ("commands: {run: 'true'}, phases: [run]", "phases is not for commands"),
        ("commands: {run: 'true'}, ready: started", "ready is not for commands"),
        ("commands: {run: 'true'}, after: {connect: [w]}", "w takes no part in phase connect"),
    ],
)
def test_what_is_no_command_is_named(write, keys, message):
    with pytest.raises(experiment.ExperimentErrors) as errors:
        experiment.load(write(FILE % keys))
    assert message in str(errors.value)


def test_programs_of_commands_are_looked_up(write):
    from loopscope.api.checking import check

    problems, _ = check(write(FILE % "commands: {run: no-such-program}"), {})
    found = [(p.path, p.message) for p in problems if p.severity == "error"]
    assert found == [("components.w.commands.run", "there is no program no-such-program in PATH")]
