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
