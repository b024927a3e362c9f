"""The live view of a run: each component with its host and phase, on terminals only."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from loopscope.cli.doctor import _show
from loopscope.cli.terminal import TerminalProgress
from loopscope.testbed.examination.finding import Finding


def view(progress: TerminalProgress, height: int) -> str:
    console = Console(file=io.StringIO(), force_terminal=False, width=80, height=height)
    progress._console = console
    with console.capture() as capture:
        console.print(progress._view())
    return capture.get()


def test_each_component_has_its_host_and_phase() -> None:
    progress = TerminalProgress(verbose=False, plain=False)
    progress.phase("run", 30, True)
    progress.component("h1", "source", "in phase connect")
    progress.component("h22", "sink", "running")
    progress.component("h1", "source", "in phase run")
    first, *rows = view(progress, 24).splitlines()
    assert "phase run (measured)" in first
    assert [row.rstrip().split(maxsplit=2) for row in rows] == [
        ["h1", "source", "in phase run"],
        ["h22", "sink", "running"],
    ]


def test_a_small_terminal_has_those_that_do_something_first() -> None:
    progress = TerminalProgress(verbose=False, plain=False)
    progress.stage("starting components")
    for number in range(10):
        progress.component("h1", f"c{number}", "running" if number > 7 else "ended: exit status 0")
    lines = view(progress, 6).splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["c8", "c9", "c0", "7"]
    assert lines[-1].endswith("and 7 components more")


def test_components_go_when_all_of_them_have_ended() -> None:
    progress = TerminalProgress(verbose=False, plain=False)
    progress.component("h1", "a", "ended: exit status 0")
    progress.component("h1", "b", "running")
    progress.stage("ending components")
    assert len(view(progress, 24).splitlines()) == 3
    progress.component("h1", "b", "ended when asked to")
    progress.stage("collecting")
    assert len(view(progress, 24).splitlines()) == 1


def test_nothing_is_rewritten_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with TerminalProgress(verbose=False) as progress:
        progress.phase("run", 30, False)
        progress.component("h1", "a", "running")
    assert capsys.readouterr().err == "phase run\n"


def test_lines_for_files_and_pipes_are_not_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = "host h1: " + "its disk is full " * 20 + "[bold]"
    with TerminalProgress(verbose=False) as progress:
        progress.stage(text)
        progress.note(text)
        progress.point(text)
    assert capsys.readouterr().err.splitlines() == [text] * 3
    _show([Finding("a counter", False, text, text)])
    assert capsys.readouterr().out.splitlines() == [f"lacks a counter: {text}", f"        {text}"]
