"""The guide's notebook, as a reader would run it."""

from __future__ import annotations

import nbclient
import nbformat
import pytest
from machine import ROOT, Machine

pytestmark = pytest.mark.full

NOTEBOOK = ROOT / "docs/guide/a-run-in-a-notebook.ipynb"


@pytest.mark.usefixtures("root")
def test_the_notebook_runs(machine: Machine) -> None:
    file = ROOT / "experiments" / "pipeline.yaml"
    done = machine.command("run", file, "-p", "count=300")
    assert "report:" in done.stdout, done.stderr
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    here = {"metadata": {"path": str(machine.directory)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=here).execute()
    tables = [
        str(output)
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    assert any("pipe.received" in each for each in tables)
    assert (machine.directory / "loop-ccdf.svg").stat().st_size > 1000
