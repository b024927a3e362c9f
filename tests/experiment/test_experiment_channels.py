"""`channels`: what the plan has of them, what their service is told, and mistakes."""

from __future__ import annotations

import pytest

from loopscope import experiment
from loopscope.control import channels

GIVEN = "{frames: {home: h1, item: 300kB, capacity: 4, full: drop, outputs: 2, loans: 3}}"
HOSTS = "hosts: ["


def with_channels(changed, text: str):
    return changed((HOSTS, f"channels: {text}\n{HOSTS}"))


def test_what_is_left_out_is_as_programs_have_it(changed):
    plan = experiment.load(with_channels(changed, GIVEN))
    (channel,) = plan.channels
    assert (channel.name, channel.home, channel.item_bytes) == ("frames", "h1", 300_000)
    # As many as there are items and loans.
    assert channel.slots == 4 + 2 * 3
    assert (channel.full, channel.orphans, channel.remembered) == ("drop", "keep", 64)
    assert experiment.from_manifest(plan.to_manifest()) == plan


def test_a_home_has_a_service_and_its_programs_know_where(changed):
    text = GIVEN[:-1] + ", poses: {home: h1, item: 64B}, plans: {home: h2, item: 1kB, slots: 20}}"
    plan = experiment.load(with_channels(changed, text))
    first, second = channels.services(plan)
    assert (first.name, first.host, second.name, second.host) == (
        "_channels-h1",
        "h1",
        "_channels-h2",
        "h2",
    )
    assert list(first.config["channels"]) == ["frames", "poses"]
    assert first.config["channels"]["frames"] == {
        "capacity": 4,
        "slots": 10,
        "item_bytes": 300_000,
        "inputs": 16,
        "outputs": 2,
        "processes": 16,
        "loans": 3,
        "ahead": 64,
        "remembered": 64,
        "drop_when_full": True,
        "discard_orphans": False,
    }
    assert second.config["channels"]["plans"]["slots"] == 20
    assert channels.variables(plan, "h1", "R") == {"LOOPSCOPE_STM": "@loopscope-stm-R-h1"}
    assert channels.variables(plan, "h3", "R") == {}
    assert channels.services(experiment.load(changed())) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{f: {home: h9, item: 1kB}}", "h9"),
        ("{f: {item: 1kB}}", "'home' is missing"),
        ("{f: {home: h1}}", "'item' is missing"),
        ("{f: {home: h1, item: 0B}}", "0B is too small"),
        ("{f: {home: h1, item: 1kB, full: wait}}", "refuse"),
        ("{f: {home: h1, item: 1kB, capacity: 4, slots: 3}}", "3 slots have no room for 4 items"),
        ("{'f:x': {home: h1, item: 1kB}}", "f:x"),
        ("{f: {home: h1, item: 1kB, capcity: 4}}", "unknown key 'capcity'"),
    ],
)
def test_mistakes_are_told_with_their_place(changed, text, message):
    problems = experiment.check(with_channels(changed, text))
    (problem,) = problems
    assert message in problem.message


def test_a_home_on_which_nothing_runs_is_told(changed):
    file = changed(
        (HOSTS, f"channels: {{f: {{home: h9, item: 1kB}}}}\n{HOSTS}h9, "),
    )
    told = [each.message for each in experiment.check(file) if each.severity == "error"]
    assert len(told) == 1
    assert any("no component runs on h9, and only those there can use it" in each for each in told)
