"""Terminal, page and JSON never disagree: every number that one shows is in the others."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from links_run import clean_and_lossy, write_account, write_events
from synthetic_run import SECOND, ClockReading, ClockStep, Row, SyntheticRun, pipeline
from test_clocks import LOOP as MESH
from test_graph_figures import made as control
from test_page import CLOCKS, at
from test_patterns import ONE, good
from test_split import HOSTS, NAMES, crossing
from test_split import LOOP as LINKED
from test_terminal import plain, printed

from loopscope.analysis import Results, analyse
from loopscope.control import Silent
from loopscope.experiment import Value
from loopscope.pipeline import judge
from loopscope.report import write_report
from loopscope.timeline import open_run

UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "%": 0.01}
UNITS |= {f"{prefix}{unit}": size for unit in ("bit/s", "B", "B/s", "Hz", "ppm")
          for prefix, size in (("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9))}  # fmt: skip
TOKEN = re.compile(
    r"(?<![\w/.:<>=-])(?P<width>± )?(?P<number>-?\d{1,3}(?: \d{3})+|-?\d+(?:\.\d+)?)"
    r"(?:[ \u00a0]?(?P<unit>"
    + "|".join(sorted(map(re.escape, UNITS), key=len)[::-1])
    + r")(?!\w))?"
    r"(?![\w:]|\.\d)"
)
NAMES_OF_STATISTICS = ("p99.9", "99 % interval")


class Visible(HTMLParser):
    """The text of a page without figures, notes and the description of the machine.

    Each cell's number is next to its text.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.cells: list[tuple[str, str]] = []
        self._hidden: list[str] = []
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        left_out = tag in ("script", "style", "figure", "header", "title", "noscript")
        left_out |= given.get("class") in ("note", "environment")
        if (left_out or self._hidden) and tag not in ("meta", "br", "link"):
            self._hidden.append(tag)
        if "data-value" in given:
            self.cells.append((given["data-value"] or "", ""))
            self._open.append(tag)
        self.text += " | " if tag in ("td", "th", "br", "li", "dd", "p", "span") else ""

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and self._hidden[-1] == tag:
            self._hidden.pop()
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            value, text = self.cells[-1]
            self.cells[-1] = value, text + data
        if not self._hidden:
            self.text += data


def numbers(text: str) -> Counter[str]:
    for name in NAMES_OF_STATISTICS:
        text = text.replace(name, "")
    return Counter(match[0].replace("\u00a0", " ") for match in TOKEN.finditer(text))


def leaves(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def derived(told: dict[str, Any]) -> Iterator[float]:
    """What is computed of the JSON's numbers, as its page says."""
    for link in told["links"]:
        for share in (link["lost"], link["duplicated"], link["corrupted"]):
            if share["of"]:
                yield share["found"] / share["of"]
            # Ends of intervals are told in percent, whose sign is before them.
            yield from (100 * share[end] for end in ("low", "high") if share[end] is not None)
        yield sum(n for reason, n in link["dropped"].items() if reason != "loss")
    loops = [each for each in told["clock"]["loops"] if each["p99_ns"] is not None]
    known = [each["instants"] - each["unknown"] for each in loops]
    yield len(loops)
    yield from (each["covered"] / n for each, n in zip(loops, known, strict=True))
    if loops:
        yield sum(each["covered"] for each in loops) / sum(known)
    if (probes := told["clock"]["probes"]) is not None:
        yield 8 * probes["bytes"] / probes["seconds"]
    for pattern in told["patterns"].values():
        verdicts = [row["verdict"] for row in pattern["rows"]]
        yield len(verdicts) - verdicts.count(None)
        yield verdicts.count("PASS")


def stands_for(token: str, value: float) -> bool:
    """Whether a text is this value, to the digits that it has; maximum errors are rounded up."""
    match = TOKEN.fullmatch(token)
    assert match is not None, token
    digits = match["number"].replace(" ", "")
    size = UNITS[match["unit"]] if match["unit"] else 1
    last = 10.0 ** -len(digits.partition(".")[2]) * size
    shown = float(digits) * size
    if match["width"]:
        return -1e-9 * shown <= shown - value < last * (1 + 1e-9)
    return math.isclose(shown, value, abs_tol=last / 2 * (1 + 1e-9), rel_tol=1e-12)


def texts(told: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """What the JSON says in words, which may have numbers in it."""
    if isinstance(told, dict):
        for key, each in told.items():
            if key in keys and isinstance(each, str):
                yield each
            else:
                yield from texts(each, keys)
    elif isinstance(told, list):
        for each in told:
            yield from texts(each, keys)


def without(text: str, parts: list[str]) -> str:
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, " ")
    return text


def rich(root: Path) -> Path:
    """Losses, duplicates, drops, a pattern, values, clocks that were set, a mesh, costs."""
    made = pipeline(root, messages=1200, repeats=2, lose_every=300)
    made.hosts = [
        dataclasses.replace(host, rejected=i, event_cost_ns=(10.4 + i, 1.2))
        for i, host in enumerate(made.hosts)
    ]
    made.subtract_cost = True
    made.drops = {("source", "other:thing"): 3, ("node1", "pipe:sent"): 1}
    made.torn = {"sink": 2}
    made.rows = [*made.rows, Row("sink", "pipe:received", 0, 6 * SECOND, 0, "h1"), *good()]
    made.rows += [
        Row("source", "pace:second", i, 5 * SECOND + i * 10**8, fields=(("rate", 10**6 + i % 7),))
        for i in range(40)
    ]
    made.values = [
        Value("rate", "source", "pace", "second", "rate", "mean", "bit/s", 8.0),
        Value("seconds", None, "pace", "second", None, "count", "", 1.0),
    ]
    made.patterns = [ONE]
    made.components = ["p", "c", "d"]
    made.readings = [
        ClockReading(host, 5 * SECOND + i * 10**8, offset(i), repeat)
        for repeat in (1, 2)
        for host, offset in CLOCKS.items()
        for i in range(100)
    ]
    made.clock_steps = [ClockStep("h2", at=at(50, 51), ns=(21_999_000, 22_000_900), what="set")]
    made.loops = [MESH, dataclasses.replace(MESH, repeat=2, p99_ns=1_517, covered=9_000)]
    return made.write()


def linked(root: Path) -> Path:
    """Emulated links with losses, a rate, and the ways of packets over them."""
    sent = [crossing(i, SECOND + i * 10**6, 1000, 20_004_000, 500) for i in range(100)]
    rows = [row for each, _ in sent for row in each]
    SyntheticRun(root, rows, HOSTS, [LINKED]).write()
    write_account(root, NAMES, {("h1", "h2"): clean_and_lossy()})
    write_events(root, [packet for _, packet in sent])
    return root


def branching(root: Path) -> Path:
    """A branching path, with losses, superseded messages, and ages."""
    return control(root, repeats=2, drops={("camera", "other:thing"): 2}).write()


@pytest.fixture(scope="module", params=[rich, linked, branching])
def shown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Results, str, str]:
    """The results, what the terminal shows, the page."""
    run = open_run(request.param(tmp_path_factory.mktemp("run")))
    results = analyse(run)
    return results, plain(printed(results)), write_report(run, results).read_text()


