"""What links did, as a person sees it: on the terminal and on the page."""

import json
import re

import pytest
from links_run import clean_and_lossy, segment, times, write_account, write_events
from synthetic_run import SECOND, SyntheticRun, pipeline
from test_page import Page
from test_split import HOSTS, LOOP, NAMES, crossing
from test_terminal import plain, printed

from loopscope.analysis import analyse
from loopscope.report import write_report
from loopscope.timeline import open_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run over one impaired link whose settings change.

    Another link carries nothing, and a third is a plain wire.
    """
    root = tmp_path_factory.mktemp("run")
    sent = [crossing(i, SECOND + i * 10**6, 1000, 20_004_000, 500) for i in range(100)]
    rows = [row for each, _ in sent for row in each]
    SyntheticRun(root, rows, HOSTS, [LOOP]).write()
    links = {("h1", "h2"): clean_and_lossy(), ("h2", "h1"): [segment({"delay_ns": 7}, 0)]}
    links["h2", "h3"] = [segment({}, 900, delay_ns=times(1.0, 1.0, 1, 1))]
    write_account(root, NAMES, links)
    write_events(root, [packet for _, packet in sent])
    run = open_run(root)
    results = analyse(run)
    return results, printed(results), Page(write_report(run, results).read_text())


def table(text, title):
    """Cells by label of the table below a title; two blanks part them."""
    lines = text.split(f"{title}\n")[1].split("\n\n")[0].splitlines()
    parts = [[cell for cell in line.strip().split("  ") if cell] for line in lines]
    return [[cell.strip() for cell in line] for line in parts]


def test_each_settings_of_a_link_has_its_row(made):
    _, text, _ = made
    head, clean, lossy, _ = table(text, "Emulated links")
    assert clean[:5] == ["h1 → h2 until 30.00 s", "100", "20.00 ms", "20.00 ms", "4.000 µs"]
    row = dict(zip(head, lossy[1:], strict=False))
    assert lossy[0] == "h1 → h2 from 30.00 s"
    assert row["packets"] == "10 000"
    # With a rate there is a queue, so nobody asked for this mean.
    assert row["delay asked"] == "–"
    assert row["loss asked"] == "1 %"
    assert row["loss"].startswith("≠ 3.000 % (2.")
    assert (row["rate asked"], row["rate"]) == ("5 Mbit/s", "3.872 Mbit/s")
    assert row["dropped"] == "queue 20"


def test_each_settings_of_a_link_has_its_row_on_the_page(made):
    _, _, page = made
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", page.source, re.S)
    labels = {re.sub(r"<[^>]*>", "", cell).strip() for cell in cells}
    assert {"h1 → h2 until 30.00 s", "h1 → h2 from 30.00 s"} <= labels


def test_columns_without_anything_in_them_are_not_there(made):
    _, text, _ = made
    head, *_ = table(text, "Emulated links")
    assert not {"dupl.", "corrupt", "deviation", "reordered", "waiting"} & set(head)


def test_the_parts_of_a_hop_stand_below_it(made):
    _, text, _ = made
    head, hop, before, on_link, after, _ = table(text, "Where the network's time goes")
    assert head == ["matched", "not seen", "ambiguous", "mean", "p50", "p99", "clock error"]
    assert hop == ["a/io:out → b/io:in", "100", "0", "0"]
    assert before == ["before the link", *["1.000 µs"] * 3, "± 100 ns"]
    assert on_link[:2] == ["on h1 → h2", "20.00 ms"]
    assert after[0] == "after the link"


def test_a_narrow_terminal_gets_the_same_cells(made):
    results, text, _ = made
    assert plain(printed(results, width=60)).split() == text.split()


def test_the_page_has_the_same_tables(made):
    results, _, page = made
    links = results.to_dict()["links"]
    head, clean, lossy = page.tables["links"]
    assert head == []
    assert [json.loads(row[0]) for row in (clean, lossy)] == [100, 10_000]
    assert json.loads(clean[2]) == links[0]["delay_ns"]["mean"]
    (split,) = results.to_dict()["paths"]["loop"]["hops"][0]["splits"]
    _, hop, before, on_link, after = page.tables["splits"]
    assert [json.loads(value) for value in hop if value] == [100, 0, 0]
    for row, part in ((before, "before"), (on_link, "emulated"), (after, "after")):
        values = [json.loads(value) for value in row if value]
        names = ("mean_ns", "p50_ns", "p99_ns", "err_ns")
        assert values == [split[part][name] for name in names]


def test_a_run_without_emulated_links_has_neither_table(tmp_path):
    run = open_run(pipeline(tmp_path, messages=50).write())
    results = analyse(run)
    assert "link" not in printed(results)
    assert not {"links", "splits"} & set(Page(write_report(run, results).read_text()).tables)
