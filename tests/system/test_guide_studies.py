"""docs/guide/studies.md, command by command."""

from __future__ import annotations

import re
import shutil

import pytest
import yaml
from machine import ROOT, Machine, without_kernel

pytestmark = pytest.mark.full

PAGE = (ROOT / "docs/guide/studies.md").read_text()


def test_what_the_guide_shows_is_in_its_file() -> None:
    study = yaml.safe_load((ROOT / "docs/guide/studies/study.yaml").read_text())
    shown = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    for block in shown:
        for key, part in yaml.safe_load(block).items():
            assert part.items() <= study[key].items()


@pytest.mark.usefixtures("root")
def test_the_guides_commands(machine: Machine) -> None:
    home = machine.directory
    shutil.copytree(ROOT / "docs/guide/studies", home / "docs/guide/studies")
    # How fast a shared machine is, and what its kernel does, is not this test's business.
    study = home / "docs/guide/studies/study.yaml"
    study.write_text(without_kernel(study.read_text()).replace("p99 < 50ms", "p99 < 30s"))
    script = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S))
    done = machine.guide(script, timeout_s=180, forks=True)
    # Four points and the whole, twice; then one point's two expectations and its verdict.
    assert done.stdout.count("PASS") == 2 * 5 + 6, done.stdout
    for kind in ("svg", "pdf", "png", "csv"):
        assert f"response.{kind}\n" in done.stdout
