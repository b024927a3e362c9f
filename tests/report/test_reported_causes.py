"""What reports say of causes: where the time goes, and what held the late messages."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from test_ranking import MS, held_run
from typer.testing import CliRunner

from loopscope.analysis import analyse
from loopscope.analysis.quantity_text import duration
from loopscope.cli import app
from loopscope.report import write_report
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
