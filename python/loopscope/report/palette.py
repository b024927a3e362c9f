"""Colours that people with a colour vision deficiency can tell apart, on light and on dark.

After Okabe and Ito, *Color Universal Design* (2008).
"""

BLUE = "#2b8cc4"
ORANGE = "#d55e00"
SERIES = (BLUE, "#e69f00", "#009e73", "#cc79a7", "#56b4e9", ORANGE)
"""One per repeat, in turn."""
TARGET = "#808080"
"""The colour of what was asked for, drawn with what was measured."""
MARKS = {"link": "#808080", "trigger": "#b0307a"}
"""Colours of events during the run, by kind (`marks.py`)."""


def series_colour(repeat: int) -> str:
    return SERIES[(repeat - 1) % len(SERIES)]
