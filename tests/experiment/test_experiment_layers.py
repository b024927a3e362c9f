"""Values of the layers of threads at channels: what the plan has of them, and mistakes."""

from __future__ import annotations

import pytest

from loopscope import experiment

HOSTS = "hosts: ["
CHANNELS = (HOSTS, f"channels: {{frames: {{home: h1, item: 300kB}}}}\n{HOSTS}")
VALUE = "  values:\n    runtime: {layer: runtime_cpu, stat: share}\n"


def test_a_layers_value_has_its_unit_and_can_be_expected(changed):
    values = VALUE + "    blocked: {layer: blocked, stat: sum}\n"
    expected = "  - loop.lost == 0\n"
    path = changed(
        CHANNELS,
        ("measure:\n", f"measure:\n{values}"),
        (expected, f"{expected}  - runtime < 2%\n  - blocked < 5ms\n"),
    )
    plan = experiment.load(path)
    runtime, blocked = plan.values
    assert (runtime.layer, runtime.stat, runtime.unit) == ("runtime_cpu", "share", "%")
    assert (blocked.layer, blocked.stat, blocked.unit) == ("blocked", "sum", "ns")
    limits = {each.path: each.value for each in plan.expectations if each.stat is None}
    assert limits == {"runtime": 2, "blocked": 5_000_000}
    assert experiment.from_manifest(plan.to_manifest()) == plan


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("stat: share", "stat: mean", "a layer has sum and share, and no mean"),
        ("runtime_cpu", "runtimes", "runtime"),
        ("stat: share", "stat: share, unit: '%'", "leave unit out"),
        ("stat: share", "stat: share, component: a", "leave component out"),
        ("layer: runtime_cpu", "layer: runtime_cpu, of: 's:out'", "this has both"),
        ("layer: runtime_cpu, ", "", "this has neither"),
        ("layer: runtime_cpu", "of: 's:out'", "share is of a layer"),
    ],
)
def test_mistakes_are_told(changed, old, new, message):
    value = VALUE.replace(old, new)
    assert value != VALUE
    problems = experiment.check(changed(CHANNELS, ("measure:\n", f"measure:\n{value}")))
    assert any(message in problem.message for problem in problems), problems


def test_without_channels_there_are_no_layers(changed):
    (problem,) = experiment.check(changed(("measure:\n", f"measure:\n{VALUE}")))
    assert "the experiment has no channels" in problem.message


def test_a_layer_has_no_course_over_time(changed):
    figure = "figures: {course: {x: time, y: runtime}}\n"
    path = changed(CHANNELS, ("measure:\n", f"{figure}measure:\n{VALUE}"))
    (problem,) = experiment.check(path)
    assert "has no course" in problem.message
