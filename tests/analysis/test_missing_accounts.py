"""Accounts that memory or the disk had no room for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from loopscope.analysis.missing_events import without_account
from loopscope.timeline.loss import read_loss


def test_drops_of_a_process_without_tables_may_be_of_any_entity(tmp_path: Path) -> None:
    sites = [{"entity": "a:b", "file": "x.c", "line": 1, "dropped": {"no-ring": 3}}]
    process = {"process": "p", "pid": 1, "torn": 1, "sites": sites}
    sums = {"emitted": 30, "recorded": 0, "dropped": 30, "torn": 1}
    document = {"version": 2, **sums, "processes": [process | sums]}
    (tmp_path / "loss.json").write_text(json.dumps(document))
    (account,) = read_loss(tmp_path / "loss.json", 1, "h1")
    assert account.balanced
    assert account.no_tables == 26
    assert (account.missing_at("a:b"), account.missing_at("c:d")) == (30, 27)


def test_a_host_without_an_account_is_named(tmp_path: Path) -> None:
    for host in ("h1", "h2", "h3"):
        (tmp_path / "hosts" / host).mkdir(parents=True)
    for host in ("h1", "h2"):
        (tmp_path / "hosts" / host / "components" / "source").mkdir(parents=True)
    run = SimpleNamespace(repeats={1: tmp_path})
    assert without_account(run) == []  # nothing was to be recorded
    (tmp_path / "hosts" / "h1" / "loss.json").write_text("{}")
    (problem,) = without_account(run)
    assert problem.startswith("h2, repeat 1: there is no account")
