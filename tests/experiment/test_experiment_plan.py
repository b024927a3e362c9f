import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from loopscope import experiment
from loopscope.experiment import (
    Allowed,
    Clocks,
    ExitReady,
    ExperimentErrors,
    Hop,
    LineReady,
    MissesIn,
    PhasesReady,
    PortReady,
    RealtimeStep,
    Requirement,
    StartedReady,
    TimeWindow,
    from_manifest,
    seeds,
)


def test_pipeline(root):
    plan = experiment.load(root / "experiments/pipeline.yaml")
    assert plan.hosts == ("h1", "h2", "h3", "h4")
    assert [(c.name, c.host) for c in plan.components] == [
        ("source", "h1"),
        ("node1", "h2"),
        ("node2", "h3"),
        ("node3", "h4"),
        ("sink", "h1"),
    ]
    source = plan.components[0]
    assert source.argv == ("loopscope-host", "pipe", "source")
    assert source.config == {"to": "node1", "count": 10000, "period": "2ms", "size": "6B"}
    assert all(c.ready == PhasesReady() for c in plan.components)
    assert [(p.name, p.timeout_ns, p.measured) for p in plan.phases] == [
        ("listen", 5 * 10**9, False),
        ("connect", 5 * 10**9, False),
        ("run", 60 * 10**9, True),
    ]
    (loop,) = plan.paths
    assert [str(event) for event in loop.events][:2] == ["source/pipe:sent", "node1/pipe:received"]
    assert loop.events[1].host == "h2"
    last = plan.expectations[-1]
    assert (last.stat, last.op, last.value, last.is_time) == ("p99", "<", 5_000_000, True)
    assert plan.expectations[0].value == 10000
    assert plan.warnings == ()


def test_stimulus_response(root):
    plan = experiment.load(root / "experiments/stimulus-response.yaml")
    assert plan.components[1].config == {"to": "server"}
    assert plan.paths[0].key == "id"
    assert plan.expectations[-1].hop == Hop(1, 2)


def test_requirements(changed):
    lines = [
        "loop < 5ms after 30s for 99.9%, no two misses in a row, at most 3 misses in any 100",
        "loop[a/s:out -> b/s:out].age <= 5ms",
        "loop[b/s:in before a/s:out]",
        "a/s:out every $period within 100us between 1s and 1min",
    ]
    lines += ["a/s:out.rate >= 0.5kHz", "a/s:out.jitter < 5us after 1s", "loop.p99 < 5ms after 1s"]
    text = "".join(f'  - "{line}"\n' for line in lines)
    plan = experiment.load(changed(("  - loop.lost == 0\n", text)))
    deadline, age, before, period, rate, jitter, late, _ = plan.expectations
    rows = (MissesIn(1, 2), MissesIn(3, 100))
    thirty = TimeWindow(30 * 10**9)
    assert deadline == Requirement(
        lines[0],
        "time",
        "loop",
        None,
        None,
        "<",
        5_000_000,
        None,
        Allowed(999_000_000, rows),
        thirty,
    )
    assert (age.kind, age.hop, age.op, age.allowed) == ("age", Hop(0, 2), "<=", Allowed())
    # b/s:in is after a/s:out in the path, so the time between is to be negative.
    assert (before.kind, before.hop, before.op, before.limit_ns) == ("before", Hop(0, 1), "<", 0)
    assert (str(period.event), period.event.host) == ("a/s:out", "h1")
    assert (period.period_ns, period.limit_ns, period.path) == (2_000_000, 100_000, None)
    assert period.window == TimeWindow(10**9, 60 * 10**9)
    assert (rate.stat, rate.value, rate.is_time, str(rate.event)) == ("rate", 500, False, "a/s:out")
    assert (jitter.value, jitter.is_time, jitter.window) == (5000, True, TimeWindow(10**9))
    assert (late.stat, late.window, late.event) == ("p99", TimeWindow(10**9), None)
    manifest = json.loads(json.dumps(plan.to_manifest(), allow_nan=False))
    assert from_manifest(manifest).expectations == plan.expectations
    for each in manifest["expectations"]:
        # Those of a run from before are without.
        for key in ("event", "window") if "stat" in each else ():
            del each[key]
    assert from_manifest(manifest).expectations[-1] == plan.expectations[-1]


@pytest.mark.parametrize("name", ["pipeline", "stimulus-response"])
def test_a_manifest_is_json_and_comes_back(root, name):
    plan = experiment.load(root / f"experiments/{name}.yaml")
    manifest = json.loads(json.dumps(plan.to_manifest(), allow_nan=False))
    assert manifest == plan.to_manifest()
    assert experiment.from_manifest({**manifest, "verdicts": []}) == plan


