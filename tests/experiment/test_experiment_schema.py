from pathlib import Path

import pytest
import yaml

from loopscope import experiment
from loopscope.experiment import schema

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


@pytest.mark.parametrize("name", schema.published())
def test_the_published_schemas_are_the_code_s(root, name):
    published = (root / "schema" / name).read_text(encoding="utf-8")
    assert published == schema.published()[name], (
        "run: python -m loopscope.experiment.schema schema"
    )


def test_every_key_is_described():
    made = experiment.json_schema()
    sections = made["$defs"]
    keys = {}
    for section in [made, *sections.values()]:
        for name, key in section["properties"].items():
            keys[name] = sections[key["$ref"].rsplit("/", 1)[-1]] if "$ref" in key else key
    assert {"hosts", "timeout", "mtu", "seed", "with", "exit", "kernel"} <= set(keys)
    assert [name for name, key in keys.items() if not key.get("description")] == []


def validator(made):
    jsonschema = pytest.importorskip("jsonschema", reason="SKIPPED: needs the package jsonschema")
    return jsonschema.Draft202012Validator(made)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXPERIMENTS.glob("*.yaml")))
def test_the_shipped_experiments_are_valid(root, name):
    path = root / f"experiments/{name}.yaml"
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert list(validator(experiment.json_schema()).iter_errors(given)) == []
    manifest = experiment.load(path).to_manifest()
    assert list(validator(experiment.manifest_schema()).iter_errors(manifest)) == []


@pytest.mark.parametrize(
    ("replacement", "valid"),
    [
        (("60s", "$period"), True),
        (("60s", "60"), False),
        (("60s", "60sec"), False),
        (("measured: true", "measured: $count"), True),
        (("measured: true", "measurd: true"), False),
        (("{loss: 0%}", "{loss: 1%, at 30s: {loss: none}}"), True),
        (("{loss: 0%}", "{loss: {gilbert-elliott: {p: 1%, r: 30%}}, rate: $period}"), True),
        (("{loss: 0%}", "{loss: {gilbert-elliott: {p: 1%}}}"), False),
        (("{loss: 0%}", "{loss: 1}"), False),
        (("{loss: 0%}", "{queue: 100packets, jitter: {pareto: 1ms}, reorder: by-jitter}"), True),
        (("{loss: 0%}", "{queue: {limit: 64kB, discipline: codel}}"), True),
        (("{loss: 0%}", "{queue: 100}"), False),
        (("{loss: 0%}", "{at 30s: {delay: 5}}"), False),
        (("h1 -> h2: {loss", "h1 -> h2: {los"), False),
        (("--to, a]}", "--to, a], ready: {exit: 0}}"), True),
        (("--to, a]}", "--to, a], ready: {exit: 0, port: 1}}"), False),
        (("hosts: [", "clocks: {synthetic: {seed: 1}}\nhosts: ["), True),
        (("hosts: [", "clocks: real\nhosts: ["), False),
        (("b/s:in", "b/in"), False),
        (('["s:*"]', '["s:*"], streams: {r: {kind: flight-recorder, post: 1s}}'), True),
        (('["s:*"]', '["s:*"], streams: {r: {kind: ring}}'), False),
        (('["s:*"]', '["s:*"], streams: {r: {buffer: 4}}'), False),
        (('["s:*"]', '["s:*"], streams: {r: {triggers: [{path: loop, over: 1ms}]}}'), True),
        (('["s:*"]', '["s:*"], streams: {r: {triggers: [{path: loop}]}}'), False),
        (('["s:*"]', '["s:*"], streams: {r: {triggers: [{entities: "s:*"}]}}'), True),
        (("hosts: [h1, h2]", "hosts: [h1, h.2]"), False),
    ],
)
def test_the_schema_judges_as_the_code_does(changed, replacement, valid):
    path = changed(replacement)
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert (list(validator(experiment.json_schema()).iter_errors(given)) == []) == valid
