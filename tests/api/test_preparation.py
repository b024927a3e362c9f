"""What a run has prepared is all that judging imports."""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "graph"))

CODE = """
import json, sys
from pathlib import Path
from loopscope import pipeline, preparation
from loopscope.cli import results
from loopscope.control import Silent
from loopscope.pandas_import import avoid_pandas

for step in preparation.steps(avoid_pandas):
    step()
before = set(sys.modules)
results.show(pipeline.report(Path(sys.argv[1]), None, Silent()))
of_judging = ("duckdb", "jinja2", "loopscope", "numpy", "pyarrow", "scipy")
later = [name for name in set(sys.modules) - before if name.split(".")[0] in of_judging]
print("\\n" + json.dumps(["pandas" in sys.modules, later]))
"""


def test_judging_imports_nothing_that_was_not_prepared(tmp_path: Path) -> None:
    from recorded_run import write_run

    words = [sys.executable, "-c", CODE, write_run(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported_pandas, later = json.loads(done.stdout.splitlines()[-1])
    # Nothing looked for it before pyarrow was kept from that.
    assert not imported_pandas
    # Pages of sweeps are not prepared, and a report imports them before it begins.
    allowed = {"loopscope.report.sweep_page", "loopscope.report.sweep_rows"}
    assert sorted(set(later) - allowed) == []
