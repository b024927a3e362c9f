"""docs/guide/frame-graphs.md, command by command."""

from __future__ import annotations

import re
import textwrap

import pytest
from loopscope_video.graph import Graph
from loopscope_video.nodes import KINDS
from machine import ROOT, Machine

from loopscope.timeline import open_run

PAGE = (ROOT / "docs/guide/frame-graphs.md").read_text()
FOLDER = ROOT / "docs/guide/frame-graphs"

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]


def test_the_guides_commands(machine: Machine) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    (machine.directory / "docs").symlink_to(ROOT / "docs")
    machine.write("graph.py", program)
    machine.environment["LOOPSCOPE_STM"] = str(machine.directory / "channels/socket")
    activate = f"PATH={machine.directory}/.venv/bin:$PATH\n"
    # The program uses the service as well.
    blocks[1] = blocks[1].replace("kill $SERVICE", "python graph.py\nkill $SERVICE")
    done = machine.guide(activate, *blocks, timeout_s=180)
    told = re.findall(r"^graph: (\w+): (\d+) in, (\d+) out, ", done.stdout, re.M)
    assert len(told) == 16 and len({name for name, *_ in told}) == 8
    # Each of 100 pictures is there or was passed over; a busy machine passes many over.
    assert all(int(given) > 10 for name, _, given in told if name != "file"), told
    assert all(int(taken) > 10 for name, taken, _ in told if name == "file"), told
    assert re.search(r"^\d+ in, \d+ out, \d+ passed over", done.stdout, re.M)
    pictures = {int(path.stem) for path in (machine.directory / "pictures").iterdir()}
    assert max(pictures) > 100  # of the second graph, whose times go on
    run = open_run(machine.directory / "runs/frame-graph/latest")
    got = run.relation("camera.got").project("process, id").fetchall()
    assert {process for process, _ in got} == {"near", "far"}
    assert len(run.relation("jpeg.put")) > 10
    for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        files = "".join((FOLDER / f"{name}.yaml").read_text() for name in ("graph", "two-hosts"))
        assert textwrap.dedent(text) in files


def test_the_page_names_every_kind_and_its_settings() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", PAGE, re.M)
    told = {kind: set(re.findall(r"`(\w+)`", settings)) for kind, settings in rows}
    assert told == {kind: set(model.model_fields) for kind, model in KINDS.items()}
    assert len(Graph.load(FOLDER / "graph.yaml").nodes) == 8
