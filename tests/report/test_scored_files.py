"""The figures of `loopscope clock verify --output`."""

import csv
import random
from dataclasses import replace

import numpy as np
import pytest

from loopscope.report.scored_files import draw_scored, figure_of, read_scored

FIGURES = ("error_ns", "hard_half_width_ns", "calibrated_ns")
OFFLINE, ONLINE = ([f"{side}_{figure}" for figure in FIGURES] for side in ("offline", "online"))
INSTANTS = 9000
OUTLIER = 321.5


@pytest.fixture
def table(tmp_path):
    """Writes a scenario's table; offline an outlier, online nothing is known of every tenth."""

    def write(name, online=True):
        chance = random.Random(1)
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = csv.DictWriter(file, ["host", "time_s", *OFFLINE, *ONLINE])
            rows.writeheader()
            for i in range(INSTANTS):
                row = {"host": "h2", "time_s": i / 100}
                error = -OUTLIER if i == 4711 else chance.gauss(0, 20)
                row |= zip(OFFLINE, (error, 400, 50), strict=True)
                if online and i % 10:
                    row |= zip(ONLINE, (chance.gauss(0, 60), 700, 150), strict=True)
                rows.writerow(row)
        return tmp_path / f"{name}.csv"

    return write


def test_every_scenario_is_drawn_and_nothing_else(table, tmp_path):
    table("idle")
    table("holdover", online=False)
    (tmp_path / "shopping.csv").write_text("what,cost\nbread,2\n")
    (tmp_path / "empty.csv").write_text("")
    draw_scored(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir() if path.suffix != ".csv"}
    assert drawn == {f"{n}.{kind}" for n in ("idle", "holdover") for kind in ("svg", "pdf", "png")}
    texts = {name: (tmp_path / f"{name}.svg").read_text() for name in ("idle", "holdover")}
    for text in ("hard maximum error", "calibrated error bound", "idle, offline", "idle, online"):
        assert text in texts["idle"]
    assert "holdover, offline" in texts["holdover"] and "online" not in texts["holdover"]


def test_the_figure_keeps_the_outlier_and_counts_all(table):
    sides = read_scored(table("idle"))
    assert {side: len(each.error) for side, each in sides.items()} == {
        "offline": INSTANTS,
        "online": INSTANTS * 9 // 10,
    }
    offline, online, share = figure_of("idle", sides).axes
    hard, calibrated, error = (line.get_ydata() for line in offline.lines)
    assert set(hard) == {400} and set(calibrated) == {50}
    assert error.max() == OUTLIER and error.min() >= 0 and len(error) < INSTANTS
    assert offline.get_ylim() == online.get_ylim()
    low, high = offline.get_ylim()
    assert low >= 1 and high > 700
    # As many as are larger than each: none of which fewer are left than one.
    of_offline, of_online = share.lines
    at, larger = of_offline.get_data()
    assert at[-1] == OUTLIER and larger[-1] == pytest.approx(1 / INSTANTS)
    assert share.get_xlim()[1] > OUTLIER
    at, larger = of_online.get_data()
    for some in (10, 60, 120):
        expected = np.mean(np.abs(sides["online"].error) > some)
        assert np.interp(some, at, larger) == pytest.approx(expected, abs=1e-3)


def test_what_is_large_is_told_in_larger_units_and_all_widths_are_seen(table):
    """Error and hard width far above the calibrated one, as with an asymmetric path."""
    [offline] = read_scored(table("asymmetry", online=False)).values()
    large = replace(offline, error=offline.error + 50_000, hard=offline.hard * 130)
    axes, share = figure_of("asymmetry", {"offline": large}).axes
    assert axes.get_ylabel() == "µs" and share.get_xlabel() == "error against truth (µs)"
    hard, calibrated, _ = axes.lines
    assert set(hard.get_ydata()) == {52} and set(calibrated.get_ydata()) == {0.05}
    low, high = axes.get_ylim()
    assert low <= 0.05 and high >= 52
