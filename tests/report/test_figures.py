"""Tables as figures: what their numbers are, what their files hold."""

from __future__ import annotations

import csv
import random
import re
import statistics
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pypdf import PdfReader

from loopscope.analysis.quantity_text import UNKNOWN_NS
from loopscope.report.canvas import WIDTHS
from loopscope.report.chart_file import file_figure
from loopscope.report.decimation import histogram_of, seen
from loopscope.report.figures import KINDS, FigureError, chart, check, draw
from loopscope.report.sample_statistics import grouped
from loopscope.report.samples import Series

N = 6000
START = 1_700_000_000_000_000_000
DELAYS = ("10ms", "0ms", "100ms")
COLUMNS = {
    "scatter": {"x": "ts", "y": "latency", "err": "err_ns"},
    "histogram": {"x": "latency", "err": "err_ns"},
    "ccdf": {"x": "latency", "err": "err_ns", "series": "host"},
    "mean-deviation": {"x": "delay", "y": "latency", "err": "err_ns"},
    "heatmap": {"x": "ts", "y": "latency"},
}


def made(n: int = N) -> pa.Table:
    """Latencies, one in a thousand slow, with maximum errors of which some are not known."""
    chance = random.Random(7)
    lengths = [int(chance.lognormvariate(10.6, 0.15)) for _ in range(n)]
    lengths = [each + (3_000_000 if chance.random() < 0.001 else 0) for each in lengths]
    errors = [chance.randrange(900, 1500) for _ in range(n)]
    errors[5], errors[6] = None, UNKNOWN_NS
    return pa.table(
        {
            "ts": [START + i * 2_000_000 for i in range(n)],
            "latency": lengths,
            "err_ns": pa.array(errors, pa.int64()),
            "host": [f"h{i % 2}" for i in range(n)],
            "delay": [DELAYS[i % 3] for i in range(n)],
        }
    )


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def fonts(file: Path) -> dict[str, bool]:
    """Kind of each font, and whether it is embedded."""
    found = {}
    for page in PdfReader(file).pages:
        for each in page["/Resources"]["/Font"].values():
            font = each.get_object()
            if "/DescendantFonts" in font:
                font = font["/DescendantFonts"][0].get_object()
            descriptor = font.get("/FontDescriptor", {})
            found[font["/Subtype"]] = "/FontFile2" in descriptor and found.get(font["/Subtype"], 1)
    return found


