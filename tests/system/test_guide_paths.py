"""docs/guide/paths.md, command by command, and what its loop must have measured."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import yaml
from machine import ROOT, Machine

from loopscope.timeline import open_run

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/paths.md").read_text()
FILE = ROOT / "docs/guide/paths/control.yaml"


def test_what_the_guide_shows_is_in_its_file() -> None:
    experiment = yaml.safe_load(FILE.read_text())
    shown = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for block in shown:
        for key, part in yaml.safe_load(block).items():
            assert experiment[key] == part


@pytest.mark.usefixtures("root")
def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    shutil.copytree(FILE.parent, home / "docs/guide/paths")
    file = home / "docs/guide/paths/control.yaml"
    # How fast a shared machine is, is not this test's business. That the controller says what it
    # used is: by number it must be what the stamps tell.
    text = re.sub(r"(p99|age|jitter) < \S+", r"\1 < 30s", file.read_text())
    text = text.replace("rate > 95Hz", "rate > 1Hz").replace("seconds: 5}", "seconds: 2}")
    # An estimate that is held up for longer than a step of the controller comes with the next one.
    text = text.replace("superseded == 0", "superseded < 60")
    by_number = "{controller/est:received: {use: latest, from: estimate}}"
    named = re.sub(r"(act:applied, join: )\{[^}]*\}", rf"\1{by_number}", text)
    named = named[named.index("    control:\n") : named.index("        - {event: controller/plan")]
    text = text.replace("\nexpect:", "\n" + named.replace("control:", "named:", 1) + "\nexpect:", 1)
    file.write_text(text)
    script = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S))
    done = machine.guide(script, timeout_s=180, forks=True)
    assert "controller/act:applied uses the latest controller/est:received, by time" in done.stdout
    graphs = json.loads((home / "docs/guide/paths/runs/control/latest/results.json").read_text())[
        "graphs"
    ]
    flows = [*graphs["control"]["edges"], *graphs["control"]["ends"]]
    for flow in flows:
        parts = ("used", "superseded", "lost", "unused", "undecided")
        assert flow["sent"] == sum(flow[part] for part in parts)
    to = {flow["to"]: flow for flow in graphs["control"]["ends"]}
    sent = to["controller/act:applied"]["sent"]
    assert sent == 60 and to["logger/cam:received"]["used"] == sent
    plan, step = to["controller/plan:made"], to["controller/act:applied"]
    # A plan is made every third frame or so.
    assert plan["superseded"] > 10 and plan["used"] < step["used"]
    # From the estimate's arrival on both ways of knowing what was used agree.
    [by_time] = [f for f in graphs["control"]["edges"] if f["to"] == "controller/act:applied"]
    [by_name] = [f for f in graphs["named"]["edges"] if f["to"] == "controller/act:applied"]
    assert (by_time["how"], by_name["how"]) == ("latest by time", "latest by estimate")
    assert abs(by_time["used"] - by_name["used"]) <= by_time["undecided"]
    folder = home / "docs/guide/paths/runs/control/latest/figures"
    drawn = {file.stem for file in folder.glob("*.csv")}
    age = "scatter-control-camera-cam-sent-controller-act-applied.age"
    assert drawn == {age, "waterfall-control"}
    assert (home / "docs/guide/paths/control.perfetto-trace").stat().st_size > 1000
    run = open_run(home / "docs/guide/paths/runs/control/latest")
    paths = {name: run.path_tables[name].to_pandas() for name in ("control", "named")}
    steps = {
        name: path[(path.sink == "controller/act:applied") & ~path.undecided]
        for name, path in paths.items()
    }
    both = steps["control"].merge(steps["named"], on=["repeat", "key_5"], suffixes=("", "_named"))
    assert len(both) > 100 and (both.key_4 == both.key_4_named).all()
    assert done.stdout.count("PASS") == 7, done.stdout
