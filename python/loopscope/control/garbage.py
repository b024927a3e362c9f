"""Python's garbage collector while a run goes on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects before the collector looks at them; Python's own default is 700. A barrier over 300
# hosts makes some ten thousand, nearly all of which are gone without its help.
NEW_OBJECTS = 20_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Has the collector look less often, and not at what was there before.

    That is nearly all: the classes of imported modules, and the experiment. To look at it all holds
    up whatever the controller does for a tenth of a second, in the middle of a phase.
    """
    if gc.get_freeze_count():
        # Somebody else has decided.
        yield
        return
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(before[0], NEW_OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
