"""Traces that LTTng makes here: the same events and values as babeltrace2 prints, all of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lttng_tools import ALONE, missing
from tables import compare, rows

HERE = Path(__file__).resolve().parent / "lttng"
COUNT = 200


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    why = missing("babeltrace2")
    if why:
        pytest.skip(f"SKIPPED LOUDLY: {why}")
    place = tmp_path_factory.mktemp("lttng")
    program = place / "program"
    source = HERE / "program.c"
    libraries = ["-llttng-ust", "-lpthread"]
    command = ["cc", "-O1", f"-I{HERE}", "-o", program, source, *libraries]
    subprocess.run(command, check=True)
    (place / "home").mkdir()
    words = [*ALONE, place / "home", HERE / "record.sh", place, program, str(COUNT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.mark.parametrize("kind", ["per-user", "per-process", "rotated", "chunks"])
def test_every_event_is_babeltrace2s(traces: Path, tmp_path: Path, kind: str) -> None:
    summary = compare(traces / kind, tmp_path / "out")
    assert {each["table"] for each in summary["tables"]} == {
        "sample.empty",
        "sample.numbers",
        "sample.many",
    }
    if kind == "per-user":
        assert summary["events"] == 2 * 3 * COUNT
        labels = {row["state"]["label"] for row in rows(tmp_path / "out", "sample.many")}
        assert labels == {"off", "on", "busy", "busy | also nine", "next", None}
    if kind == "rotated":
        lost = summary["lost"]
        assert lost["events"] + lost["events_before"] + lost["packets"] > 0
