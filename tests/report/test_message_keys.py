"""Messages whose key is no plain number are shown, and asked for, by their key."""

from __future__ import annotations

import csv
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import SyntheticRun, path, with_tables
from test_keys import HOSTS, IN, OUT, ROWS
from test_page import samples
from typer.testing import CliRunner

from loopscope.analysis import analyse
from loopscope.analysis.keys import Keys
from loopscope.cli import app
from loopscope.experiment import PathEdge
from loopscope.report import waterfall
from loopscope.report.chart_page import page_figure
from loopscope.report.path_charts import end_charts, parts_of
from loopscope.timeline import open_run

TEXTS = {
    "text": "frame {n}",
    "raw": "{n:02x}00ff",
    "large": "{large}",
    "tens, ones": "{tens}, {ones}",
    "ones, text": "{ones}, frame {n}",
}
"""Keys, and how a person knows a message by them."""


def shown(key: str, n: int) -> str:
    return TEXTS[key].format(n=n, large=(1 << 63) + 7 * n, tens=n // 10, ones=n % 10)


def a_graph(key: str) -> Any:
    edges = (PathEdge(0, 1, "key", key),)
    return replace(path("loop", key, [OUT, IN]), keys=(key, key), edges=edges)


def run_with(folder: Path, key: str, graph: bool = False) -> Path:
    paths = [a_graph(key) if graph else path("loop", key, [OUT, IN])]
    return SyntheticRun(folder, ROWS, HOSTS, paths=paths, repeats=2).write()


def figure(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["figure", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stderr


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize(
    ("key", "graph"),
    [("text", False), ("large", False), ("tens, ones", False), ("raw", True), ("ones, text", True)],
)
def test_a_waterfall_takes_and_shows_the_key(tmp_path: Path, key: str, graph: bool) -> None:
    run, wanted = run_with(tmp_path / "run", key, graph), shown(key, 27)
    words = ("waterfall", "--message", wanted, "--repeat", 2, "--format", "svg", "-o", tmp_path)
    assert figure(run, *words) == (0, "")
    (row,) = rows(tmp_path / "waterfall-loop.csv")
    assert (row["id"], row["repeat"], row["time (ns)"]) == (wanted, "2", "127")
    text = html.unescape((tmp_path / "waterfall-loop.svg").read_text())
    told = wanted if key == "large" else f'"{wanted}"'
    assert f"message {told}, 127 ns" in re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("graph", [False, True])
def test_a_misspelt_key_is_answered_with_some_that_there_are(tmp_path: Path, graph: bool) -> None:
    run = run_with(tmp_path / "run", "text", graph)
    for kind in ("waterfall", "timeline"):
        code, said = figure(run, kind, "--message", "frme 27", "-o", tmp_path)
        assert code == 2
        assert re.search(r'no message with \w+ "frme 27": of 50 some are "frame 27", "frame', said)
    plain = SyntheticRun(tmp_path / "plain", ROWS, HOSTS, paths=[path("loop", "id", [OUT, IN])])
    code, said = figure(plain.write(), "waterfall", "--message", "frame 27", "-o", tmp_path)
    assert code == 2 and "no message with id frame 27: they are 0 to 49" in said


def test_the_timeline_is_around_the_message_with_the_key(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", "text")
    words = ("timeline", "--message", "frame 9", "--repeat", 2, "-o", tmp_path)
    assert figure(run, *words) == (0, "")
    (first, *_) = rows(tmp_path / "timeline.csv")
    assert first["event"] == "io:out" and first["time since the first event (ns)"] == "90000"


@pytest.mark.parametrize("key", ["text", "ones, text"])
def test_the_page_and_hops_show_the_key(tmp_path: Path, key: str) -> None:
    run = run_with(tmp_path / "run", key)
    known = {shown(key, n) for n in range(50)}
    assert figure(run, "hops", "-o", tmp_path) == (0, "")
    assert {row["id"] for row in rows(tmp_path / "hops-loop.csv")} <= known
    results = analyse(open_run(run))
    messages = results.messages["loop"]
    drawn = page_figure(waterfall.chart(waterfall.usual(messages)))
    titles = [html.unescape(each["text"]) for each in drawn["layout"]["annotations"]]
    for title in titles:
        assert re.search(r'message "(.*)", 1', title.replace("<br>", " "))[1] in known
    measured = messages.path
    _, _, over_time = next(
        end_charts(results, measured, parts_of(results, measured), measured.loop, (), 1)
    )
    for trace in samples(page_figure(over_time)["data"]):
        assert {of for of, _ in trace["customdata"]} <= known


def test_keys_are_found_by_what_is_shown_of_them() -> None:
    plain = Keys()
    assert plain.numbers_of("17") == [17] and plain.numbers_of("-3") == [-3]
    for text in (str(1 << 70), str(1 << 63), "1.0", "frame 1", ""):
        assert plain.numbers_of(text) == []
    values = pa.table({"part_0": ["a", "a, b", "d"], "part_1": ["b, c", "c", "e"]})
    assert Keys(("string", "string"), values).numbers_of("a, b, c") == [0, 1]


@pytest.mark.parametrize("graph", [False, True])
def test_perfetto_names_messages_by_their_key(tmp_path: Path, graph: bool) -> None:
    run = run_with(tmp_path / "run", "text", graph)
    entities = pa.table({"entity": ["io:out", "io:in"], "kind": ["event", "event"]})
    pq.write_table(entities, run / "base/2/tables/entities.parquet")
    pq.write_table(entities, run / "base/1/tables/entities.parquet")
    file = tmp_path / "out.perfetto-trace"
    with_tables(open_run(run))
    words = ["export", str(run), "--to", "perfetto", "-o", str(file), "--repeat", "2"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    content = file.read_bytes()
    assert b"loop frame 27" in content and b"loop 27" not in content


def test_a_key_is_text_and_no_markup(tmp_path: Path) -> None:
    fall = waterfall.Fall("", 1, "$a_1$ <b>", (), 5, None)
    assert fall.title == 'message "$a_1$ <b>", 5 ns ± unknown'
    made = page_figure(waterfall.chart([fall]))
    assert "&lt;b&gt;" in made["layout"]["annotations"][0]["text"]
    assert np.isfinite(len(json.dumps(made)))
