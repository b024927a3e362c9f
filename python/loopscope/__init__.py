"""loopscope builds, runs, instruments and judges distributed control loops on Linux.

The desk side: experiments, their control, and results. ``open_run`` opens a finished run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopscope.timeline import open_run

__version__ = "0.1.0"
__all__ = ["__version__", "open_run"]


def __getattr__(name: str) -> Any:
    # The engine behind a run takes a second to import; programs that only use the phase helper
    # should not pay for it.
    if name == "open_run":
        from loopscope.timeline import open_run

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
