"""What loopscope writes as JSON is JSON: NaN and Infinity are in no file and on no output."""

from __future__ import annotations

import ast
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from loopscope import strict_json
from loopscope.cli import app

sys.path.append(str(Path(__file__).resolve().parents[1] / "analysis"))
from synthetic_run import pipeline  # noqa: E402

PACKAGE = Path(strict_json.__file__).parent
WRITERS = {"strict_json.py", "phase.py"}
"""The one place that writes JSON; a program's helper, which imports nothing of loopscope's."""

VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


def refuse(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def strictly(text: str) -> Any:
    return json.loads(text, parse_constant=refuse)


def not_finite(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(not_finite, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(not_finite, value))
    return isinstance(value, float) and not math.isfinite(value)


def blanked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: blanked(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [blanked(each) for each in value]
    return None if not_finite(value) else value


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_numbers_that_are_not_finite_are_refused_or_counted(value: Any) -> None:
    text, count = strict_json.to_json_or_null(value)
    assert count == not_finite(value)
    assert strictly(text) == blanked(value)
    if count:
        with pytest.raises(ValueError):
            strict_json.to_json(value)
    else:
        assert strictly(strict_json.to_json(value)) == blanked(value)


def test_there_is_one_place_that_writes_json() -> None:
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "json." in text or "json import" in text else ():
            place = f"{file.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ImportFrom):
                assert node.module != "json", f"{place}: import the module, so that uses are seen"
            if not isinstance(node, ast.Call):
                continue
            of, name = getattr(node.func, "value", None), getattr(node.func, "attr", "")
            if isinstance(of, ast.Name) and of.id == "json" and not name.startswith("load"):
                assert str(file.relative_to(PACKAGE)) in WRITERS, f"{place}: use strict_json"
                strict = {each.arg: ast.unparse(each.value) for each in node.keywords}
                assert strict.get("allow_nan") == "False", place


NESTED = """
select 'nan'::double as a, [1.5, '-inf'::double] as b, map {'k': 'inf'::double} as c,
  {'x': 'nan'::float, 'y': [{'z': 'inf'::float}]} as d, 2.5 as e
from range(3)
"""


def test_a_query_says_how_many_numbers_json_has_no_form_for(tmp_path: Path) -> None:
    run = pipeline(tmp_path, messages=20).write()
    done = CliRunner().invoke(app, ["query", str(run), NESTED, "--json"])
    assert done.exit_code == 0, done.output
    nested = {"a": None, "b": [1.5, None], "c": [["k", None]]}
    row = {**nested, "d": {"x": None, "y": [{"z": None}]}, "e": 2.5}
    assert [strictly(line) for line in done.stdout.splitlines()] == [row] * 3
    assert done.stderr == (
        "loopscope: 15 values that are NaN or infinite are null: JSON has no form for them\n"
    )
    done = CliRunner().invoke(app, ["query", str(run), "select 1.5 as a, null as b", "--json"])
    assert strictly(done.stdout) == {"a": 1.5, "b": None}
    assert done.stderr == ""
