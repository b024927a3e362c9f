"""`trace.messages` and `trace.wakeups`: what the plan has of them, and what a path may do."""

from __future__ import annotations

from loopscope import experiment

GIVEN = (
    '["s:*"]',
    (
        '["s:*"], messages: {cmd: {protocol: udp, to: 7001, number: {offset: 4B, order: big}}, '
        "ack: {protocol: tcp, from: 7002, number: order}}"
    ),
)
EVENTS = "[a/s:out, b/s:in, b/s:out]", "[a/cmd:sent, b/cmd:received]"


def test_their_protocols_events_are_recorded_and_asked_for(changed):
    plan = experiment.load(changed(GIVEN, EVENTS))
    assert [(each.name, each.port, each.from_port) for each in plan.messages] == [
        ("cmd", 7001, False),
        ("ack", 7002, True),
    ]
    assert plan.messages[0].number == {"offset": 4, "width": 8, "order": "big"}
    assert plan.messages[1].number is None
    assert plan.kernel_asked
    assert {"sched:sched_switch", "udp:*", "tcp:*", "drop:packet_drop"} <= set(plan.kernel)
    assert experiment.from_manifest(plan.to_manifest()) == plan


def test_events_of_the_kernel_that_were_asked_for_are_recorded_too(changed):
    given = GIVEN[0], GIVEN[1] + ', kernel: ["sched:*"]'
    assert experiment.load(changed(given, EVENTS)).kernel[0] == "sched:*"
    assert "tcp:*" in experiment.load(changed(given, EVENTS)).kernel
    without = experiment.load(changed())
    assert not without.kernel_asked and not any("udp" in each for each in without.kernel)


def test_an_address_is_one_of_ip(changed):
    given = "cmd: {protocol: udp, to: 7001", "cmd: {protocol: udp, to: 7001, address: 239.1.1.1"
    file = changed((GIVEN[0], GIVEN[1].replace(*given)), EVENTS)
    assert [each.address for each in experiment.load(file).messages] == ["239.1.1.1", None]
    wrong = given[0], given[1].replace("239.1.1.1", "h2")
    (problem,) = experiment.check(changed((GIVEN[0], GIVEN[1].replace(*wrong)), EVENTS))
    assert "'h2' is no IP address" in problem.message


def test_a_group_has_two_events(changed):
    (problem,) = experiment.check(changed(GIVEN, (EVENTS[0], "[a/cmd:sent, b/cmd:read]")))
    assert "are cmd:sent and cmd:received" in problem.message


def test_what_is_told_afterwards_triggers_nothing_and_bounds_no_clock(changed):
    trigger = ", streams: {last: {kind: flight-recorder, triggers: [{path: loop, over: 1ms}]}}"
    (problem,) = experiment.check(changed((GIVEN[0], GIVEN[1] + trigger), EVENTS))
    assert "a/cmd:sent is told from the kernel's events when the run is over" in problem.message
    clock = "hosts: [", "clock: {messages: [loop]}\nhosts: ["
    (problem,) = experiment.check(changed(GIVEN, EVENTS, clock))
    assert "such messages bound no clock" in problem.message


def test_hidden_clocks_and_no_kernel_are_refused(changed):
    hidden = "hosts: [", "clocks: synthetic\nhosts: ["
    (problem,) = experiment.check(changed(GIVEN, EVENTS, hidden))
    assert "hosts with synthetic clocks do not have it" in problem.message


WOKEN = (
    '["s:*"]',
    '["s:*"], wakeups: {tick: {by: timer, number: s:out}, disk: {by: interrupt, interrupt: v*}}',
)
TICKS = "[a/s:out, b/s:in, b/s:out]", "[a/tick:fired, a/s:out, b/s:in, b/s:out]"


def test_what_tells_of_wakeups_is_recorded(changed):
    plan = experiment.load(changed(WOKEN, TICKS))
    tick, disk = plan.wakeups
    assert (tick.by, tick.interrupt, tick.thread, tick.number) == ("timer", "*", "*", "s:out")
    assert (disk.by, disk.interrupt, disk.number) == ("interrupt", "v*", None)
    assert plan.kernel_asked
    assert {"sched:sched_waking", "irq:local_timer_*", "softirq:*"} <= set(plan.kernel)
    assert experiment.from_manifest(plan.to_manifest()) == plan


def test_wakeups_that_cannot_be_are_refused(changed):
    def told(given: str, *more: tuple[str, str]) -> str:
        trace = WOKEN[0], f'["s:*"], {given}'
        (problem,) = experiment.check(changed(trace, *more))
        return problem.message

    assert "a timer has no interrupt" in told("wakeups: {t: {by: timer, interrupt: eth0}}")
    fired = "wakeups: {t: {by: timer}, u: {by: timer, number: t:fired}}"
    assert "which has no number itself" in told(fired)
    assert "no pattern of trace.user" in told("wakeups: {t: {by: timer, number: x:out}}")
    assert "remove 'kernel: off'" in told("kernel: off, wakeups: {t: {by: timer}}")
    both = "messages: {t: {protocol: udp, to: 7001}}, wakeups: {t: {by: timer}}"
    assert "need another group" in told(both)
    path = TICKS[0], "[a/t:woken, b/s:in]"
    assert "are t:fired" in told("wakeups: {t: {by: timer}}", path)
    hidden = "hosts: [", "clocks: synthetic\nhosts: ["
    assert "do not have it" in told("wakeups: {t: {by: timer}}", hidden)
