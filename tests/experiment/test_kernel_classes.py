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


def test_what_is_recorded_alone(changed):
    only = "kernel_filters: {ports: [7001, 7002], devices: [data0], calls_over: 100us}"
    given = TRACE, f'trace: {{user: ["s:*"], kernel: ["udp:*", "call:*"], {only}}}'
    plan = experiment.load(changed(given))
    filters = plan.kernel_filters
    assert filters is not None and filters.ports == (7001, 7002)
    assert (filters.devices, filters.shortest_call_ns) == (("data0",), 100_000)
    assert experiment.from_manifest(plan.to_manifest()) == plan
    assert experiment.load(changed((TRACE, 'trace: {user: ["s:*"]}'))).kernel_filters is None


@pytest.mark.parametrize(
    ("kernel", "filters", "wrong"),
    [
        ('["sched:*"]', "ports: [7001]", "it is about tcp:* or udp:* or drop:*, which"),
        ("off", "ports: [7001]", "which 'kernel' does not record"),
        ("auto", "devices: [data0]", "it is about tcp:* or udp:*, which"),
        ("auto", "calls_over: 1ms", "it is about call:*, which"),
        ("full", "calls_over: 1", "1"),
        ("full", "ports: [70000]", "70000"),
        ("full", "devices: [a-name-of-a-device]", "at most 15 bytes"),
        ("full", "port: [1]", "port"),
        ("[]", "ports: [1], messages: {m: {protocol: udp, to: 7001}}", "leaves out port 7001"),
        ("[]", "devices: [d], messages: {m: {protocol: udp, to: 1}}", "remove 'devices'"),
    ],
)
def test_filters_that_cannot_be_are_refused(changed, kernel, filters, wrong):
    filters, _, messages = filters.partition(", messages")
    more = f", messages{messages}" if messages else ""
    text = f'trace: {{user: ["s:*"], kernel: {kernel}, kernel_filters: {{{filters}}}{more}}}'
    problems = experiment.check(changed((TRACE, text)))
    assert any(wrong in each.message for each in problems), problems


def test_filters_of_what_anybody_may_record_are_taken(changed):
    for kernel, filters in (("auto", "ports: [1]"), ("full", "ports: [1], calls_over: 1ms")):
        text = f'trace: {{user: ["s:*"], kernel: {kernel}, kernel_filters: {{{filters}}}}}'
        assert experiment.load(changed((TRACE, text))).kernel_filters is not None