def test_an_override_reaches_what_uses_it(root):
    path = root / "experiments/pipeline.yaml"
    plan = experiment.load(path, {"period": "1ms", "count": "500"})
    assert plan.params == {"count": 500, "period": "1ms", "size": "6B"}
    assert plan.components[0].config["count"] == 500
    assert plan.components[0].config["period"] == "1ms"
    assert plan.expectations[0].value == 500


@pytest.mark.parametrize(
    ("override", "message", "hint"),
    [
        ({"perod": "1ms"}, "no parameter 'perod' for -p perod=1ms to set", "period"),
        ({"period": "1"}, "-p period=1: '1' has no unit", None),
        ({"period": "1kB"}, "is a size", None),
        ({"count": "many"}, "should be a number", None),
        ({"count": "true"}, "should be a number", None),
        ({"count": ""}, "should be a number", None),
        ({"period": "1ms\udcff"}, "not allowed", None),
    ],
)
def test_overrides_are_checked_as_the_file_is(root, override, message, hint):
    with pytest.raises(ExperimentErrors) as refused:
        experiment.load(root / "experiments/pipeline.yaml", override)
    (problem,) = refused.value.problems
    assert problem.line == 6
    assert message in problem.message
    assert problem.hint == hint
    str(refused.value).encode()


def load(changed, *replacements):
    return experiment.load(changed(*replacements))


def test_defaults(write):
    plan = experiment.load(
        write(
            "name: least\nhosts: [h1]\ncomponents: {a: {host: h1, run: prog}}\n"
            "phases: [{name: run, timeout: 1s}]\n"
        )
    )
    assert plan.clocks == Clocks("plain", None)
    assert (plan.clock.rate_hz, plan.clock.burst, plan.clock.wander_ppm) == (100.0, 100, 1.0)
    assert plan.clock.mesh
    assert (plan.clock.network, plan.clock.within_ns) == ("clock", None)
    assert (plan.network.data, plan.network.clock) == ("10.77.0.0/24", "10.78.0.0/24")
    assert plan.network.mtu is None
    assert plan.trace == ("*",)
    assert plan.components[0].ready == StartedReady()
    assert (plan.components[0].start, plan.components[0].phases) == (None, None)
    assert plan.repeat == 1
    # Nothing is marked, so the whole run counts.
    assert [phase.measured for phase in plan.phases] == [True]


@pytest.mark.parametrize(
    ("text", "clocks"),
    [
        ("plain", Clocks("plain", None)),
        ("synthetic", Clocks("synthetic", 1)),
        ("{synthetic: {seed: 7}}", Clocks("synthetic", 7)),
        ("{synthetic: {seed: $count}}", Clocks("synthetic", 10)),
        ("{synthetic: {}}", Clocks("synthetic", 1)),
        (
            "{synthetic: {realtime: {h2: {at: 1500ms, by: 22ms}}}}",
            Clocks("synthetic", 1, {"h2": RealtimeStep(1_500_000_000, 22_000_000)}),
        ),
    ],
)
def test_clocks(changed, text, clocks):
    assert load(changed, ("hosts: [", f"clocks: {text}\nhosts: [")).clocks == clocks


@pytest.mark.parametrize(
    ("text", "ready"),
    [
        ("[prog]", StartedReady()),
        ("[prog], with: {}", PhasesReady()),
        ("/opt/bin/loopscope-host pipe sink", PhasesReady()),
        ("loopscope-host pipe sink, ready: started", StartedReady()),
        ("[prog], ready: phases", PhasesReady()),
        ("[prog], ready: {line: listening on}", LineReady("listening on")),
        ("[prog], ready: {port: 80}", PortReady(80)),
        ("[prog], ready: {exit: 0}", ExitReady(0)),
    ],
)
def test_readiness(changed, text, ready):
    assert load(changed, ("[client, --to, a]", text)).components[1].ready == ready


def test_words_are_split_before_parameters_are_put_in(changed):
    plan = load(
        changed,
        ("period: 2ms}", "period: 2ms, who: a b, rate: 1.50}"),
        (
            "run: [client, --to, a]",
            "run: \"client --to=$who 'x y' $$HOME ${rate}s --n $count\", "
            "env: {R: $rate, N: 1.0, B: true}",
        ),
    )
    b = plan.components[1]
    assert b.argv == ("client", "--to=a b", "x y", "$HOME", "1.50s", "--n", "10")
    assert b.env == {"R": "1.50", "N": "1.0", "B": "true"}


