"""Where rings come from, and what happens where none can be made."""

from __future__ import annotations

from pathlib import Path

import pytest
from core import build, run

STREAMS = """\
frequency 1000000000
stream 0 main normal
subbuffer 65536
subbuffers 8
{spares}enable *
"""


@pytest.mark.parametrize(("spares", "made"), [("spares 1\n", 0), ("", 1)])
def test_a_real_time_thread_takes_a_ring_that_is_there(
    tmp_path: Path, spares: str, made: int
) -> None:
    done = run(build(tmp_path, "realtime"), streams=STREAMS.format(spares=spares))
    if done.returncode == 77:
        pytest.skip("SKIPPED: needs leave to schedule real-time threads (root)")
    before, after, own = (int(word) for word in done.stdout.split())
    assert own == 1
    assert after - before == made, "without spares it has to be made on the spot"


def test_little_memory_to_lock(tmp_path: Path) -> None:
    done = run(build(tmp_path, "locked"), streams=STREAMS.format(spares=""))
    if done.returncode == 77:
        pytest.skip("SKIPPED: the limit on locked memory does not bind here")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "-1 1000\n", "each hit is a counted drop"


def test_a_file_has_its_size_when_it_gets_its_name(tmp_path: Path) -> None:
    """A program that is killed in between leaves no ring that could have been cut."""
    done = run(build(tmp_path, "named"), streams=STREAMS.format(spares=""))
    sized = {Path(line) for line in done.stdout.splitlines()}
    names = {path.name for path in sized}
    assert names >= {"control~", "ring-0-0-0~"} and all(name.endswith("~") for name in names)
    assert not any(path.exists() for path in sized)
    for path in sized:
        assert path.with_name(path.name.removesuffix("~")).stat().st_size > 0
