"""The keys of ``network``: what a link is told, what it inherits, and what is refused."""

import json

import pytest

from loopscope import experiment
from loopscope.experiment import format_problem

FILE = """\
name: links
hosts: [h1, h2, h3]
params: {delay: 20ms, share: 1%}
network:
NETWORK
components:
  a: {host: h1, run: x $delay $share}
  b: {host: h2, run: x}
  c: {host: h3, run: x}
phases:
  - {name: connect, timeout: 5s}
  - {name: run, timeout: 60s, measured: true}
  - {name: after, timeout: 1s}
"""


@pytest.fixture
def network(write):
    """Writes a file with these lines below ``network``."""

    def write_network(*lines):
        return write(FILE.replace("NETWORK", "\n".join("  " + line for line in lines)))

    return write_network


def links(path):
    """The plan's links by their ends."""
    emulation = experiment.load(path).network.emulation
    return {(link.source, link.target): link for link in emulation.links} if emulation else None


def test_a_link_takes_from_the_default_what_it_does_not_say(network):
    path = network(
        "default: {delay: 5ms, jitter: 1ms, loss: 1%, at 1s: {loss: 2%}, at 2s: {loss: 3%}}",
        "h1 -> h2: {delay: 7ms, loss: none, at 2000ms: {delay: 9ms}}",
        "h2 <-> h3: {jitter: none}",
    )
    made = links(path)
    assert len(made) == 6
    loss = [{"kind": "independent", "probability": p, "correlation": 0} for p in (0.01, 0.02, 0.03)]
    jitter = {"distribution": "normal", "ns": 1_000_000, "correlation": 0}
    one = made["h1", "h2"]
    assert one.settings == {"delay_ns": 7_000_000, "jitter": jitter}
    assert [(step.at_ns, step.set) for step in one.steps] == [
        (10**9, {"loss": loss[1]}),
        (2 * 10**9, {"delay_ns": 9_000_000}),
    ]
    other = {"delay_ns": 5_000_000, "loss": loss[0]}
    assert made["h2", "h3"].settings == made["h3", "h2"].settings == other
    assert made["h2", "h1"].settings == {**other, "jitter": jitter}
    assert [step.set for step in made["h3", "h1"].steps] == [{"loss": loss[1]}, {"loss": loss[2]}]


