"""No text gives a traceback: only a plan or problems with a place."""

import json
import random

import pytest
from effort import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopscope.experiment import Experiment, format_problem
from loopscope.experiment.document import from_text
from loopscope.experiment.yaml_tree import _MOST_VALUES

SHIPPED = ["pipeline", "stimulus-response"]

PIECES = [
    "name", "hosts", "params", "network", "components", "phases", "trace", "measure", "paths",
    "expect", "repeat", "clocks", "clock", "default", "h1 -> h2", "run", "with", "ready", "after",
    "h1 <-> h2", "at 1s", "delay", "loss", "jitter", "queue", "none",
    "&a ", "*a", "<<: *a", "!!str ", "!x ", "? ", "- ", ": ", "\n", "\n  ", "\n    ", "[", "]", "{",
    "}", ",", '"', "'", "|", ">", "%", "@", "$", "$count", "${", "$$", "~", "null", "true", "5ms",
    "1e999", "0x1", "9" * 30, "9" * 5000, "\t", "#", "---", "...", "\\", '"\\UFFFFFFFF"', '"\\0"',
    '"\\ud800"', "\ufeff", "\x85", "\x07", "é", "loop.p99 < 5ms", "loop[a/b:c -> d/e:f].max < 1s",
    "loop < 1s for 9%, no two misses in a row", "a/b:c every 2ms within 1ms", "loop complete",
]  # fmt: skip

WORDS = [
    "loop", "lop", "bytes", "a/s:out", "b/s:in", "a/b", "[", "]", " -> ", " before ", ".", "p99",
    "age", "rate", "jitter", "lost", "<", "<=", ">", "==", "!=", "=<", "10ms", "2", "490Hz",
    "99.9%", "100%", "0.00000001%", " every ", " within ", " in order", " complete", " symmetric",
    " for ", " after ", " between ", " and ", ",", " no ", "two", "3", "0", "9" * 30,
    " misses in a row", " miss", " at most ", " misses in any ", "100", " ", "\t", "\n", "é",
    "\0", "h1.realtime.offset", "hosts", "-", "%", "for",
]  # fmt: skip

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(PIECES) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(PIECES) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def holds(text, overrides=None):
    plan, problems = from_text(text, "f.yaml", overrides or {})
    lines = text.count("\n") + text.count("\r") + text.count("\x85") + 2
    lines += text.count("\u2028") + text.count("\u2029")
    for problem in problems:
        assert 1 <= problem.line <= lines
        assert problem.column >= 1
        assert problem.message
        assert len(format_problem(problem).splitlines()) == 1
    if plan is None:
        assert any(problem.severity == "error" for problem in problems)
    else:
        assert isinstance(plan, Experiment)
        assert all(problem.severity == "warning" for problem in problems)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text(text):
    holds(text)


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@settings(max_examples=cases(150, 5000))
def test_pieces_of_yaml_in_any_order(text):
    holds(text)


@pytest.mark.parametrize("name", SHIPPED)
@given(edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), st.sampled_from(PIECES))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=cases(60, 1500))
def test_a_shipped_experiment_cut_and_pasted(root, name, edits):
    text = (root / f"experiments/{name}.yaml").read_text(encoding="utf-8")
    for where, cut, piece in edits[:4]:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + cut :]
    holds(text)


@pytest.mark.parametrize("name", SHIPPED)
@given(value=values, seed=st.integers(0, 10**6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=cases(60, 1500))
def test_any_value_in_any_place(root, name, value, seed):
    import yaml

    data = yaml.safe_load((root / f"experiments/{name}.yaml").read_text(encoding="utf-8"))
    choose = random.Random(seed)
    inner = data
    while True:
        places = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        place = choose.choice(places)
        if not isinstance(inner[place], dict | list) or not inner[place] or choose.random() < 0.2:
            inner[place] = value
            break
        inner = inner[place]
    holds(yaml.safe_dump(data, allow_unicode=True, sort_keys=False))


EXPECTING = """\
name: x
hosts: [h1, h2]
components: {a: {host: h1, run: x}, b: {host: h2, run: x}}
phases: [{name: run, timeout: 1s}]
trace: {user: ["s:*"]}
measure:
  values: {bytes: {of: "s:out", field: size, stat: sum, unit: B}}
  paths: {loop: {events: [a/s:out, b/s:in, b/s:out, a/s:in]}}
expect: [%s]
"""


@given(st.lists(st.sampled_from(WORDS), max_size=14).map("".join) | st.text(max_size=12))
@settings(max_examples=cases(150, 6000))
def test_any_expectation(line):
    text = EXPECTING % json.dumps(line)
    holds(text)
    plan, _ = from_text(text, "f.yaml", {})
    if plan is not None:
        again, _ = from_text(EXPECTING % json.dumps(plan.expectations[0].text), "f.yaml", {})
        assert again.expectations == plan.expectations


@given(
    st.sampled_from(
        [
            "loop < 10ms after 3s for 99.9%, no two misses in a row, at most 2 misses in any 100",
            "loop[a/s:out before b/s:in] for 99%, no 3 misses in a row",
            "a/s:out every 2ms within 100us between 3s and 40s",
            "loop[a/s:out -> b/s:in].p99 < 5ms between 30s and 60s",
            "loop symmetric within 20us",
            "loop.age < 20ms",
            "a/s:out.jitter < 5us after 3s",
        ]
    ),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 5), st.sampled_from(["", *WORDS])), max_size=3
    ),
)
@settings(max_examples=cases(150, 5000))
def test_an_expectation_cut_and_pasted(line, edits):
    assert from_text(EXPECTING % json.dumps(line), "f.yaml", {})[0] is not None
    for where, cut, piece in edits:
        at = int(where * len(line))
        line = line[:at] + piece + line[at + cut :]
    holds(EXPECTING % json.dumps(line))


@given(st.dictionaries(st.text(max_size=8) | st.sampled_from(["period", "count"]), st.text()))
def test_any_override(overrides):
    holds("name: x\nparams: {period: 2ms, count: 5}\n", overrides)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "{a: " * 60 + "1" + "}" * 60,
        "- " * 3000 + "a",
        "a: &a {<<: *a}",
        "a: &a\n  ? *a\n  : b",
        "%YAML " + "9" * 5000 + ".1\n---\na: 1",
        "%TAG ! x\n---\n!a b",
        "!<%zz> a",
        "a: " + "9" * 100000,
        "a: 0x" + "f" * 100000,
        "a: \0",
        "\ufeff\ufeffname: a",
        "[x" + ", x" * _MOST_VALUES + "]",
    ],
)
def test_texts_that_break_readers(text):
    holds(text)
