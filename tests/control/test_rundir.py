"""What hosts left in a repeat's directory, made a part of the run."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from loopscope.control import settle


def test_of_what_programs_left_only_files_stay(tmp_path: Path) -> None:
    files = tmp_path / "hosts/h1/components/a/files"
    (files / "sub").mkdir(parents=True)
    (files / "sub" / "kept").write_text("x", "utf-8")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "theirs").write_text("x", "utf-8")
    (files / "link").symlink_to(outside)
    (files / "sub" / "link").symlink_to(outside / "theirs")
    os.mkfifo(files / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(files / "sock"))
    settle(tmp_path)
    assert [str(path.relative_to(files)) for path in sorted(files.rglob("*"))] == [
        "sub",
        "sub/kept",
    ]
    assert (outside / "theirs").exists()


def test_who_may_read_the_run_may_read_what_agents_kept_private(tmp_path: Path) -> None:
    files = tmp_path / "hosts/h1/components/a/files"
    files.mkdir(parents=True)
    own, theirs = tmp_path / "hosts/h1/loss.json", files / "secret"
    for file in (own, theirs):
        file.write_text("{}", "utf-8")
        file.chmod(0o600)
    for folder in (tmp_path / "hosts/h1/components", tmp_path / "hosts/h1", tmp_path / "hosts"):
        folder.chmod(0o700)
    tmp_path.chmod(0o750)
    settle(tmp_path)
    assert own.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "hosts").stat().st_mode & 0o777 == 0o750
    # What a program keeps to itself is its own affair.
    assert theirs.stat().st_mode & 0o777 == 0o600
