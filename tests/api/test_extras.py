"""What works without the optional packages, and what a command says that needs one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import loopscope
from loopscope.extras import EXTRAS

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "graph"))

# Hides the packages of all extras, and what tests alone install.
HOOK = f"""
import sys
HIDDEN = {sorted({*EXTRAS, "plotly", "polars", "IPython", "pytest"})}
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""
FIGURES = """
figures:
  response: {x: time, y: loop}
"""
COMMAND = "from loopscope.cli import main; main()"


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """An environment in which Python finds none of the optional packages."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    installed = Path(loopscope.__file__).parents[1]
    path = f"{tmp_path / 'hook'}:{installed}:{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, "PYTHONPATH": path}


def command(alone: dict[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *words],
        env=alone,
        capture_output=True,
        text=True,
        check=False,
    )


def test_runs_are_read_judged_and_reported_without_extras(
    alone: dict[str, str], tmp_path: Path
) -> None:
    from recorded_run import write_run

    run = write_run(tmp_path / "run")
    done = command(alone, "report", run)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 1, 3), done.stderr
    assert "report:" in done.stdout and (run / "report.html").stat().st_size > 100_000
    done = command(alone, "query", run, "SELECT count(*) AS n FROM paths.loop")
    assert done.returncode == 0, done.stderr
    code = f"""
import loopscope as ls
run = ls.open_run({str(run)!r})
print(run.verdict, len(run._repr_html_()), run.paths["loop"].messages.to_pandas().shape)
print(len(ls.check({str(ROOT / "experiments/pipeline.yaml")!r})), len(ls.runs({str(tmp_path)!r})))
try:
    run.figure("ccdf", "loop")
except ls.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'loopscope[figures]'" in done.stdout


def test_own_figures_are_left_out_with_a_note(alone: dict[str, str], tmp_path: Path) -> None:
    """The page, which has them too, is made."""
    from recorded_run import EXPERIMENT, write_run

    run = write_run(tmp_path / "run")
    other = tmp_path / "other.yaml"
    other.write_text(EXPERIMENT.replace("CLOCK", "") + FIGURES)
    done = command(alone, "report", run, "--experiment", other)
    assert "pip install 'loopscope[figures]'" in done.stderr, done.stderr
    assert done.returncode in (0, 1, 3) and "Traceback" not in done.stderr
    assert "response" in (run / "report.html").read_text()
    assert not (run / "figures" / "response.svg").exists()


@pytest.mark.parametrize(
    "words, extra",
    [
        (["figure", "RUN", "ccdf", "loop"], "figures"),
        (["export", "RUN", "--to", "perfetto"], "exports"),
        (["run", str(ROOT / "experiments/pipeline.yaml")], "testbed"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    alone: dict[str, str], home: Path, tmp_path: Path, words: list[str], extra: str
) -> None:
    run = str(home / "runs/pipeline/latest")
    done = command(alone, *(run if word == "RUN" else word for word in words))
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.strip().splitlines()
    assert line.startswith("loopscope: ")
    assert line.endswith(f"which is not installed: pip install 'loopscope[{extra}]'")


def test_what_reads_runs_does_not_import_the_optional_packages(home: Path) -> None:
    """Not even where they are installed: they are slow."""
    code = """
import json, sys
import loopscope as ls, loopscope.cli, loopscope.pipeline
import loopscope.report.page, loopscope.graph.stored_analyses
ls.check("experiments/pipeline.yaml")
run = ls.open_run("runs/pipeline/latest")
run.sql("SELECT count(*) FROM hops").to_pyarrow()
run._repr_html_()
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not {"grpc", "matplotlib", "perfetto", "pyspark"} & set(json.loads(done.stdout))


# Says on standard error whether the command imported pandas, and whether pyarrow takes a series.
WITH_PANDAS = """
import sys
import loopscope.cli
try:
    loopscope.cli.main()
finally:
    print("pandas" in sys.modules, file=sys.stderr)
    import pandas, pyarrow
    from loopscope.pandas_import import allow_pandas
    allow_pandas()
    print(pyarrow.table(pandas.DataFrame({"a": [1]})).num_rows, file=sys.stderr)
"""


@pytest.mark.parametrize("verb", ["report", "why"])
def test_a_command_that_needs_no_pandas_does_not_import_it(
    tmp_path: Path, verb: str, home: Path
) -> None:
    """Though pyarrow looks for it."""
    from recorded_run import write_run

    words = [verb, write_run(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", WITH_PANDAS, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1, 2, 3) and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.splitlines()[-2:] == ["False", "1"]


def test_the_packages_extras_are_those_of_the_module() -> None:
    """pyproject.toml and loopscope.extras name the same extras."""
    text = (ROOT / "pyproject.toml").read_text()
    [section] = re.findall(r"\[project.optional-dependencies\]\n(.*?)\n\n", text, re.DOTALL)
    names = re.findall(r"^(\w+) = ", section, re.MULTILINE)
    assert set(names) == {extra for extra, _ in EXTRAS.values()} | {"all"}
    assert f"loopscope[{','.join(name for name in names if name != 'all')}]" in section
    [base] = re.findall(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    for package in ("grpcio", "protobuf", "matplotlib", "perfetto", "pyspark"):
        assert package not in base and package in section
    assert "==" not in base + section
