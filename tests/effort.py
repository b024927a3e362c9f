"""How much a test draws: a little each time, all of it in `make soak`."""

import os

SOAK = "LOOPSCOPE_SOAK" in os.environ


def cases(few: int, many: int) -> int:
    """The number of cases that a property's test draws; ``make soak`` draws others each time."""
    return many if SOAK else few