def test_a_lone_reference_keeps_its_type_and_a_list_of_words_its_spelling(changed):
    plan = load(
        changed,
        ("period: $period}", 'period: $period, nested: [{n: "${count}", t: n$count, u: null}]}'),
        ("[client, --to, a]", "[client, 1.50, $count]"),
    )
    assert plan.components[0].config == {
        "count": 10,
        "period": "2ms",
        "nested": [{"n": 10, "t": "n10", "u": None}],
    }
    assert plan.components[1].argv == ("client", "1.50", "10")


def test_parameters_reach_timeouts_and_expectations(changed):
    plan = load(
        changed,
        ("60s", "$period"),
        ("< 5ms", "< $period"),
        ("hosts: [", "repeat: $count\nhosts: ["),
    )
    assert plan.phases[1].timeout_ns == 2_000_000
    assert plan.expectations[1].value == 2_000_000
    assert plan.repeat == 10


def test_the_order_of_phases_is_topological_with_ties_in_file_order(changed):
    plan = load(
        changed,
        ("{name: connect, timeout: 5s}", "{name: connect, timeout: 5s, after: [warm]}"),
        (
            "measured: true}",
            "measured: true}\n  - {name: cold, timeout: 1s, after: []}"
            "\n  - {name: warm, timeout: 1s, after: []}",
        ),
    )
    assert [phase.name for phase in plan.phases] == ["cold", "warm", "connect", "run"]
    assert plan.phases[3].after == ("connect",)
    assert [phase.measured for phase in plan.phases] == [False, False, False, True]


def test_start_and_phases(changed):
    plan = load(
        changed,
        ("[client, --to, a]", "[client], ready: phases, start: connect, phases: [run, connect]"),
    )
    b = plan.components[1]
    assert b.start == "connect"
    assert b.phases == ("connect", "run")


def test_network(changed):
    plan = load(changed, ("network:", "network:\n  data: 10.1.0.0/29\n  clock: 192.168.7.0/24"))
    assert (plan.network.data, plan.network.clock) == ("10.1.0.0/29", "192.168.7.0/24")
    assert plan.network.mtu == 1400


@pytest.mark.parametrize(
    ("line", "hop", "stat", "op", "value", "is_time"),
    [
        ("loop.p99<5ms", None, "p99", "<", 5_000_000, True),
        ("loop.p99.9 <= 2.1ms", None, "p999", "<=", 2_100_000, True),
        ("loop.count >= 100", None, "count", ">=", 100, False),
        ("loop.duplicates != 1", None, "duplicates", "!=", 1, False),
        ("loop[a/s:out -> b/s:in].max > 1us", Hop(0, 1), "max", ">", 1_000, True),
        ("loop[a/s:out->b/s:out].lost == 0", Hop(0, 2), "lost", "==", 0, False),
    ],
)
def test_expectations(changed, line, hop, stat, op, value, is_time):
    (found, _) = load(changed, ("loop.lost == 0", line)).expectations
    assert (found.path, found.hop) == ("loop", hop)
    assert (found.stat, found.op, found.value, found.is_time) == (stat, op, value, is_time)
    assert found.text == line


@pytest.mark.parametrize("host", ["h1", "h2", "hosts"])
def test_expectations_of_clocks(changed, host):
    line = f"{host}.realtime.offset <= 1.5us"
    plan = load(changed, ("loop.lost == 0", line))
    found = plan.expectations[0]
    assert (found.path, found.clock, found.stat, found.hop) == (host, "realtime", None, None)
    assert (found.op, found.value, found.is_time, found.text) == ("<=", 1500, True, line)
    assert from_manifest(plan.to_manifest()) == plan


def test_words_that_other_versions_of_yaml_take_for_something_else_stay_text(changed):
    plan = load(
        changed,
        ("period: $period}", "period: $period, a: no, b: on, c: 1:30, d: 2024-01-01, e: 010}"),
    )
    config = plan.components[0].config
    assert {key: config[key] for key in "abcde"} == {
        "a": "no",
        "b": "on",
        "c": "1:30",
        "d": "2024-01-01",
        "e": 10,
    }


def test_anchors_and_merge_keys(write):
    plan = experiment.load(
        write(
            """\
name: merged
hosts: [h1]
components:
  a: &node {host: h1, run: prog, env: &env {A: x, B: y}}
  b:
    <<: *node
    run: other
    env: {<<: *env, B: z}
phases: [{name: run, timeout: 1s}]
"""
        )
    )
    b = plan.components[1]
    assert (b.host, b.argv, b.env) == ("h1", ("other",), {"A": "x", "B": "z"})


