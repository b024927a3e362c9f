"""The graph of threads and channels, and the way of items to other hosts, as people see them."""

from __future__ import annotations

import csv
import dataclasses
import html
import json
import random
import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from synthetic_run import pipeline
from test_page import Page
from test_remote_items import FRAMES, HOST_THREADS, HOSTS, plain, without_put
from test_run_figures import figure
from test_terminal import printed

from loopscope.analysis import Results, analyse
from loopscope.analysis.channel_result import ChannelResult, ChannelsResult, ChannelUse
from loopscope.analysis.quantity_text import duration
from loopscope.experiment import Experiment
from loopscope.report import thread_channel_graph, write_report
from loopscope.report.chart_page import page_figure
from loopscope.report.diagram import Box, Diagram
from loopscope.report.layered_layout import Size, Spacing, closing_edges, drawing, layers_of
from loopscope.report.samples import FigureError
from loopscope.timeline import open_run

pytestmark = pytest.mark.full

# Gaps in which an edge that closes a loop, level for 60, turns but once.
SPACING = Spacing(76.0, 18.0, 20.0, 14.0)


def graphs() -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Threads (0) and channels (1), and edges between them, most of them with loops."""
    draw = random.Random(5)
    found = []
    for _ in range(40):
        threads, channels = draw.randrange(1, 13), draw.randrange(1, 9)
        edges = []
        for thread in range(threads):
            for channel in draw.sample(range(channels), draw.randrange(1, min(3, channels) + 1)):
                ends = (thread, threads + channel)
                edges.append(ends if draw.random() < 0.5 else ends[::-1])
        found.append(([0] * threads + [1] * channels, edges))
    return found


def is_free_of_loops(nodes: int, edges: Sequence[tuple[int, int]]) -> bool:
    left = set(range(nodes))
    while left:
        free = {node for node in left if not any(e[1] == node and e[0] in left for e in edges)}
        if not free:
            return False
        left -= free
    return True


def test_edges_that_close_loops_are_as_few_as_needed_of_a_single_loop() -> None:
    # Two threads in a loop over two channels: it is cut before the first.
    assert closing_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)]) == {3}
    assert closing_edges(4, [(0, 1), (1, 2), (2, 3)]) == set()
    for kinds, edges in graphs():
        nodes = len(kinds)
        closing = closing_edges(nodes, edges)
        others = [edge for i, edge in enumerate(edges) if i not in closing]
        assert is_free_of_loops(nodes, others)
        if is_free_of_loops(nodes, edges):
            assert not closing
        layer = layers_of(kinds, others)
        assert all(layer[start] < layer[end] for start, end in others) and min(layer) == 0
        # Threads have layers of their own.
        assert len({(at + kind) % 2 for at, kind in zip(layer, kinds, strict=True)}) == 1


def test_nodes_do_not_overlap_and_edges_pass_none() -> None:
    for kinds, edges in graphs():
        ends = [[edge[side] for edge in edges] for side in (0, 1)]
        sizes = [
            Size(60 + 7 * (node % 5), 24 + 20 * max(each.count(node) for each in ends))
            for node in range(len(kinds))
        ]
        made = drawing(sizes, kinds, edges, [(60.0, 60.0)] * len(edges), SPACING)
        assert made == drawing(sizes, kinds, edges, [(60.0, 60.0)] * len(edges), SPACING)
        boxes = [
            (x - size.width / 2, x + size.width / 2, y - size.height / 2, y + size.height / 2)
            for (x, y), size in zip(made.centres, sizes, strict=True)
        ]
        for one, other in combinations(boxes, 2):
            apart = one[1] <= other[0] or other[1] <= one[0]
            assert apart or one[3] <= other[2] or other[3] <= one[2]
        every = [(x, y) for way in made.ways for x, y in way.corners]
        assert all(-1e-6 <= x <= made.width + 1e-6 for x, _ in every)
        assert all(y <= made.height + 1e-6 for _, y in every)
        for way, (start, end) in zip(made.ways, edges, strict=True):
            assert way.corners[0][0] == pytest.approx(boxes[start][1])
            assert way.corners[-1][0] == pytest.approx(boxes[end][0])
            for (x, y), (next_x, next_y) in pairwise(way.corners):
                if y != next_y:
                    continue
                # Within a layer, and below all of them, it is level.
                for left, right, top, bottom in boxes:
                    over = min(x, next_x) < right - 1e-6 and left + 1e-6 < max(x, next_x)
                    assert not (over and top < y < bottom)


def use(component: str, host: str, channel: str, event: str, rate: float | None) -> ChannelUse:
    tid = 10 + sum(map(ord, component))
    items = 60 if rate else 1
    return ChannelUse(1, host, component, tid, tid, channel, event, items, 600, rate)


USES = (
    use("camera", "h1", "frames", "put", 49.87),
    use("tracker", "h2", "frames", "got", 45.12),
    use("tracker", "h2", "poses", "put", 45.12),
    use("actuator", "h1", "poses", "looked", 998.7),
    use("actuator", "h1", "commands", "put", None),
    use("camera", "h1", "commands", "got", None),
)


def of_uses(results: Results, uses: Sequence[ChannelUse]) -> Results:
    homes = {"frames": "h1", "poses": "h2", "commands": "h1"}
    channels = tuple(ChannelResult(1, host, name, 4, 1, 1, 0, 0) for name, host in homes.items())
    return dataclasses.replace(results, channels=ChannelsResult(channels, tuple(uses), ()))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return analyse(open_run(pipeline(tmp_path_factory.mktemp("run"), messages=20).write()))


def diagram_of(results: Results) -> Diagram:
    (layer,) = thread_channel_graph.chart(results).panels[0].layers
    assert isinstance(layer, Diagram)
    return layer


def test_the_graph_has_each_thread_channel_and_use(results: Results) -> None:
    given = of_uses(results, USES)
    diagram, chart = diagram_of(given), thread_channel_graph.chart(given)
    boxes = {box.lines: box for box in diagram.boxes}
    assert {lines: box.is_round for lines, box in boxes.items()} == {
        ("camera", "h1"): False,
        ("tracker", "h2"): False,
        ("actuator", "h1"): False,
        ("frames", "h1"): True,
        ("poses", "h2"): True,
        ("commands", "h1"): True,
    }
    colours = {box.lines[-1]: set[str]() for box in diagram.boxes}
    for box in diagram.boxes:
        colours[box.lines[-1]].add(box.colour)
    assert len(colours["h1"]) == len(colours["h2"]) == 1 and colours["h1"] != colours["h2"]
    texts = [arrow.text for arrow in diagram.arrows]
    assert texts == ["49.9 Hz", "45.1 Hz", "45.1 Hz", "999 Hz", "1 item", "1 item"]
    assert [arrow.dashed for arrow in diagram.arrows] == [False] * 3 + [True] + [False] * 2
    # From left to right, and back over the last edge alone.
    order = ("camera", "frames", "tracker", "poses", "actuator", "commands")
    across = [next(box.centre[0] for box in diagram.boxes if box.lines[0] == n) for n in order]
    assert across == sorted(across)
    assert [arrow.is_curved for arrow in diagram.arrows] == [True] * 5 + [False]
    for arrow, (start, end) in zip(diagram.arrows, pairwise([*order, order[0]]), strict=True):
        assert touches(boxes, start, arrow.corners[0]) and touches(boxes, end, arrow.corners[-1])
    assert "poses → actuator of h1 (looked), 999 Hz" in chart.description
    head, *rows = chart.rows
    assert [dict(zip(head, row, strict=True))["rate (Hz)"] for row in rows][:4] == [
        49.87, 45.12, 45.12, 998.7
    ]  # fmt: skip
    assert thread_channel_graph.chart(given).panels == chart.panels


def touches(boxes: dict[tuple[str, ...], Box], name: str, at: tuple[float, float]) -> bool:
    box = next(box for lines, box in boxes.items() if lines[0] == name)
    beside = abs(abs(at[0] - box.centre[0]) - box.width / 2) < 1e-6
    return beside and abs(at[1] - box.centre[1]) < box.height / 2


def test_texts_at_arrows_lie_over_nothing(results: Results) -> None:
    draw = random.Random(3)
    for _ in range(20):
        threads = [f"thread-{i}" for i in range(12)]
        uses = []
        for thread in threads:
            for channel in draw.sample(range(8), draw.randrange(1, 4)):
                event = draw.choice(("put", "got", "looked"))
                rate = draw.uniform(1, 2000)
                uses.append(use(thread, f"h{1 + len(thread) % 2}", f"c{channel}", event, rate))
        diagram = diagram_of(of_uses(results, uses))
        places = [(box.centre, box.width, box.height) for box in diagram.boxes]
        sides = [(x + s * w / 2, y, h) for (x, y), w, h in places for s in (-1, 1)]
        for x, y in (arrow.corners[end] for arrow in diagram.arrows for end in (0, -1)):
            assert any(abs(x - at) < 1e-6 and abs(y - mid) < h / 2 for at, mid, h in sides)
        areas = [(x - w / 2, x + w / 2, y - h / 2, y + h / 2) for (x, y), w, h in places]
        for arrow in diagram.arrows:
            x, y = arrow.text_at
            areas.append((x, x + 6 * len(arrow.text), y - 12, y - 1))
        for one, other in combinations(areas, 2):
            apart = one[1] <= other[0] or other[1] <= one[0]
            assert apart or one[3] <= other[2] or other[3] <= one[2]


def test_several_threads_of_a_component_have_their_numbers(results: Results) -> None:
    second = dataclasses.replace(USES[1], tid=99)
    lines = [box.lines for box in diagram_of(of_uses(results, [*USES, second])).boxes]
    assert ("tracker", f"thread {USES[1].tid}", "h2") in lines
    assert ("tracker", "thread 99", "h2") in lines and ("camera", "h1") in lines


def test_a_run_without_recorded_uses_has_no_graph(results: Results) -> None:
    assert not thread_channel_graph.has_graph(results)
    with pytest.raises(FigureError, match="not recorded"):
        thread_channel_graph.chart(results)


def test_texts_leave_their_colour_to_the_page(results: Results) -> None:
    """So they can be read on light and on dark."""
    made = page_figure(thread_channel_graph.chart(of_uses(results, USES)))
    texts = [trace for trace in made["data"] if trace["mode"] == "text"]
    assert len(texts) == 2 and all("color" not in trace["textfont"] for trace in texts)
    assert all("fillcolor" in s or s["line"]["color"] for s in made["layout"]["shapes"])


class _Run:
    """A run in which `frames` of h1 go to two hosts, of one of which each sending is known."""

    def __init__(self, root: Path) -> None:
        from synthetic_run import SyntheticRun

        ways = [plain(time, host, thread) for time in range(40) for host, thread in HOST_THREADS]
        ways.append(plain(40, "h2", 11))
        ways = without_put(ways)
        ways[4].lost.add("received")
        extra = [row for way in ways for row in way.rows()]

        class OfChannels(SyntheticRun):
            def experiment(self) -> Experiment:
                return dataclasses.replace(super().experiment(), channels=(FRAMES,))

        self.root = OfChannels(root, extra, HOSTS).write()
        self.run = open_run(self.root)
        self.results = analyse(self.run)
        self.terminal = printed(self.results)
        self.page = Page(write_report(self.run, self.results).read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> _Run:
    return _Run(tmp_path_factory.mktemp("channels"))


NAMES = ("whole", "put_to_sent", "sent_to_received", "received_to_got")


def test_the_table_of_the_page_has_the_numbers_of_the_json(made: _Run) -> None:
    remote = made.results.to_dict()["channels"]["remote_items"]
    rows = [row for row in made.page.tables["remote-items"] if row]
    assert len(remote) == 2 and len(rows) == 8
    assert [row[:2] for row in rows[:4]] == [
        ["41", "0"], ["41", "0"], ["40", "1"], ["40", "1"]
    ]  # fmt: skip
    numbers = [[json.loads(cell) for cell in row] for row in rows]
    assert numbers == [
        [part["items"], each["items"] - part["items"], *(part[key] for key in TIMES)]
        for each in remote
        for part in (each[name] for name in NAMES)
    ]


TIMES = ("p50_ns", "p99_ns", "max_ns", "err_ns")


def test_the_terminal_has_the_table(made: _Run) -> None:
    text = made.terminal.split("Items to other hosts\n")[1]
    assert made.results.channels is not None
    first = made.results.channels.remote_items[0]
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    assert lines[1][:4] == [
        "frames of h1 → reader-h2 of h2", "41", "0", duration(first.whole.times["p50"] or 0)
    ]  # fmt: skip
    assert [line[0] for line in lines[2:5]] == [
        "put → sent on h1", "h1 sent → h2 received", "received → got on h2"
    ]  # fmt: skip


def test_the_page_has_both_figures_with_what_they_show_in_words(made: _Run) -> None:
    assert [name for name in made.page.plots if name in ("channels", "remote-items")] == [
        "channels", "remote-items"
    ]  # fmt: skip
    label = re.search(r'data-figure="channels"[^>]*aria-label="([^"]*)"', made.page.source)
    assert label and "camera of h1 → frames" in html.unescape(label[1])


def test_the_bars_are_the_medians_one_after_the_other(made: _Run, tmp_path: Path) -> None:
    code, out, err = figure(made.root, "remote-items", "channels", "-o", tmp_path)
    assert code == 0, err
    figures = json.loads(made.page.scripts["figures"])
    bars = [each for each in figures["remote-items"]["data"] if each["type"] == "bar"]
    assert made.results.channels is not None
    first = made.results.channels.remote_items[0]
    medians = [getattr(first, name).times["p50"] for name in NAMES[1:]]
    shown = [(bar["base"][0], bar["x"][0]) for bar in bars[:3]]
    # In µs.
    begins = [sum(medians[:place]) for place in range(3)]
    assert shown == [
        (pytest.approx(begin / 1000), pytest.approx(length / 1000))
        for begin, length in zip(begins, medians, strict=True)
    ]
    with (tmp_path / "remote-items.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [int(row["p50 (ns)"]) for row in rows[1:4]] == medians
    svg = (tmp_path / "channels.svg").read_text()
    texts = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    assert {"camera", "frames", "reader-h2"} <= {each for text in texts for each in [text.strip()]}
    sizes = re.findall(r"font(?:-size)?: (?:[a-z0-9]+ )?([\d.]+)px", svg)
    assert min(map(float, sizes)) >= 6.5
    assert (tmp_path / "channels.csv").exists() and "remote-items.svg" in out


def test_open_sendings_are_counted_below_the_table(tmp_path: Path, made: _Run) -> None:
    channels = made.results.channels
    assert channels is not None
    doubtful = tuple(
        dataclasses.replace(each, undecided_sent=7, missing=None) for each in channels.remote_items
    )
    text = printed(
        dataclasses.replace(
            made.results, channels=dataclasses.replace(channels, remote_items=doubtful)
        )
    )
    assert "Of 14 it is open which sending was to this host" in text
    assert "An unknown number of the records of what was got may be missing" in text
    assert "it is open which" not in made.terminal
