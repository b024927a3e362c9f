"""`channels`: what the plan has of them, what their service is told, and mistakes."""

from __future__ import annotations

from dataclasses import replace

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


def test_paths_go_through_the_services_of_channels(changed):
    sent = "_channels-h1/frames:sent"
    recorded = ('user: ["s:*"]', 'user: ["s:*", "frames:*"]')
    served = (recorded, ("[a/s:out, b/s:in", f"[a/s:out, {sent}, b/s:in"))
    channels_of = (HOSTS, f"channels: {GIVEN}\n{HOSTS}")
    plan = experiment.load(changed(channels_of, *served))
    (loop,) = plan.paths
    assert [str(event) for event in loop.events] == ["a/s:out", sent, "b/s:in", "b/s:out"]
    assert loop.events[1].host == "h1"
    assert experiment.from_manifest(plan.to_manifest()) == plan
    # Nothing serves channels where there are none, or on a host without components.
    (problem,) = experiment.check(changed(*served))
    assert "there is no component '_channels-h1'" in problem.message
    elsewhere = (recorded, (served[1][0], served[1][1].replace("-h1", "-h9")))
    (problem,) = experiment.check(changed(channels_of, *elsewhere))
    assert "there is no component '_channels-h9'" in problem.message


def test_each_host_has_a_service_and_its_programs_know_where(changed):
    text = GIVEN[:-1] + ", poses: {home: h1, item: 64B}, plans: {home: h2, item: 1kB, slots: 20}}"
    plan = experiment.load(with_channels(changed, text))
    more = replace(plan.components[0], name="c", host="h3")
    plan = replace(plan, components=(*plan.components, more))
    addresses = {"h1": "10.77.0.1", "h2": "fd00::2", "h3": "10.77.0.3"}
    first, second, third = channels.services(plan, addresses)
    services = [(each.name, each.host) for each in (first, second, third)]
    assert services == [("_channels-h1", "h1"), ("_channels-h2", "h2"), ("_channels-h3", "h3")]
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
        "lifespan_us": 0,
    }
    assert second.config["channels"]["plans"]["slots"] == 20
    # Homes listen, and each knows where the others' channels are.
    of_h1, of_h2 = "10.77.0.1:7421", "[fd00::2]:7421"
    assert (first.config["listen"], second.config["listen"]) == (of_h1, of_h2)
    assert first.config["homes"] == {"plans": of_h2}
    assert third.config["homes"] == {"frames": of_h1, "poses": of_h1, "plans": of_h2}
    assert third.config["channels"] == {} and "listen" not in third.config
    # One secret for each run.
    assert first.config["key"] == third.config["key"] and len(first.config["key"]) == 64
    assert channels.services(plan, addresses)[0].config["key"] != first.config["key"]
    for host in ("h1", "h3"):
        its = {"LOOPSCOPE_STM": f"@loopscope-stm-R-{host}"}
        assert channels.variables(plan, host, "R") == its
    none = experiment.load(changed())
    assert channels.services(none, addresses) == [] and channels.variables(none, "h1", "R") == {}


def test_a_lifespan_reaches_the_service(changed):
    given = GIVEN.replace("loans: 3", "loans: 3, lifespan: 40ms")
    plan = experiment.load(with_channels(changed, given))
    assert plan.channels[0].lifespan == 40_000_000
    assert experiment.from_manifest(plan.to_manifest()) == plan
    service = channels.services(plan, {"h1": "10.77.0.1", "h2": "10.77.0.2"})[0]
    assert service.config["channels"]["frames"]["lifespan_us"] == 40_000
    none = GIVEN.replace("loans: 3", "loans: 3, lifespan: none")
    assert experiment.load(with_channels(changed, none)).channels[0].lifespan is None
    for wrong in ("10us", "2h", "soon"):
        text = GIVEN.replace("loans: 3", f"loans: 3, lifespan: {wrong}")
        (problem,) = experiment.check(with_channels(changed, text))
        assert wrong in problem.message


def test_the_port_may_be_another_one_and_one_host_shares_nothing(changed):
    port = ("network:\n", "network:\n  channels_port: 9000\n")
    plan = experiment.load(changed((HOSTS, f"channels: {GIVEN}\n{HOSTS}"), port))
    addresses = {"h1": "10.77.0.1", "h2": "10.77.0.2", "h3": "10.77.0.3"}
    assert channels.services(plan, addresses)[0].config["listen"] == "10.77.0.1:9000"
    alone = [each for each in plan.components if each.host == "h1"]
    (service,) = channels.services(replace(plan, components=tuple(alone)), addresses)
    assert list(service.config) == ["channels"]


def test_a_component_as_home_is_its_host_also_where_it_has_moved(changed):
    text = (HOSTS, f"channels: {{f: {{home: b, item: 1kB}}, g: {{home: a, item: 1kB}}}}\n{HOSTS}")
    plan = experiment.load(changed(text))
    assert [(each.name, each.home) for each in plan.channels] == [("f", "h2"), ("g", "h1")]
    assert experiment.from_manifest(plan.to_manifest()) == plan
    moved = changed(text, ("b: {host: h2", "b: {host: h1"))
    (service,) = channels.services(experiment.load(moved), {"h1": "10.77.0.1", "h2": "10.77.0.2"})
    assert (service.host, list(service.config["channels"])) == ("h1", ["f", "g"])


def test_a_name_that_may_mean_two_hosts_is_refused_with_a_remedy(changed):
    text = (HOSTS, f"channels: {{f: {{home: b, item: 1kB}}}}\n{HOSTS}b, ")
    told = experiment.check(changed(text))
    (problem,) = [each for each in told if each.severity == "error"]
    assert problem.path == "channels.f.home"
    assert problem.message == (
        "b is a host and also a component, which runs on h2: rename the component, or name another "
        "component of the host that is meant"
    )
    # Where both are the same host there is no doubt.
    same = experiment.load(changed(text, ("b: {host: h2", "b: {host: b")))
    assert [each.home for each in same.channels] == ["b"]


@pytest.mark.parametrize(("written", "nearest"), [("h3", "h2"), ("sensr", "sensor")])
def test_an_unknown_home_has_the_nearest_host_or_component(changed, written, nearest):
    given = f"channels: {{f: {{home: {written}, item: 1kB}}}}\n{HOSTS}"
    more = "  sensor: {host: h1, run: x}\n  b: {"
    (problem,) = experiment.check(changed((HOSTS, given), ("  b: {", more)))
    assert problem.message == f"there is no host or component {written!r}"
    assert problem.hint == nearest


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
    assert any(
        "no component runs on h9, and only those there can put items" in each for each in told
    )