def test_importing_loads_no_parser(root):
    code = (
        "import sys, loopscope.experiment\n"
        "assert not {'pydantic', 'yaml'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(root / "python")}
    )


SEEDED = """\
name: seeded
hosts: [h1, h2]
clocks: {synthetic: {seed: 7}}
network: {seed: 3, h1 -> h2: {loss: 1%}}
components:
  a: {host: h1, run: x, with: {seed: 5, count: 9}}
  b: {host: h2, run: x}
phases: [{name: run, timeout: 5s}]
repeat: 3
"""


def test_each_repeat_has_seeds_of_its_own(write):
    """Else the same packets are lost in each, and repeats say nothing that one does not."""
    plan = experiment.load(write(SEEDED))
    seeds = [plan.of_repeat(number).seeds for number in (1, 2, 3)]
    assert seeds[0] == plan.seeds == {"clocks": 7, "links": 3, "components": {"a": 5}}
    for of in (lambda s: s["clocks"], lambda s: s["links"], lambda s: s["components"]["a"]):
        assert len({of(each) for each in seeds}) == 3
        assert all(0 <= of(each) < 2**63 for each in seeds)
    second = plan.of_repeat(2)
    assert second == plan.of_repeat(2)
    assert second.components[0].config == {"seed": seeds[1]["components"]["a"], "count": 9}
    document = experiment.links_document(second, [])
    assert document["seed"] == seeds[1]["links"]
    plain = experiment.load(write(SEEDED.replace("{synthetic: {seed: 7}}", "plain")))
    assert "clocks" not in plain.of_repeat(2).seeds


UNSEEDED = """\
name: unseeded
hosts: [h1]
components:
  paced: {host: h1, run: loopscope-host pace send, with: {to: taker, distribution: poisson}}
  table: {host: h1, run: taskset -c 0 /usr/bin/loopscope-host pattern produce, with: {scale: 2}}
  bulk: {host: h1, run: loopscope-host ettcp send --random}
  busy: {host: h1, run: loopscope-host burn}
  stuck: {host: h1, run: loopscope-host stall, with: {at: 1s}}
  given: {host: h1, run: loopscope-host pace send, with: {seed: 5}}
  fixed: {host: h1, run: loopscope-host pace send --seed 6}
  fixed-too: {host: h1, run: loopscope-host stall --seed=6}
  taker: {host: h1, run: loopscope-host pace receive}
  before: {host: h1, run: loopscope-host burn, ready: {line: burning}}
  other: {host: h1, run: pace send, with: {count: 1}}
phases: [{name: listen, timeout: 5s}, {name: connect, timeout: 5s}, {name: run, timeout: 5s}]
repeat: 2
"""


def test_load_programs_without_a_seed_draw_differently_in_each_repeat(write):
    """As links do. A program that takes no seed, or has it on its command line, is left alone."""
    plan = experiment.load(write(UNSEEDED))
    own = ("paced", "table", "bulk", "busy", "stuck")
    assert plan.seeds == {"components": {**dict.fromkeys(own, 1), "given": 5}}
    first, second = (plan.of_repeat(number) for number in (1, 2))
    assert first.seeds == plan.seeds
    drawn = second.seeds["components"]
    assert set(drawn) == {*own, "given"}
    assert all(drawn[name] != seed for name, seed in plan.seeds["components"].items())
    configs = {component.name: component.config for component in second.components}
    assert {name: config["seed"] for name, config in configs.items() if "seed" in config} == drawn
    assert configs["table"] == {"scale": 2, "seed": drawn["table"]}
    assert second == experiment.load(write(UNSEEDED)).of_repeat(2)


@pytest.mark.parametrize(
    "words", [("pace", "send"), ("pattern", "produce"), ("ettcp", "send"), ("burn",), ("stall",)]
)
def test_the_default_seed_is_that_of_the_program(words):
    """So that the first repeat draws as the program does by itself."""
    host = Path(sysconfig.get_path("scripts")) / "loopscope-host"
    said = subprocess.run([host, *words, "--help"], check=True, capture_output=True, text=True)
    (after,) = said.stdout.split("--seed <SEED>")[1:]
    default = after.split("[default: ")[1].split("]")[0]
    assert int(default) == seeds.DEFAULT
    assert seeds.takes_default(["loopscope-host", *words])
