"""Tables that cannot be read end a command with a message."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "analysis"))
from synthetic_run import pipeline, with_tables  # noqa: E402

from loopscope import cli  # noqa: E402
from loopscope.timeline import RunError, open_run  # noqa: E402

DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "torn": lambda content: content[:4] + bytes(len(content) // 2) + content[len(content) // 2 :],
}


@pytest.fixture(params=sorted(DAMAGES))
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    run = pipeline(tmp_path, messages=60).write()
    file = run / "base/1/timeline/pipe/received/part-0.parquet"
    file.write_bytes(DAMAGES[request.param](file.read_bytes()))
    return run


def test_an_analysis_says_what_is_wrong_with_tables(damaged: Path) -> None:
    with pytest.raises(RunError, match="the tables cannot be read: .*loopscope report RUN"):
        with_tables(open_run(damaged))


@pytest.mark.parametrize(
    "words",
    [
        ["query", "RUN", "select * from pipe.received"],
        ["figure", "RUN", "histogram", "pipe:received.seq", "-o", "OUT"],
        ["export", "RUN", "--to", "csv", "-o", "OUT"],
        ["report", "RUN"],
        ["analyse", "RUN", "--graph", "GRAPH", "-o", "OUT"],
    ],
    ids=lambda words: " ".join(words[:1] + words[2:4]),
)
def test_a_command_ends_with_a_message(
    damaged: Path,
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = tmp_path / "graph.yaml"
    graph.write_text("analyse:\n  a: {from: pipe.received, steps: [export: csv]}\n")
    places = {"RUN": str(damaged), "OUT": str(tmp_path / "out"), "GRAPH": str(graph)}
    monkeypatch.setattr(sys, "argv", ["loopscope", *(places.get(word, word) for word in words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert any(line.startswith("loopscope: ") for line in said.splitlines()), said
