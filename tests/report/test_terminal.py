"""What a person sees on the terminal."""

import io
import re

import pytest
from rich.console import Console
from synthetic_run import Row, SyntheticRun, pipeline
from test_patterns import ONE as PATTERN
from test_patterns import good, measured

from loopscope.analysis import analyse
from loopscope.analysis.quantity_text import duration, maximum_error, number
from loopscope.report import render_terminal
from loopscope.report.rows import headings, interval_rows
from loopscope.timeline import open_run


def printed(results, width=None, colour=False):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=width is not None, no_color=not colour)
    render_terminal(results, console)
    return out.getvalue()


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    made = pipeline(tmp_path_factory.mktemp("run"), messages=1500, lose_every=300)
    return analyse(open_run(made.write()))


def test_every_interval_has_its_row_with_every_number(results):
    lines = printed(results).splitlines()
    assert re.split(r"\s{2,}", lines[0].strip()) == headings(results)
    for line, row in zip(lines[1:], interval_rows(results), strict=False):
        assert line.startswith(row.label)
        cells = re.split(r"\s{2,}", line[len(row.label) :].strip())
        assert cells == [cell.text for cell in row.cells]


def test_columns_are_aligned_at_the_right(results):
    lines = printed(results).splitlines()
    table = lines[: 1 + len(interval_rows(results))]
    assert len({len(line) for line in table}) == 1


def test_a_narrow_terminal_gets_the_same_numbers_within_its_width(results):
    narrow = [line.rstrip() for line in plain(printed(results, width=80)).splitlines()]
    rows = interval_rows(results)
    table = narrow[: 1 + 2 * len(rows)]
    assert max(map(len, table)) <= 80
    for label, numbers, row in zip(table[1::2], table[2::2], rows, strict=False):
        assert label == row.label
        assert numbers.split() == " ".join(cell.text for cell in row.cells).split()


def test_the_verdicts_the_loss_and_the_clocks(results):
    text = printed(results)
    assert re.search(r"^FAIL +loop\.lost == 0 +5$", text, re.MULTILINE)
    assert re.search(r"^PASS +loop\.p99 < 5ms +\d+\.\d µs ± 0 ns$", text, re.MULTILINE)
    emitted = number(results.loss.emitted)
    assert f"emitted {emitted} = recorded {emitted} + dropped 0" in text
    assert "h1 reference, h2 ± 900 ns, h3 ± 1.4 µs" in text
    assert text.rstrip().endswith("FAIL")


def test_colour_is_for_terminals_only(results):
    assert "\x1b[" not in printed(results, colour=True)
    assert "\x1b[1;31mFAIL" in printed(results, width=200, colour=True)


def test_an_unknown_verdict_gives_its_reason_and_drops_their_causes(tmp_path):
    dropped = {("sink", "pipe:received"): 2}
    made = pipeline(tmp_path, messages=50, drops=dropped)
    text = printed(analyse(open_run(made.write())))
    assert "PASS" in text  # nothing is missing from the loop: what was dropped was no message's
    made = pipeline(tmp_path / "lost", messages=50, lose_every=10, drops=dropped, torn={"sink": 1})
    text = printed(analyse(open_run(made.write())))
    assert re.search(r"UNKNOWN +loop\.p99 < 5ms .*up to 3 events may be missing", text)
    assert "+ dropped 3 (ring-full 2, torn 1)" in text
    assert "problem path loop: up to 3 sink/pipe:received may be missing" in text


def test_what_was_not_measured_is_a_dash_and_not_a_zero(tmp_path):
    rows = [Row("source", "pipe:sent", 1, 5)]
    template = pipeline(tmp_path / "unused", messages=1)
    made = SyntheticRun(tmp_path / "run", rows, paths=template.paths, expect=template.expect)
    lines = printed(analyse(open_run(made.write()))).splitlines()
    loop = next(line for line in lines if line.startswith("loop"))
    assert loop.split() == ["loop", "1", "1", *["–"] * 7]
    assert any("not measured" in line for line in lines)


def test_every_type_at_every_receiver_has_its_line(tmp_path):
    rows = [row for row in good() if (row.component, row.id) != ("d", 7)]
    lines = printed(measured(rows, tmp_path, PATTERN)).splitlines()
    assert [re.split(r"\s{2,}", line) for line in lines[:3]] == [
        ["type", "receiver", "n", "lost", "max", "target"],
        ["a", "c", "50", "0", "1.000 ms ± 32 ns", "10.00 ms", "PASS", ""],
        ["a", "d", "49", "1", "1.000 ms ± 32 ns", "10.00 ms", "FAIL", "1 lost"],
    ]
    assert lines[3] == "bed: 1 of 2 targets met"
    assert lines[-1] == "FAIL"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1.5, "1.500 ns"),
        (1000, "1.000 µs"),
        (41_268, "41.27 µs"),
        (999_949, "999.9 µs"),
        (999_951, "1.000 ms"),
        (-12_345_678, "-12.35 ms"),
        (61_000_000_000, "61.00 s"),
        (12_345_000_000_000, "12340 s"),
    ],
)
def test_durations_have_four_digits(ns, text):
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "± 0 ns"),
        (999, "± 999 ns"),
        (1001, "± 1.1 µs"),
        (23001, "± 24 µs"),
        (2000000, "± 2.0 ms"),
        (999900, "± 1000 µs"),
        (1 << 60, "± unknown"),
        ((1 << 60) + 500, "± unknown"),
    ],
)
def test_half_widths_are_rounded_up(ns, text):
    assert maximum_error(ns) == text
