"""docs/guide/accelerate.md, command by command, and its table of what is not supported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from machine import ROOT

PAGE = (ROOT / "docs/guide/accelerate.md").read_text()
PREFIX = Path(sys.executable).parents[1]
BEGUN = {
    "loopscope-host stack serve & service=$!": "[ -S /run/loopscope/stack.sock ]",
    "& redis=$!": "ip netns exec client redis-cli -h 10.9.0.1 ping",
}
"""What begins in the background, and how one sees that it has."""


@pytest.mark.full
@pytest.mark.usefixtures("root")
def test_the_guides_commands(tmp_path: Path) -> None:
    for tool in ("redis-server", "redis-benchmark"):
        if shutil.which(tool) is None:
            pytest.skip(f"SKIPPED LOUDLY: the guide accelerates redis, and here is no {tool}")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    script = "".join(blocks)
    # A person sees it; how soon a loaded machine starts it is not known.
    for command, sign in BEGUN.items():
        assert f"{command}\n" in script
        until = f"{command}\nuntil {sign}; do sleep 0.1; done > /dev/null 2>&1\n"
        script = script.replace(f"{command}\n", until)
    # Where the names of namespaces and the service's socket are is this test's own.
    own = "mount -t tmpfs tmpfs /run\nip link set lo up\n"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        + ["bash", "-c", f"set -eu\n{own}{script}"],
        cwd=tmp_path,
        env={
            **os.environ,
            "VIRTUAL_ENV": str(PREFIX),
            "PATH": f"{PREFIX}/bin:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^(?:SET|GET): \d+", done.stdout.replace("\r", "\n"), re.MULTILINE)) >= 5
    (counts,) = re.findall(r"^accelerated: (\d+) of (\d+) sockets$", done.stderr, re.MULTILINE)
    assert 2 <= int(counts[0]) < int(counts[1]), done.stderr
    rows = re.findall(r"10\.9\.0\.1:6379 +10\.9\.0\.2:\d+ +yes .*", done.stderr)
    # Two clients had 50000 requests each, of some 30 bytes.
    assert sum("MB of" in row for row in rows) == 2, done.stderr
    assert "cannot be preloaded" not in done.stderr


def test_the_table_has_what_the_library_knows() -> None:
    """The guide names each option that has an effect on what the library does."""
    source = ROOT / "crates/preload/src"
    options = (source / "options.rs").read_text()
    forbids = options[options.index("fn forbids") : options.index("fn is_told")]
    names = set(re.findall(r"\b((?:SO|TCP)_[A-Z_]+)\b", forbids))
    setting = options[options.index("fn setting") : options.index("fn forbids")]
    names |= set(re.findall(r"\b((?:SO|TCP)_[A-Z_]+)\b", setting))
    assert len(names) > 15
    stamps = {"SO_TIMESTAMP", "SO_TIMESTAMPNS", "SO_TIMESTAMPING"}
    assert {name for name in names - stamps if f"`{name}`" not in PAGE} == set()
    assert "`SO_TIMESTAMP…`" in PAGE
    first = (source / "first.rs").read_text()
    for name in ("splice", "tee", "vmsplice", "pread", "pwrite"):
        assert f" {name} " in first and f"`{name}`" in PAGE
