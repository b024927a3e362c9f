"""`kernel` of a phase: which classes it may have."""

from __future__ import annotations

import pytest

from loopscope import experiment

RUN = "  - {name: run, timeout: 60s, measured: true}"
TRACE = 'trace: {user: ["s:*"]}'


def phase(classes: str) -> tuple[str, str]:
    return RUN, f"  - {{name: run, timeout: 60s, measured: true, kernel: {classes}}}"


def test_a_phase_has_classes_of_its_own(changed):
    plan = experiment.load(changed(phase("[sched, irq]")))
    assert [each.kernel for each in plan.phases] == [None, ("sched", "irq")]
    assert experiment.from_manifest(plan.to_manifest()) == plan
    assert experiment.load(changed(phase("[]"))).phases[1].kernel == ()


@pytest.mark.parametrize(
    ("classes", "trace", "wrong"),
    [
        ("[schedd]", "", "no class of kernel events 'schedd'"),
        ('["sched:*"]', "", "no class of kernel events"),
        ("[udp]", "", "records nothing of it: add udp:* there"),
        ("[irq]", 'kernel: ["sched:*"]', "records nothing of it: add irq:* there"),
        ("[irq]", "kernel: off", "records nothing of it"),
        ("[sched]", "messages: {m: {protocol: udp, to: 7001}}", "are told from drop and udp"),
        ("[sched]", "wakeups: {t: {by: timer}}", "are told from irq: add that"),
    ],
)
def test_classes_that_cannot_be_are_refused(changed, classes, trace, wrong):
    given = TRACE, f'trace: {{user: ["s:*"]{", " + trace if trace else ""}}}'
    problems = experiment.check(changed(phase(classes), given))
    assert any(wrong in each.message for each in problems), problems


def test_turns_of_recording(changed):
    given = TRACE, 'trace: {user: ["s:*"], alternate: 500ms}'
    plan = experiment.load(changed(given))
    assert plan.alternate_ns == 500_000_000 and plan.kernel_asked
    for more, wrong in (
        ("kernel: off", "nothing is recorded"),
        ("wakeups: {t: {by: timer}}", "are told from all"),
        ("streams: {r: {kind: flight-recorder, kernel: 1s}}", "of some times"),
    ):
        both = TRACE, f'trace: {{user: ["s:*"], alternate: 500ms, {more}}}'
        problems = experiment.check(changed(both))
        assert any(wrong in each.message for each in problems), problems
    (problem,) = experiment.check(changed(given, phase("[sched]")))
    assert "of some times" in problem.message
