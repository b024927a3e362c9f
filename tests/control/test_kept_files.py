"""Sizes and hashes of files that hosts need, and of those that components left."""

from __future__ import annotations

import hashlib
from pathlib import Path

from loopscope.control.kept_files import fetched, sent
from loopscope.control.rundir import settle
from loopscope.experiment import load

FILE = """
name: files
hosts: [h1]
send: ["data/*.csv"]
components:
  a: {host: h1, run: ./a ./missing, fetch: ["*.csv", "sub", "no-such"]}
  b: {host: h1, run: "true"}
phases: [{name: run, timeout: 1s}]
"""


def digest(text: str) -> dict[str, object]:
    return {"size": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def test_what_matches_is_described_and_what_is_missing_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("files.yaml", "a", "data/x.csv", "data/x.txt"):
        (tmp_path / name).write_text(FILE if name == "files.yaml" else name)
    experiment = load(tmp_path / "files.yaml")
    assert sent(experiment) == {"a": digest("a"), "data/x.csv": digest("data/x.csv")}

    repeat = tmp_path / "run"
    files = repeat / "hosts/h1/components/a/files"
    (files / "sub/deep").mkdir(parents=True)
    for name in ("one.csv", "other", "sub/deep/two"):
        (files / name).write_text(name)
    # A link may lead anywhere: it is no file that the component left.
    (files / "secret.csv").symlink_to(tmp_path / "a")
    (files / "sub/out").symlink_to(tmp_path)
    settle(repeat)
    found, missing = fetched(experiment, repeat)
    names = ("one.csv", "sub/deep/two")
    assert found == {"a": {name: digest(name) for name in names}}
    assert missing == ["a on h1 left no file no-such (fetch)"]
