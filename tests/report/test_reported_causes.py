"""What reports say of causes: where the time goes, and what held the late messages."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
from test_ranking import MS, held_run
from typer.testing import CliRunner

from loopscope.analysis import analyse
from loopscope.analysis.quantity_text import duration
from loopscope.cli import app
from loopscope.experiment import PathEdge
from loopscope.report import write_report
from loopscope.report.catalogue import everything
from loopscope.report.figure_source import FigureSource
from loopscope.report.junit import write_junit
from loopscope.timeline import open_run

# All of them differ, in no order of time.
WAITS = [MS + 50_000 * (37 * number % 200) for number in range(200)]


def table(page: str, name: str) -> list[list[str]]:
    """The rows of a table, without its heading."""

    def inside(tag: str, text: str) -> list[str]:
        return re.findall(f"<{tag}(?: .*?)?>(.*?)</{tag}>", text, re.DOTALL)

    (found,) = re.findall(rf'<table id="{name}">(.*?)</table>', page, re.DOTALL)
    rows = [inside("td", row) for row in inside("tr", found)]
    return [[html.unescape(re.sub("<.*?>", "", text)) for text in row] for row in rows if row]


def sums(messages: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Mean time, shares of the parts and longest cause of some messages."""
    parts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for hop in (hop for message in messages for hop in message["hops"]):
        for part in hop["parts"]:
            parts[part["name"]] += part["ns"]
            causes[f"{part['name']}: {part['cause']}"] += part["ns"]
    whole, count = sum(parts.values()), len(messages)
    shares = ", ".join(
        f"{name} {duration(ns / count)} ({100 * ns / whole:.0f} %)"
        for name, ns in parts.most_common()
        if ns >= whole / 100
    )
    mean = sum(message["ns"] for message in messages) / count
    return duration(mean), shares, max(causes, key=lambda each: causes[each])


