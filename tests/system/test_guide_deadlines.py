"""docs/guide/deadlines.md: its commands, its experiment, and that it tells the whole language."""

from __future__ import annotations

import json
import math
import re
import shutil
from typing import get_args

import pytest
from machine import ROOT, Machine

from loopscope.analysis.messages import MOVE_NS
from loopscope.experiment.expect_lines import OF_EVENTS, Kind, parse_line
from loopscope.experiment.statistic_names import SPELLINGS
from loopscope.timeline import open_run

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/deadlines.md").read_text()
FILE = (ROOT / "docs/guide/deadlines/deadlines.yaml").read_text()
FORMS = {
    "PATH.STAT": "way.p99",
    "PATH": "way",
    "COMPONENT/GROUP:NAME": "a/b:c",
    "EVENT every": "a/b:c every",
    "EVENT.": "a/b:c.",
    "EVENT before EVENT": "a/b:c before d/b:e",
    "FREQUENCY": "490Hz",
    "HOST": "h1",
    "every TIME within TIME": "every 2ms within 1ms",
    "TIME": "2ms",
}


def test_what_is_shown_is_in_the_file() -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert FILE.endswith(shown)


def test_every_form_that_the_tables_name_is_one() -> None:
    """And every kind of requirement and statistic is named."""
    kinds, told = set(), set()
    for form in re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE):
        if form.startswith(("NAME", "for", ",")):
            continue
        line = form
        for name, example in FORMS.items():
            line = line.replace(name, example)
        found = parse_line(line)
        kinds.add(getattr(found, "kind", None))
        told.add(getattr(found, "stat", None))
    assert kinds - {None} == set(get_args(Kind))
    assert {"rate", "jitter", "lost"} <= told and set(OF_EVENTS) <= told
    for stat in set(SPELLINGS) - {"p999"}:
        assert f"`{stat}`" in PAGE
    for clause in re.findall(r"^\| `(for [^`]+|, [^`]+)` \|", PAGE, re.MULTILINE):
        joint = "" if clause.startswith(",") else " "
        assert parse_line(f"way < 2ms{joint}{clause}").text


@pytest.mark.usefixtures("root")
def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    shutil.copytree(ROOT / "docs/guide/deadlines", home / "docs/guide/deadlines")
    (home / "runs").mkdir()
    (home / "docs/guide/deadlines/runs").symlink_to(home / "runs")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    done = machine.guide("".join(blocks), timeout_s=300, forks=True)
    assert "exit status 1" in done.stdout
    read = json.loads((home / "runs/deadlines/latest/results.json").read_text())
    found = {each["text"]: each for each in read["expectations"]}
    # What the link does is sure; how fast a shared machine is, is not this test's business.
    slow, missing, order = (
        found[line]
        for line in (
            "way < 20ms for 98%, at most 2 misses in any 100",
            "way complete",
            "way in order",
        )
    )
    assert (slow["verdict"], missing["verdict"]) == ("FAIL", "FAIL")
    assert order["counts"]["missed"] == 0, order
    assert order["verdict"] == ("UNKNOWN" if order["reason"] else "PASS"), order
    # A thread's stamps are in the order of its events unless a clock is in doubt: it was disturbed,
    # or the machine was so busy that its processors' counters could not be compared.
    hosts = open_run(home / "runs/deadlines/latest").relation("hosts").to_arrow_table()
    sound = [
        not math.isnan(row["drift_ppm"]) and row["apart_ns"] <= MOVE_NS for row in hosts.to_pylist()
    ]
    if all(sound) and read["loss"]["dropped"] == 0:
        assert order["verdict"] == "PASS", (order, hosts.to_pylist())
    assert missing["counts"]["missed"] == read["paths"]["way"]["lost"] >= 7
    assert slow["counts"]["missed"] >= missing["counts"]["missed"] + 50
    assert sum(slow["counts"].values()) == read["paths"]["way"]["count"]
    for text, each in found.items():
        assert re.search(rf"^{each['verdict']} +{re.escape(text)}  ", done.stdout, re.MULTILINE)