def bare(text: str, told: dict[str, Any]) -> str:
    """Without names and sentences, which are the JSON's own."""
    words = [*told["problems"], *texts(told, ("text", "reason", "what", "problem"))]
    return without(text, [word for word in words if word])


def test_every_number_of_the_terminal_is_on_the_page(shown: tuple[Results, str, str]) -> None:
    results, terminal, page = shown
    told = json.loads(results.to_json())
    on_terminal = numbers(bare(terminal, told))
    on_page = numbers(bare(Visible(page).text, told))
    assert on_terminal.total() > 50
    missing = on_terminal - on_page
    assert not missing, missing


def test_every_shown_number_is_one_of_the_json(shown: tuple[Results, str, str]) -> None:
    results, terminal, page = shown
    told = json.loads(results.to_json())
    known = {*leaves(told), *derived(told)}
    for text in (terminal, Visible(page).text):
        strangers = [
            token
            for token in numbers(bare(text, told))
            if not any(stands_for(token, value) for value in known)
        ]
        assert not strangers


def test_each_cell_of_the_page_shows_its_own_number(shown: tuple[Results, str, str]) -> None:
    results, _, page = shown
    told = json.loads(results.to_json())
    known = {*leaves(told), *derived(told)}
    cells = Visible(page).cells
    assert len(cells) > 30
    for value, text in cells:
        if not value:
            assert not re.search(r"\d", text), text
            continue
        assert float(value) in known, (value, text)
        tokens = list(numbers(text))
        assert any(stands_for(token, float(value)) for token in tokens), (value, text)


def test_every_time_and_count_of_the_json_is_on_the_page(shown: tuple[Results, str, str]) -> None:
    results, _, page = shown
    told = json.loads(results.to_json())
    cells = {float(value) for value, _ in Visible(page).cells if value}
    parts = [part for path in told["paths"].values() for part in (path, *path["hops"])]
    parts += [
        part for path in told["paths"].values() for part in path.get("by_repeat", {}).values()
    ]
    # What was received is what was sent less what was lost; hops of single repeats have no rows.
    elsewhere = ("hops", "splits", "received", "by_repeat")
    for part in parts:
        of_part = {key: value for key, value in part.items() if key not in elsewhere}
        assert set(leaves(of_part)) - {0.0} <= cells, of_part
    in_json_alone = ("received", "min_ns", "mean_ns", "age_err_ns")
    for graph in told.get("graphs", {}).values():
        for flow in (*graph["ends"], *graph["edges"]):
            of_part = {key: value for key, value in flow.items() if key not in in_json_alone}
            assert set(leaves(of_part)) - {0.0} <= cells, of_part
    assert {value["value"] for value in told.get("values", {}).values()} <= cells
    assert {each["measured"] for each in told["expectations"]} - {None} <= cells


def test_a_report_made_again_has_the_same_bytes(tmp_path: Path) -> None:
    """The same tables give the same bytes: page, results, and the analysis tables."""
    first, again = tmp_path / "first" / "run", tmp_path / "again" / "run"
    rich(first)
    shutil.copytree(first, again)
    made = []
    for root in (first, again):
        judged = judge(root, None, Silent())
        results, page = judged.results, judged.report
        files = {file.name: file.read_bytes() for file in root.rglob("path-*.parquet")}
        made.append((results.to_json(), page.read_bytes(), files, printed(results)))
    assert made[0] == made[1]
    assert made[0][2]
    # And no time of its making is in it.
    years = re.findall(rb"20[2-9]\d-\d\d-\d\dT", made[0][1].split(b"<script")[0])
    assert not years