@pytest.mark.parametrize("width", ["one", "two"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_gives_its_files(kind: str, width: str, tmp_path: Path) -> None:
    files = draw(kind, made(), tmp_path, "it", columns=COLUMNS[kind], title="Pipe", width=width)
    assert [file.name for file in files] == ["it.svg", "it.pdf", "it.png", "it.csv"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    page = PdfReader(files[1]).pages[0].mediabox
    assert float(page.width) == pytest.approx({"one": 3.5, "two": 7.16}[width] * 72, abs=0.1)
    # TrueType in a composite font, never Type 3; the text is text.
    assert fonts(files[1]) == {"/CIDFontType2": True}
    text = files[0].read_text()
    shown = re.findall(r"<text[^>]*>(.*?)</text>", text)
    assert re.search(r"latency\b[^()]*\(µs\)", " ".join(shown)), shown
    assert "Pipe" in shown
    sizes = {float(size) for size in re.findall(r"font(?:-size)?: (?:[a-z0-9]+ )?([\d.]+)px", text)}
    assert min(sizes) >= 7
    assert "<dc:date>" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_table_gives_the_same_bytes(kind: str, tmp_path: Path) -> None:
    def bytes_of(folder: str) -> list[bytes]:
        files = draw(kind, made(), tmp_path / folder, "it", columns=COLUMNS[kind])
        return [file.read_bytes() for file in files]

    assert bytes_of("a") == bytes_of("b")


def test_a_large_scatter_is_light_and_keeps_every_extreme(tmp_path: Path) -> None:
    n = 400_000
    table = made(n)
    *pictures, numbers = draw("scatter", table, tmp_path, "it", columns=COLUMNS["scatter"])
    assert all(file.stat().st_size < 300_000 for file in pictures)
    assert "<image" in pictures[0].read_text()
    drawn = {(int(r["ts since the first (ns)"]), int(r["latency (ns)"])) for r in rows(numbers)}
    lengths = table["latency"].to_pylist()
    every = {(i * 2_000_000, length) for i, length in enumerate(lengths)}
    assert drawn < every and len(drawn) < n / 5
    slow = {each for each in every if each[1] > 3_000_000}
    # All of them stand alone, but for those that share a dot.
    assert len(slow & drawn) > len(slow) * 0.8
    assert {max(lengths), min(lengths)} <= {length for _, length in drawn}


def test_of_each_column_and_dot_something_is_seen() -> None:
    chance = np.random.default_rng(3)
    x, y = np.sort(chance.random(50_000)), chance.normal(size=50_000)
    y[[17, 40_000]] = 50, -60
    kept = seen(x, y, 100, 40)
    assert (np.diff(kept) > 0).all() and {17, 40_000} <= set(kept.tolist())
    column = np.minimum(((x - x[0]) / (x[-1] - x[0]) * 100).astype(int), 99)
    row = np.minimum(((y - y.min()) / (y.max() - y.min()) * 40).astype(int), 39)
    for i in range(100):
        here, of_kept = y[column == i], y[kept[column[kept] == i]]
        assert (here.min(), here.max()) == (of_kept.min(), of_kept.max())
    dots = set(zip(column, row, strict=True))
    assert dots == set(zip(column[kept], row[kept], strict=True))
    assert len(kept) <= len(dots) + 2 * 100


def test_the_histogram_counts_every_sample_or_says_so(tmp_path: Path) -> None:
    table = made()
    *_, numbers = draw("histogram", table, tmp_path, "it", columns=COLUMNS["histogram"])
    lengths = table["latency"].to_pylist()
    found = rows(numbers)
    end = float(found[-1]["to (ns)"])
    for row in found[:-1]:
        low, high = float(row["from (ns)"]), float(row["to (ns)"])
        assert int(row["samples"]) == sum(low <= length < high for length in lengths)
    beyond = sum(length > end + 1 for length in lengths)
    assert sum(int(row["samples"]) for row in found) == N - beyond
    assert f"{beyond} above" in (tmp_path / "it.svg").read_text()


def test_far_tails_at_either_end_leave_the_bulk_its_room() -> None:
    """At most 1 % at each end is left out, and only where it would take a third of the axis."""
    bulk = np.random.default_rng(1).integers(1000, 2000, 5000)
    for far in ([1_000_000] * 30, [-1_000_000] * 30, [1_000_000] * 20 + [-1_000_000] * 20):
        values = np.r_[bulk, far]
        found = histogram_of(values)
        assert found.counts.sum() + found.below + found.beyond == len(values)
        assert (found.below, found.beyond) == (far.count(-1_000_000), far.count(1_000_000))
        assert found.edges[-1] - found.edges[0] < 1.5 * 1000
    whole = histogram_of(bulk)
    assert (whole.below, whole.beyond) == (0, 0)


def test_a_logarithmic_histogram_has_every_decade(tmp_path: Path) -> None:
    values = [0, -5, *(10**k for k in range(6) for _ in range(40))]
    table = pa.table({"latency": values})
    for log in ("x", "x,y"):
        columns = {"x": "latency", "log": log}
        *_, numbers = draw("histogram", table, tmp_path, "it", columns=columns)
        counts = [int(row["samples"]) for row in rows(numbers)]
        assert sum(counts) == 240 and sum(count > 0 for count in counts) == 6
        assert "2 below" in (tmp_path / "it.svg").read_text()
    with pytest.raises(FigureError, match="no latency is above zero"):
        table = pa.table({"latency": [0, -1]})
        draw("histogram", table, tmp_path, "it", columns={"x": "latency", "log": "x"})


@pytest.mark.parametrize("kind", ["scatter", "histogram", "ccdf", "mean-deviation"])
def test_a_legend_says_what_series_differ_in_and_covers_no_curve(kind: str) -> None:
    n = 300
    table = pa.table(
        {
            "latency": np.arange(n) % 7 + 1,
            "size_bytes": np.arange(n) % 6,
            "x": np.arange(n) % 5,
        }
    )
    columns = {"x": "latency", "series": "size_bytes"}
    if kind in ("scatter", "mean-deviation"):
        columns |= {"x": "x", "y": "latency"}
    figure = file_figure(chart(kind, table, columns), WIDTHS["two"])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend.get_title().get_text() == "size (B)"
    assert len(legend.get_texts()) == 6
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1


def test_the_tail_is_counted_exactly_within_its_doubt(tmp_path: Path) -> None:
    table = made()
    *_, numbers = draw("ccdf", table, tmp_path, "it", columns=COLUMNS["ccdf"])
    for host in ("h0", "h1"):
        pairs = zip(
            *(table[name].to_pylist() for name in ("host", "latency", "err_ns")), strict=True
        )
        told = [(length, err) for of, length, err in pairs if of == host]
        known = [(length, UNKNOWN_NS if err is None else err) for length, err in told]
        found = [row for row in rows(numbers) if row["series"] == host]
        assert int(found[0]["samples at least as large"]) == len(told)
        for row in found:
            value, count = int(row["latency (ns)"]), int(row["samples at least as large"])
            assert count == sum(length >= value for length, _ in told)
            assert float(row["share"]) == pytest.approx(count / len(told), rel=1e-9)
        # The order statistics of the ends, of which the one that is not known may be any.
        tops = sorted((length + err for length, err in known), reverse=True)
        low = sorted((length - err for length, err in known), reverse=True)
        middle = next(r for r in found if int(r["samples at least as large"]) == 50)
        assert float(middle["most by the clocks (ns)"]) == tops[49]
        assert float(middle["least by the clocks (ns)"]) == low[49]
        assert int(found[-1]["latency (ns)"]) == max(length for length, _ in told)
    text = (tmp_path / "it.svg").read_text()
    assert "h0 (n = 3 000)" in text
    assert "of 2 unknown" in text


def test_means_and_deviations_are_exact_in_whatever_order(tmp_path: Path) -> None:
    table = made().slice(7)
    *_, numbers = draw("mean-deviation", table, tmp_path, "it", columns=COLUMNS["mean-deviation"])
    found = {float(row["delay (ns)"]): row for row in rows(numbers)}
    assert list(found) == [0, 10e6, 100e6]
    for text, ns in zip(DELAYS, (10e6, 0, 100e6), strict=True):
        there = [i for i, each in enumerate(table["delay"].to_pylist()) if each == text]
        lengths = [table["latency"][i].as_py() for i in there]
        errors = [table["err_ns"][i].as_py() for i in there]
        row = found[ns]
        assert float(row["mean latency (ns)"]) == float(Fraction(sum(lengths), len(lengths)))
        deviation = statistics.pstdev(lengths)
        assert float(row["standard deviation (ns)"]) == pytest.approx(deviation, rel=1e-12)
        doubt = float(row["clock error of the mean (ns)"])
        assert doubt == pytest.approx(statistics.fmean(errors), rel=1e-12)
        assert int(row["n"]) == len(there)


def test_large_numbers_lose_nothing_in_sums() -> None:
    values = [2**61 + i for i in (0, 1, 2, 10_000_000_019)] * 500
    (point,) = grouped(Series("", {"x": np.zeros(2000), "y": np.array(values)}))
    assert point.mean == Fraction(sum(values), 2000)
    assert point.deviation == pytest.approx(statistics.pstdev([v - 2**61 for v in values]), 1e-14)


def test_a_single_sample_is_seen_on_the_heat_map(tmp_path: Path) -> None:
    table = made()
    *_, numbers = draw("heatmap", table, tmp_path, "it", columns=COLUMNS["heatmap"])
    found = rows(numbers)
    assert sum(int(row["samples"]) for row in found) == N
    most = max(table["latency"].to_pylist())
    tops = [row for row in found if float(row["latency (ns) to"]) >= most - 1]
    assert tops and all(float(row["latency (ns) from"]) <= most for row in tops)


def test_units_come_from_the_column_or_from_who_asks(tmp_path: Path) -> None:
    rate = pa.field("throughput", pa.float64(), metadata={"unit": "bit/s"})
    table = pa.table([[9.5e6, 9.6e6], [1.0, 2.0]], schema=pa.schema([rate, ("load", pa.float64())]))
    draw("scatter", table, tmp_path, "it", columns={"x": "load", "y": "throughput"})
    assert "throughput (Mbit/s)" in (tmp_path / "it.svg").read_text()
    told = {"x": "load", "y": "throughput", "x_unit": "%", "x_label": "CPU", "y_label": "bulk"}
    draw("scatter", table, tmp_path, "it", columns=told)
    text = (tmp_path / "it.svg").read_text()
    assert "CPU (%)" in text and "bulk (Mbit/s)" in text


def test_rows_without_a_number_are_left_out_and_told(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2, None, 4], "y": [1.0, float("nan"), 3.0, 4.0]})
    draw("scatter", table, tmp_path, "it", columns={"x": "x", "y": "y"})
    assert len(rows(tmp_path / "it.csv")) == 2
    text = (tmp_path / "it.svg").read_text()
    assert "n = 2; 2 rows without a number left out" in text


@pytest.mark.parametrize(
    ("kind", "columns", "said"),
    [
        ("histgram", {"x": "latency"}, "no kind of figure histgram (did you mean histogram?)"),
        ("scatter", {"x": "ts"}, "scatter needs y: the column of the number"),
        ("histogram", {"x": "latency", "bin": "9"}, "no column or option bin (did you mean bins?)"),
        ("histogram", {"x": "latency", "bins": "9.5"}, "bins: 9.5 is no whole number"),
        ("histogram", {"x": "latncy"}, "no column latncy; did you mean latency?"),
        ("histogram", {"x": "host"}, "x: host is text"),
        ("scatter", {"x": "ts", "y": "host"}, "y: host is text"),
        ("ccdf", {"x": "latency", "log": "z"}, "log: z is neither x nor y"),
        ("scatter", {"x": "latency", "y": "minus", "log": "y"}, "has values of zero or less"),
        ("scatter", {"x": "ts", "y": "nothing"}, "nothing to draw"),
        ("scatter", {"x": "ts", "y": "minus", "y_unit": "ms", "err": "err_ns"}, "err: it is in ns"),
    ],
)
def test_mistakes_are_told(kind: str, columns: dict[str, str], said: str, tmp_path: Path) -> None:
    table = made(50).append_column("minus", pa.array([-1] * 50))
    table = table.append_column("nothing", pa.array([None] * 50, pa.int64()))
    with pytest.raises(FigureError, match=re.escape(said)):
        draw(kind, table, tmp_path, "it", columns=columns)
    assert not list(tmp_path.iterdir())


def test_a_check_needs_no_table() -> None:
    for kind, columns in COLUMNS.items():
        check(kind, columns)
    with pytest.raises(FigureError, match="needs x"):
        check("ccdf", {})
