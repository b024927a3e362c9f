"""Experiments built in Python: the file's keys, checks and messages."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import loopscope as ls
from loopscope.experiment import load
from loopscope.experiment.problem import format_problem

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "experiments").glob("*.yaml"))
OWN: dict[str, Any] = {
    "name": "own",
    "hosts": ["h1"],
    "components": {"ping": {"host": "h1", "run": "true", "start": "run"}},
    "phases": [{"name": "run", "timeout": "5s"}],
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_keeps_its_meaning(file: Path, tmp_path: Path) -> None:
    """YAML to Experiment to YAML: the plan is the same, and so are the points of a sweep."""
    read = ls.Experiment.from_file(file)
    again = ls.Experiment.from_yaml(read.to_yaml(), folder=read.folder)
    assert again == read and again.to_yaml() == read.to_yaml()
    expected = meaning(load(file).to_manifest())
    assert meaning(read.plan({}).to_manifest()) == expected
    made = ls.Experiment(folder=read.folder, **read.keys)
    assert meaning(made.plan({}).to_manifest()) == expected


def meaning(manifest: dict[str, Any]) -> dict[str, Any]:
    """A plan without the places of its warnings: what is not a file has other ones."""
    warnings = [each["message"] for each in manifest.get("warnings", [])]
    return manifest | {"warnings": warnings}


def test_values_that_look_like_others_keep_their_type() -> None:
    odd = ["1e3", "no", "~", "true", "0x10", "1_0", "2026-01-01", "<<", "", " a ", "a: b", "#", "-"]
    values = {"text": odd, "lines": "a\n  b: c\n\n", "number": [1, -2, 1.5, 1e300, True]}
    text = ls.Experiment(description="x", params=values).to_yaml()
    assert ls.Experiment.from_yaml(text).keys["params"] == values


def test_numbers_keep_their_spelling(tmp_path: Path) -> None:
    """Programs are given 1.50 and 0x10 as they stand."""
    file = tmp_path / "own.yaml"
    text = ls.Experiment(**OWN).to_yaml().replace("run: 'true'", "run: [echo, 1.50, 0x10, 1e3]")
    file.write_text(text)
    read = ls.Experiment.from_file(file).replace(description="changed")
    [component] = load(read.save(tmp_path / "again.yaml")).components
    assert component.argv == ("echo", "1.50", "0x10", "1e3")


MISTAKES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"phase": []}, {}),
    ({"phases": [{"name": "run", "timeout": "5"}]}, {}),
    ({"components": {"ping": {"host": "h2", "run": "true"}}}, {}),
    ({"expect": ["loop.p99 < 5ms"]}, {}),
    ({"hosts": []}, {}),
    ({"hosts": None}, {}),
    ({"params": {"rate": "5ms"}}, {"rat": "6ms"}),
    ({"name": "no name"}, {}),
]


@pytest.mark.parametrize("change, params", MISTAKES)
def test_mistakes_have_the_files_messages(
    change: dict[str, Any], params: dict[str, str], tmp_path: Path
) -> None:
    built = ls.Experiment(**OWN, folder=tmp_path).replace(**change)
    file = built.save(tmp_path / "experiment.yaml")

    def without_place(problem: ls.Problem) -> ls.Problem:
        return dataclasses.replace(problem, file="", line=0, column=0)

    found = ls.check(built, params)
    assert found
    assert [without_place(each) for each in found] == [
        without_place(each) for each in ls.check(file, params)
    ]
    for problem in found:
        assert (problem.line, problem.column) == (0, 0)
        assert format_problem(problem).startswith(f"experiment {built.name}: ")
    if any(problem.severity == "error" for problem in found):
        with pytest.raises(ls.ExperimentErrors, match=f"experiment {built.name}"):
            ls.run(built, params)


@pytest.mark.parametrize(
    "value, where",
    [
        ({"phases": [{"timeout": timedelta(seconds=5)}]}, r"phases\[0\].timeout"),
        ({"params": {"x": float("nan")}}, "params.x"),
        ({"params": {1: "x"}}, "params: the key 1"),
    ],
)
def test_a_value_without_a_form_in_yaml_is_refused(value: dict[str, Any], where: str) -> None:
    with pytest.raises(TypeError, match=where):
        ls.Experiment(**value)


def test_its_keys_are_a_copy() -> None:
    given = {**OWN, "hosts": ["h1"]}
    built = ls.Experiment(**given)
    given["hosts"].append("h2")
    built.keys["hosts"].append("h3")
    assert built.keys["hosts"] == ["h1"]
    assert built.replace(hosts=["h4"]) != built and built.replace() == built


def test_text_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    for text in ("- 1", "a: [", ""):
        with pytest.raises(ls.ExperimentErrors):
            ls.Experiment.from_yaml(text)
    with pytest.raises(ls.ExperimentErrors, match="cannot read"):
        ls.Experiment.from_file(tmp_path / "none.yaml")
