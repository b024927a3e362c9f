"""`report --csv` prints the table of paths and hops of a run and nothing else."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

from typer.testing import CliRunner

sys.path.append(str(Path(__file__).resolve().parents[1] / "graph"))
from recorded_run import write_run  # noqa: E402

from loopscope.cli import app  # noqa: E402


def test_it_has_the_numbers_of_the_json(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    done = CliRunner().invoke(app, ["report", str(run), "--csv"])
    rows = list(csv.DictReader(done.stdout.splitlines()))
    results = json.loads((run / "results.json").read_text())
    wholes = {row["path"]: row for row in rows if not row["hop"] and not row["repeat"]}
    assert wholes.keys() == results["paths"].keys() != set()
    for name, path in results["paths"].items():
        assert [wholes[name][key] for key in ("count", "lost", "max_ns")] == [
            str(path[key]) for key in ("count", "lost", "max_ns")
        ]


def test_one_format_at_a_time(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--csv", "--json"])
    assert done.exit_code == 2
    assert "--json and --csv exclude each other" in done.stderr