SPELLINGS = {
    "delay: $delay": {"delay_ns": 20_000_000},
    "delay: 5ms, jitter: 1ms": {
        "delay_ns": 5_000_000,
        "jitter": {"distribution": "normal", "ns": 1_000_000, "correlation": 0},
    },
    "delay: 5ms, jitter: {uniform: 1ms, correlation: 25%}, reorder: by-jitter": {
        "delay_ns": 5_000_000,
        "jitter": {"distribution": "uniform", "ns": 1_000_000, "correlation": 0.25},
        "reorder": "by-jitter",
    },
    "delay: 5ms, jitter: {table: shape, deviation: 1ms}, reorder: 0.5%": {
        "delay_ns": 5_000_000,
        "jitter": {"distribution": {"table": "shape"}, "ns": 1_000_000, "correlation": 0},
        "reorder": {"skip": {"probability": 0.005}},
    },
    "loss: $share": {"loss": {"kind": "independent", "probability": 0.01, "correlation": 0}},
    "loss: {probability: 1%, correlation: 50%}": {
        "loss": {"kind": "independent", "probability": 0.01, "correlation": 0.5}
    },
    "loss: {gilbert-elliott: {p: 1%, r: 30%, good: 0.1%}}": {
        "loss": {"kind": "gilbert-elliott", "p": 0.01, "r": 0.3, "good": 0.001, "bad": 1.0}
    },
    "loss: {every: 100}": {"loss": {"kind": "periodic", "every": 100}},
    "loss: {trace: lost}": {"loss": {"kind": "trace", "path": "lost"}},
    "duplicate: 1%, corrupt: 0.01%": {"duplicate": 0.01, "corrupt": 0.0001},
    "rate: 100Mbit, burst: 15kB, queue: 100packets": {
        "rate_bps": 10**8,
        "burst_bytes": 15_000,
        "queue": {"limit": {"packets": 100}, "discipline": "drop-tail"},
    },
    "opportunities: when, queue: 64kB": {
        "opportunities": "when",
        "queue": {"limit": {"bytes": 64_000}, "discipline": "drop-tail"},
    },
    "rate: 1Mbit/s, queue: {limit: 50ms, discipline: codel, interval: 200ms}": {
        "rate_bps": 10**6,
        "queue": {
            "limit": {"time-ns": 50_000_000},
            "discipline": {"codel": {"target_ns": 5_000_000, "interval_ns": 200_000_000}},
        },
    },
    "rate: 1Mbit, queue: {discipline: codel}": {
        "rate_bps": 10**6,
        "queue": {"discipline": {"codel": {"target_ns": 5_000_000, "interval_ns": 100_000_000}}},
    },
    "mtu: 1000B": {"mtu": 1000},
    "delays: slow": {"delays": "slow"},
}
FILES = {
    "shape": "1\n2\n4\n",
    "lost": "0\n1\n0\n",
    "when": "1\n2\n5\n",
    "slow": "at,delay\n0s,5ms\n1s,7ms\n",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings(network, tmp_path, spelling, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    # Files are where the experiment is, not where it is run.
    monkeypatch.chdir("/")
    made = links(network(f"h1 -> h2: {{{spelling}}}"))
    assert list(made) == [("h1", "h2")]
    text = json.dumps(made["h1", "h2"].settings).replace(f"{tmp_path}/", "")
    assert json.loads(text) == SPELLINGS[spelling]
    # As a step, too.
    (step,) = links(network(f"h1 -> h2: {{at 1s: {{{spelling}}}}}"))["h1", "h2"].steps
    assert json.loads(json.dumps(step.set).replace(f"{tmp_path}/", "")) == SPELLINGS[spelling]


def test_none_takes_back_in_a_step(network):
    words = "loss, jitter, rate, burst, queue, reorder, mtu, delays, opportunities".split(", ")
    path = network(
        f"h1 -> h2: {{loss: 1%, at 1s: {{{', '.join(f'{word}: none' for word in words)}}}}}"
    )
    (step,) = links(path)["h1", "h2"].steps
    names = {"rate": "rate_bps", "burst": "burst_bytes"}
    assert step.set == {names.get(word, word): None for word in words}


def test_zeros_and_the_devices_mtu_are_a_plain_wire(network):
    zeros = "{delay: 0ms, jitter: 0ms, loss: 0%, duplicate: 0%, corrupt: 0%, reorder: 0%}"
    path = network("default: {mtu: 1400B}", f"h1 <-> h3: {zeros}")
    assert links(path) is None
    assert experiment.load(path).network.mtu == 1400
    # A link that is emulated knows the largest packet, for what follows from it.
    path = network("default: {mtu: 1400B}", "h1 -> h3: {rate: 1Mbit}")
    assert links(path)["h1", "h3"].settings == {"mtu": 1400, "rate_bps": 10**6}


def test_links_are_emulated_without_impairment_where_the_file_says_so(network):
    assert links(network("emulate: true")) == {}
    (problem,) = experiment.check(network("mover: tap"))
    assert problem.severity == "warning"
    assert "mover does nothing" in problem.message
    assert experiment.check(network("mover: tap", "emulate: true")) == []


def test_the_links_document(network):
    path = network(
        "mover: tap",
        "wait: spin",
        "seed: 7",
        "message: {offset: 4B, order: big}",
        "h1 -> h3: {delay: 1ms, at 2s: {mtu: none}}",
    )
    ports = [{"host": f"h{i}", "device": f"d{i}"} for i in (1, 2, 3)]
    document = experiment.links_document(experiment.load(path), ports)
    assert document == {
        "version": 1,
        "seed": 7,
        "mover": "tap",
        "wait": "spin",
        "message": {"offset": 4, "width": 8, "order": "big"},
        "ports": ports,
        "links": [
            {
                "from": "h1",
                "to": "h3",
                "settings": {"delay_ns": 1_000_000},
                "steps": [{"at_ns": 2 * 10**9, "set": {"mtu": None}}],
            }
        ],
        "phases": ["connect", "run", "after"],
    }


def test_netem_has_steps_and_a_router_of_its_own(network):
    path = network(
        "default: {mtu: 1400B}",
        "mover: netem",
        "h1 -> h3: {delay: 1ms, at 1s: {loss: 1%, mtu: 1400B}, at 2s: {delay: 2ms, loss: none}}",
    )
    assert [p for p in experiment.check(path) if p.severity == "error"] == []
    document = experiment.links_document(experiment.load(path), [])
    (link,) = (link for link in document["links"] if (link["from"], link["to"]) == ("h1", "h3"))
    # The devices' own MTU is nothing that netem has to do.
    assert [set(step["set"]) for step in link["steps"]] == [{"loss"}, {"delay_ns", "loss"}]
    assert experiment.check(network("mover: netem", "emulate: true")) == []


# The lines below ``network``, with « where the one error must be told; its message and its hint.
MISTAKES = {
    "loss above all": (["h1 -> h2: {loss: «120%}"], "at most 100%", None),
    "loss without unit": (["h1 -> h2: {loss: «0.1}"], "has no unit", None),
    "loss of no kind": (["h1 -> h2: {loss: «{evry: 5}}"], "{every: 100}", None),
    "loss of two kinds": (["h1 -> h2: {loss: «{every: 5, trace: f}}"], "one of", None),
    "loss key": (
        ["h1 -> h2: {loss: {probability: 1%, «corelation: 1%}}"],
        "unknown key 'corelation'",
        "correlation",
    ),
    "gilbert-elliott": (
        ["h1 -> h2: {loss: {gilbert-elliott: {p: 1%, r: «30}}}"],
        "has no unit",
        None,
    ),
    "delay of size": (["h1 -> h2: {delay: «5kB}"], "is a size", None),
    "jitter above delay": (
        ["h1 -> h2: {delay: 1ms, jitter: «2ms}"],
        "jitter: 2 ms is above the delay of 1 ms",
        None,
    ),
    "jitter of the default above the delay": (
        ["default: {delay: 5ms, jitter: «3ms}", "h1 -> h2: {delay: 1ms}"],
        "above the delay of 1 ms",
        None,
    ),
    "jitter above the delay of a step": (
        ["h1 -> h2: {delay: 5ms, jitter: 3ms, «at 1s: {delay: 1ms}}"],
        "above the delay of 1 ms",
        None,
    ),
    "setting of a step": (
        ["h1 -> h2: {delay: 5ms, at 1s: {jitter: «9ms}}"],
        "above the delay of 5 ms",
        None,
    ),
    "reorder by no jitter": (["h1 -> h2: {delay: 1ms, reorder: «by-jitter}"], "a jitter", None),
    "reorder word": (["h1 -> h2: {delay: 1ms, reorder: «by-jiter}"], "is not a ratio", None),
    "rate and opportunities": (
        ["h1 -> h2: {rate: 1Mbit, opportunities: «when}"],
        "Leave one of them out",
        None,
    ),
    "rate of the default and opportunities": (
        ["default: {rate: 1Mbit}", "h1 -> h2: {opportunities: «when}"],
        "Leave one of them out",
        None,
    ),
    "burst without rate": (["h1 -> h2: {burst: «15kB}"], "needs a rate", None),
    "queue without rate": (["h1 -> h2: {queue: «50ms}"], "without a rate", None),
    "queue limit": (["h1 -> h2: {rate: 1Mbit, queue: «100}"], "100packets, 64kB or 50ms", None),
    "queue unit": (["h1 -> h2: {rate: 1Mbit, queue: «100pkt}"], "100packets", None),
    "queue discipline": (
        ["h1 -> h2: {rate: 1Mbit, queue: {discipline: «codell}}"],
        "not known here",
        "codel",
    ),
    "target without CoDel": (
        ["h1 -> h2: {rate: 1Mbit, queue: {limit: 50ms, «target: 1ms}}"],
        "add discipline: codel",
        None,
    ),
    "mtu range": (["h1 -> h2: {mtu: «100B}"], "at least 576B", None),
    "mtu of the devices": (["default: {mtu: 1400B}", "h1 -> h2: {mtu: «1500B}"], "1400B", None),
    "no file": (["h1 -> h2: {delays: «nowhere}"], "nowhere: cannot be read", None),
    "file with a hole": (["h1 -> h2: {opportunities: «holes}"], "holes, line 2", None),
    "loss trace with a hole": (["h1 -> h2: {loss: {trace: «holes}}"], "holes, line 2", None),
    "step without settings": (["h1 -> h2: {«at 1s: {}}"], "changes nothing", None),
    "step without unit": (["h1 -> h2: {«at 30: {delay: 1ms}}"], "has no unit", None),
    "step twice": (
        ["h1 -> h2: {at 1s: {delay: 1ms}, «at 1000ms: {delay: 2ms}}"],
        "two changes at 1000ms: the first is on line 5",
        None,
    ),
    "step after the end": (
        ["h1 -> h2: {«at 61s: {delay: 1ms}}"],
        "at 61s never comes",
        None,
    ),
    "step of the default after the end": (
        ["default: {«at 2min: {delay: 1ms}}"],
        "ends after 61s at the latest",
        None,
    ),
    "setting misspelt": (["h1 -> h2: {«dely: 1ms}"], "unknown key 'dely'", "delay"),
    "setting of a step misspelt": (
        ["h1 -> h2: {at 1s: {«dely: 1ms}}"],
        "unknown key 'dely'",
        "delay",
    ),
    "unknown host": (["«h1 -> h4: {}"], "no host 'h4'", "h3"),
    "both ways to itself": (["«h1 <-> h1: {}"], "itself", None),
    "twice": (["h1 -> h2: {}", "«h2 <-> h1: {}"], "h1 -> h2 is given twice: first on line 5", None),
    "no link": (["«h1 - h2: {}"], "A -> B", None),
    "mover": (["mover: «xpd", "emulate: true"], "not known here", "xdp"),
    "seed": (["seed: «1.5"], "whole number", None),
    "emulate": (["emulate: «yes"], "true or false", "true"),
    "netem and a step that it has not": (
        ["mover: netem", "h1 -> h2: {delay: 1ms, at 1s: {loss: «{every: 10}}}"],
        "netem does not count packets. Use mover: auto",
        None,
    ),
    "netem and a step that does not go with what was before": (
        [
            "mover: netem",
            "h1 -> h2: {rate: 1Mbit, queue: 9packets, at 1s: {loss: 1%}, «at 2s: {delay: 1ms}}",
        ],
        "netem counts those on the wire as well",
        None,
    ),
    "netem and a wait": (
        ["mover: netem", "wait: «spin", "h1 -> h2: {delay: 1ms}"],
        "netem has no wait",
        None,
    ),
    "netem and a message number": (
        ["mover: netem", "message: «{offset: 4B}", "h1 -> h2: {delay: 1ms}"],
        "netem has no message",
        None,
    ),
    "message number too wide": (
        ["message: {width: «9B}", "h1 -> h2: {delay: 1ms}"],
        "8B",
        None,
    ),
    "netem and opportunities": (
        ["mover: netem", "h1 -> h2: {opportunities: «when}"],
        "netem does not have it",
        None,
    ),
    "netem and a seed": (
        ["mover: netem", "seed: «5", "h1 -> h2: {delay: 1ms}"],
        "netem",
        None,
    ),
    "table without deviation": (
        ["h1 -> h2: {delay: 1ms, «jitter: {table: shape}}"],
        "'deviation' is missing",
        None,
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_mistake_one_problem(network, tmp_path, mistake):
    for name, text in {**FILES, "holes": "1\n\n2\n"}.items():
        (tmp_path / name).write_text(text)
    lines, message, hint = MISTAKES[mistake]
    before = network(*lines).read_text(encoding="utf-8").partition("«")[0]
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    path = network(*(line.replace("«", "") for line in lines))
    problems = [p for p in experiment.check(path) if p.severity == "error"]
    told = "\n".join(map(format_problem, problems))
    assert [(p.line, p.column) for p in problems] == [place], told
    assert message in problems[0].message, told
    assert problems[0].hint == hint, told


def test_the_router_needs_an_address(network):
    narrow = ["clock: 10.78.0.0/30", "data: 10.77.0.0/29"]
    path = network(*narrow, "emulate: true")
    path.write_text(path.read_text().replace("[h1, h2, h3]", "[h1, h2]").replace("h3", "h2"))
    (problem,) = [p for p in experiment.check(path) if p.severity == "error"]
    assert "has 2 addresses for 2 hosts and the router" in problem.message
    path.write_text(path.read_text().replace("emulate: true", "emulate: false"))
    assert experiment.check(path) == []


@pytest.mark.parametrize(("old", "new"), [("[h1,", "[_router, h1,"), ("  a: {", "  _links: {")])
def test_the_routers_names_are_its_own(network, old, new):
    path = network("emulate: true")
    path.write_text(path.read_text().replace(old, new))
    assert any("cannot name" in problem.message for problem in experiment.check(path))


CHANGES = {
    ("h2", "delay=1ms"): "write 'A -> B'",
    ("h1 -> h2", "dely=1ms"): "did you mean delay?",
    ("h1 -> h2", "delay"): "write delay=VALUE",
    ("h1 -> h2", "delay="): "write delay=VALUE",
    ("h1 -> h2", "delay=5"): "has no unit",
    ("h1 -> h2", "loss=120%"): "at most 100%",
    ("h1 -> h2", "loss={"): "not valid YAML",
    ("h1 -> h2", "loss={evry: 5}"): "{every: 100}",
    ("h1 -> h2", "delay=1ms", "delay=2ms"): "given twice",
    ("h1 -> h2", "delays=nowhere"): "cannot be read",
    ("h1 -> h2",): "nothing to change",
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_that_is_none_says_why(words):
    with pytest.raises(ValueError, match=r".") as refused:
        experiment.link_change(words[0], words[1:])
    assert CHANGES[words] in str(refused.value)


def test_a_change_is_read_as_the_file_is(tmp_path, monkeypatch):
    (tmp_path / "lost").write_text("0\n1\n")
    monkeypatch.chdir(tmp_path)
    pairs, change = experiment.link_change(
        "h2<->h3", ["delay=200ms", "jitter={uniform: 1ms}", "loss={trace: lost}", "rate=none"]
    )
    assert pairs == [("h2", "h3"), ("h3", "h2")]
    assert change == {
        "delay_ns": 200_000_000,
        "jitter": {"distribution": "uniform", "ns": 1_000_000, "correlation": 0},
        "loss": {"kind": "trace", "path": str(tmp_path / "lost")},
        "rate_bps": None,
    }


LOOP = """\
measure:
  paths:
    loop: {events: [a/x:out, b/x:in, b/x:on, c/x:in, c/x:back, a/x:end]}
    short: {events: [a/x:out, b/x:in]}
"""
MARGIN = 200_000_000


@pytest.mark.parametrize(
    ("lines", "drain_ns"),
    [
        ([], MARGIN),
        (["emulate: true"], MARGIN),
        (["h1 -> h2: {delay: 20ms}"], MARGIN + 20_000_000),
        # What a message meets one after the other, and of each link its slowest settings.
        (
            ["h1 -> h2: {delay: 20ms, at 1s: {delay: 80ms}}", "h2 -> h3: {delay: 5ms}"],
            MARGIN + 85_000_000,
        ),
        # No path takes it, but other messages may.
        (["h3 -> h2: {delay: 70ms}"], MARGIN + 70_000_000),
        (["h1 -> h2: {delay: 20ms, jitter: {uniform: 2ms}}"], MARGIN + 22_000_000),
        (["h1 -> h2: {rate: 10Mbit, queue: 100ms}"], MARGIN + 100_000_000),
        (["h1 -> h2: {rate: 8Mbit, queue: 100kB}"], MARGIN + 100_000_000),
    ],
)
def test_a_run_waits_for_what_its_links_can_hold(network, lines, drain_ns):
    path = network(*lines or ["wait: sleep"])
    path.write_text(path.read_text() + LOOP)
    assert experiment.load(path).drain_ns == pytest.approx(drain_ns, abs=10)
    path.write_text(path.read_text() + "drain: 2s\n")
    plan = experiment.load(path)
    assert plan.drain_ns == 2_000_000_000
    assert experiment.from_manifest(plan.to_manifest()).drain_ns == plan.drain_ns


def test_a_share_without_its_unit_is_offered_per_cent(network):
    (problem,) = experiment.check(network("h1 -> h2: {loss: 1}"))
    assert "'1' has no unit" in problem.message and "such as 1%" in problem.message
