"""The journal of a repeat: whole lines in order, and none is lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from loopscope.control import Silent
from loopscope.control.journal import JOURNAL, Journal


def lines(folder: Path) -> list[str]:
    """What the journal's file says by now, without the times."""
    text = (folder / JOURNAL).read_text()
    assert text == "" or text.endswith("\n")
    entries = [json.loads(line) for line in text.splitlines()]
    times = [each.pop("at_s") for each in entries]
    assert times == sorted(times)
    return [" ".join(map(str, each.values())) for each in entries]


def test_states_of_components_are_written_at_the_next_turn_and_keep_their_place(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        with Journal(Silent(), tmp_path) as journal:
            journal.component("h1", "a", "starting")
            journal.component("h1", "b", "starting")
            assert lines(tmp_path) == []
            await asyncio.sleep(0)
            written = ["h1 a starting", "h1 b starting"]
            assert lines(tmp_path) == written
            journal.component("h1", "a", "ready")
            journal.note("b is slow")
            written += ["h1 a ready", "b is slow"]
            assert lines(tmp_path) == written
            await asyncio.sleep(0)
            assert lines(tmp_path) == written
            journal.component("h1", "b", "ready")
        assert lines(tmp_path) == [*written, "h1 b ready"]
        # What was left to do finds nothing to write any more.
        await asyncio.sleep(0)
        assert lines(tmp_path) == [*written, "h1 b ready"]

    asyncio.run(run())


def test_the_last_states_are_written_where_the_run_breaks_off(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(asyncio.CancelledError), Journal(Silent(), tmp_path) as journal:
            journal.component("h1", "a", "in phase run")
            raise asyncio.CancelledError

    asyncio.run(run())
    assert lines(tmp_path) == ["h1 a in phase run"]


def test_a_full_disk_is_noted_once(tmp_path: Path) -> None:
    class Noting(Silent):
        notes: list[str] = []  # noqa: RUF012

        def note(self, text: str) -> None:
            self.notes.append(text)

    async def run() -> None:
        (tmp_path / JOURNAL).symlink_to("/dev/full")
        with Journal(Noting(), tmp_path) as journal:
            for name in "abc":
                journal.component("h1", name, "ready")
            await asyncio.sleep(0)
            journal.component("h1", "d", "ready")
            await asyncio.sleep(0)

    asyncio.run(run())
    assert Noting.notes == ["journal.jsonl of the run lacks what follows: No space left on device"]
