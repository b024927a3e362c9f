"""Files that cannot be written are named besides the verdict, and nothing is left half."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from synthetic_run import pipeline

from loopscope.cli.results import show
from loopscope.control import Silent
from loopscope.pipeline import judge


def test_a_full_disk_leaves_the_verdict_and_the_earlier_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "run"
    pipeline(root).write()
    page = judge(root, None, Silent()).report
    before = page.read_bytes()
    write_text = Path.write_text

    def full(path: Path, text: str, *given: str, **named: str) -> int:
        if path.parent == root:
            write_text(path, text[:1000], *given, **named)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_text(path, text, *given, **named)

    monkeypatch.setattr(Path, "write_text", full)
    judged = judge(root, None, Silent())
    show(judged)
    told = capsys.readouterr()
    assert "\nPASS" in told.out and "report:" not in told.out
    assert f"loopscope: cannot write {page}: No space left on device" in told.err
    assert page.read_bytes() == before
    assert not list(root.glob(".*unfinished"))