def test_the_bands_are_sums_of_their_messages(tmp_path: Path) -> None:
    made = held_run(tmp_path / "run", waits=WAITS)
    run = open_run(made)
    found = table(write_report(run, analyse(run)).read_text(), "bands-loop")
    done = CliRunner().invoke(app, ["why", str(made), "--over", "0ms", "--json"])
    messages = [json.loads(line) for line in done.stdout.splitlines()][::-1]
    assert len(messages) == 200 and messages[0]["ns"] < messages[-1]["ns"]
    bands = {
        "fastest to p50": (messages[:100], "40 of 100"),
        "p50 to p90": (messages[100:180], "40 of 80"),
        "p90 to p99": (messages[180:198], "18 of 18"),
        "p99 to slowest": (messages[198:], "2 of 2"),
    }
    wanted = []
    for name, (band, explained) in bands.items():
        last = len(band) - 1
        sample = band if last < 40 else [band[last * place // 39] for place in range(40)]
        wanted.append([name, explained, *sums(sample)])
    assert found == wanted
    # The fastest wait for so short a time that what else they do has a share.
    assert re.match(r"runnable \d\.\d+ ms \(9\d %\), running 80\.00 µs \(\d %\)$", found[0][3])


ONE_WAY = (PathEdge(0, 1, "key", "id"),)


def figures_of(page: str) -> dict[str, Any]:
    """What the page's script draws, by name."""
    (found,) = re.findall(r'<script[^>]* id="figures"[^>]*>(.*?)</script>', page, re.DOTALL)
    return json.loads(found)


def test_a_graph_of_one_way_is_told_like_a_list(tmp_path: Path) -> None:
    pages, causes = [], []
    for name, edges in (("list", ()), ("graph", ONE_WAY)):
        made = held_run(tmp_path / name, waits=WAITS, edges=edges)
        run = open_run(made)
        pages.append(write_report(run, analyse(run)).read_text())
        words = ["figure", str(made), "--format", "pdf", "-o", str(tmp_path / f"{name}-drawn")]
        done = CliRunner().invoke(app, [*words, "causes", "loop", "--message", "7"])
        assert done.exit_code == 0, done.output
        causes.append((tmp_path / f"{name}-drawn/causes-loop.csv").read_text())
        assert ("causes", "loop") in {(e.kind, e.of) for e in everything(FigureSource(made))}
    assert table(pages[1], "bands-loop") == table(pages[0], "bands-loop") != []
    drawn = [figures_of(page)["causes-loop"] for page in pages]
    assert drawn[1] == drawn[0]
    assert causes[1] == causes[0] and ",runnable," in causes[1]


def test_where_several_ways_lead_it_is_said_what_tells_of_one(tmp_path: Path) -> None:
    edges = (*ONE_WAY, PathEdge(0, 2, "key", "id"))
    made = held_run(tmp_path / "run", expect=(), edges=edges)
    run = open_run(made)
    page = html.unescape(write_report(run, analyse(run)).read_text())
    asked = "loopscope why RUN --path loop --from EVENT --to EVENT "
    assert "<p>What held single messages: several ways lead" in page and asked in page
    assert 'id="bands-loop"' not in page and "causes-loop" not in figures_of(page)
    done = CliRunner().invoke(app, ["figure", str(made), "causes"])
    assert done.exit_code == 2 and asked in " ".join(done.output.split())
    assert "causes" not in {each.kind for each in everything(FigureSource(made))}


def test_counts_of_threads_have_a_table_and_no_picture(tmp_path: Path) -> None:
    made = held_run(tmp_path / "run", waits=[each // 10 for each in WAITS], counted=True)
    run = open_run(made)
    page = write_report(run, analyse(run)).read_text()
    assert "causes-loop" not in figures_of(page) and "hops-loop" in figures_of(page)
    found = table(page, "bands-loop")
    done = CliRunner().invoke(app, ["why", str(made), "--worst", "20", "--json"])
    slowest = [json.loads(line) for line in done.stdout.splitlines()][::-1]
    assert found[2:] == [
        ["p90 to p99", "18 of 18", *sums(slowest[:18])],
        ["p99 to slowest", "2 of 2", *sums(slowest[18:])],
    ]
    *_, shares, longest = found[3]
    assert longest.startswith("runnable: receiver waited for a processor")
    # What the counts do not tell has a share, so that the parts are the whole.
    assert re.fullmatch(r"runnable \S+ ms \(\d+ %\), unknown \S+ µs \(\d+ %\)", shares)
    assert sum(map(int, re.findall(r"\((\d+) %\)", shares))) in (99, 100, 101)


def test_a_hop_of_which_nothing_is_told_is_unknown_in_the_table(tmp_path: Path) -> None:
    made = held_run(tmp_path / "run")
    (file,) = made.glob("base/1/timeline/pipe/received/*.parquet")
    rows = pq.read_table(file)
    none = pa.nulls(len(rows), pa.uint32())
    pq.write_table(rows.set_column(rows.schema.get_field_index("tid"), "tid", none), file)
    run = open_run(made)
    for _, _, mean, shares, longest in table(
        write_report(run, analyse(run)).read_text(), "bands-loop"
    ):
        assert shares == f"unknown {mean} (100 %)"
        assert longest == "unknown: it is not known which thread sink/pipe:received was in"


def test_the_main_cause_of_a_fail_is_in_the_page_and_for_ci(tmp_path: Path) -> None:
    run = open_run(held_run(tmp_path / "run"))
    results = analyse(run)
    cause = "100 % of the 20 above 5.000 ms: runnable: sink of h1 (t20) waited on cpu1 behind t30"
    page = write_report(run, results).read_text()
    ((verdict, text, took, reason),) = table(page, "expectations")
    assert (verdict.split()[-1], text, reason) == ("FAIL", "loop.p99 < 5ms", cause)
    write_junit(tmp_path / "out.xml", results)
    (failure,) = ElementTree.parse(tmp_path / "out.xml").iter("failure")
    assert failure.get("message") == f"{took}: {cause}"
