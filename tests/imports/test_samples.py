"""Sample traces of babeltrace2's own tests: the same events, fields, losses and refusals."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tables import compare, imported, loopscope_import

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "ctf-traces"

# babeltrace2 2.0 fails an assertion on this one; it has no event.
ABORTS = "meta-ctx-sequence"


def samples(*kinds: str) -> list[Path]:
    found = [each for kind in kinds for each in sorted((SAMPLES / kind).glob("*"))]
    return [each for each in found if each.is_dir()]


needs = pytest.mark.skipif(
    shutil.which("babeltrace2") is None or not SAMPLES.is_dir(),
    reason=f"SKIPPED LOUDLY: needs babeltrace2 and the sample traces in {SAMPLES}",
)


@needs
@pytest.mark.parametrize(
    "trace",
    [each for each in samples("succeed", "packet-seq-num", "intersection") if each.name != ABORTS],
    ids=lambda trace: trace.name,
)
def test_good_ones_give_what_babeltrace2_prints(trace: Path, tmp_path: Path) -> None:
    compare(trace, tmp_path / "out")


@needs
def test_a_trace_without_events(tmp_path: Path) -> None:
    summary = imported(SAMPLES / "succeed" / ABORTS, tmp_path / "out")
    assert (summary["events"], summary["tables"]) == (0, [])


REFUSALS = {
    "fail1": "/metadata: metadata line 14, column 1: CTF of version 0.1, known is 1.8",
    "fail2": r"/metadata: metadata line 9, column 16: unknown escape sequence \o",
    "integer-range": "is not an integer of at most 64 bits",
    "invalid-packet-size": "/channel0_3: in the packet at byte 0, at byte 0: its sizes do not fit",
    "invalid-sequence-length-field-class": "line 23, column 13: len is not an integer",
    "invalid-variant-selector-field-class": "line 23, column 3: selector is not an integer",
    "lttng-modules-2.0-pre1": "in the metadata packet at byte 0: version 116.121",
    "metadata-syntax-error": "metadata line 3, column 58: expected a type, found `]`",
    "packet-based-metadata": "in the metadata packet at byte 0: version 116.121",
    "smalltrace": "/metadata: metadata line 5, column 1: CTF of version 0.1",
    "valid-events-then-invalid-events": "/dummystream: in the packet at byte 0, at byte 2: event "
    "class 255 is not declared",
}


@needs
def test_bad_ones_are_refused_with_the_place(tmp_path: Path) -> None:
    assert {trace.name for trace in samples("fail")} == REFUSALS.keys()
    for trace in samples("fail"):
        theirs = subprocess.run(["babeltrace2", trace], capture_output=True, check=False)
        assert theirs.returncode != 0
        for out in ([], ["-o", tmp_path / "out"]):
            done = loopscope_import(trace, *out)
            assert (done.returncode, done.stdout) == (2, "")
            assert REFUSALS[trace.name] in done.stderr
        assert list(tmp_path.iterdir()) == [], "a refused trace leaves nothing"
