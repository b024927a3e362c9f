"""docs/guide/applications.md, command by command, and points of its sweeps."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import yaml
from loopscope_video.graph import Graph
from machine import ROOT, Machine

PAGE = (ROOT / "docs/guide/applications.md").read_text()
EXPERIMENTS = ROOT / "experiments"

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("root")]


def test_the_guides_commands(machine: Machine) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    (machine.directory / "experiments").symlink_to(EXPERIMENTS)
    machine.environment["LOOPSCOPE_STM"] = str(machine.directory / "channels/socket")
    activate = f"PATH={machine.directory}/.venv/bin:$PATH\n"
    done = machine.guide(activate, *blocks, timeout_s=180)
    told = re.findall(
        r"^graph: (\w+): (\d+) in, (\d+) out, 0 passed over, 0 lost", done.stdout, re.M
    )
    assert len(told) == 5
    counts = {name: (int(taken), int(given)) for name, taken, given in told}
    # Each picture of the free-running source has come through.
    assert counts["pictures"][1] == counts["found"][1] == counts["analysis"][0] > 50
    results = json.loads(
        (machine.directory / "runs/motion-mixer-clients/latest/results.json").read_text()
    )
    values = {name: each["value"] for name, each in results["values"].items()}
    assert values == {"least": 1, "most": 4, "at_the_end": 1}
    puts = {each["component"] for each in results["channels"]["uses"] if each["event"] == "put"}
    assert puts == {"mixer", "client1", "client2", "client2_again", "client3"}


def test_the_page_shows_what_the_files_have() -> None:
    files = [*EXPERIMENTS.glob("motion-mixer*.yaml"), EXPERIMENTS / "colour-tracker.yaml"]
    files += (EXPERIMENTS / "video").glob("*.yaml")
    texts = "".join(path.read_text() for path in files)
    shown = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(shown) == 7
    for text in shown:
        assert text in texts, text
    for path in (EXPERIMENTS / "video").glob("*.yaml"):
        Graph.load(path)


@pytest.mark.parametrize("name", ["motion-mixer", "colour-tracker"])
def test_both_placements_of_the_smallest_pictures(machine: Machine, name: str) -> None:
    experiment = yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text())
    experiment["sweep"] = experiment["sweep"][:2]
    experiment["params"]["duration"] = 1
    machine.write(f"{name}.yaml", json.dumps(experiment))
    shutil.copytree(EXPERIMENTS / "video", machine.directory / "video")
    done = machine.command("run", f"{name}.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((machine.directory / f"runs/{name}/latest/results.json").read_text())
    one, several = results["points"]
    for point in (one, several):
        threads = {each["component"] for each in point["channels"]["threads"]}
        programs = {name for name, each in experiment["components"].items() if "run" in each}
        assert threads >= programs
    hosts = [{each["host"] for each in point["channels"]["channels"]} for point in (one, several)]
    assert hosts[0] == {"h1"} and len(hosts[1]) == len(experiment["channels"])
