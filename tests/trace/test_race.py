"""ThreadSanitizer watches the rings' hand-over between writers and a reader (tests/c/race.c).

The control is a copy of the core with one memory ordering weakened: each of them has to be found.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from core import CORE, FOLDERS, build, run

pytestmark = pytest.mark.full

# The sanitizer does not follow fences, which only flight recorders and filters have.
SANITIZE = ("-fsanitize=thread", "-Wno-tsan")
STREAMS = """\
frequency 1000000000
stream 0 main normal
subbuffer 4096
subbuffers 4
enable race:*
"""


@pytest.fixture(scope="module")
def sanitizer(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("sanitizer")
    (directory / "nothing.c").write_text("int main(void) { return 0; }\n")
    program = directory / "nothing"
    command = ["cc", *SANITIZE, directory / "nothing.c", "-o", program]
    built = subprocess.run(command, check=False)
    if built.returncode or subprocess.run([program], check=False).returncode:
        pytest.skip("SKIPPED: the C compiler has no ThreadSanitizer that runs here")


def race(directory: Path, core: Path, mode: str) -> subprocess.CompletedProcess[str]:
    program = build(directory, "race", core, SANITIZE)
    return run(program, "20", mode, streams=STREAMS)


@pytest.mark.parametrize("mode", ["closed", "open"])
def test_hand_over(sanitizer: None, tmp_path: Path, mode: str) -> None:
    done = race(tmp_path, CORE, mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ThreadSanitizer" not in done.stderr


@pytest.mark.parametrize(
    ("mode", "strong"),
    [
        ("closed", "&ring->head, ring->head + 1, __ATOMIC_RELEASE"),
        ("closed", "&ring->tail, __ATOMIC_ACQUIRE"),
        ("open", "committed + LOOPSCOPE_RECORD + size, __ATOMIC_RELEASE"),
    ],
)
def test_each_weaker_ordering_is_found(
    sanitizer: None, tmp_path: Path, mode: str, strong: str
) -> None:
    core = tmp_path / "core"
    for folder in FOLDERS:
        shutil.copytree(CORE / folder, core / folder)
    record = core / "trace/c/record.c"
    text = record.read_text()
    assert text.count(strong) == 1, "the core has changed: weaken what took its place"
    weak = strong.rsplit(", ", 1)[0] + ", __ATOMIC_RELAXED"
    record.write_text(text.replace(strong, weak))
    done = race(tmp_path, core, mode)
    assert "ThreadSanitizer: data race" in done.stderr
