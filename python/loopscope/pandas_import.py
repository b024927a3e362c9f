"""Whether pyarrow imports pandas, which takes a third of a second, for what needs no pandas.

pyarrow looks for pandas when it makes its first array, to accept a series as one. The command line
has none.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Absent:
    """A finder of modules for which pandas is not installed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ImportError(name)


def avoid_pandas() -> None:
    """Has pyarrow make arrays without pandas, where no code has imported pandas yet.

    Its arrays and tables still become those of pandas. Until then it takes nothing of pandas.
    """
    import pyarrow

    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Absent)
    try:
        pyarrow.array([])
    finally:
        sys.meta_path.remove(_Absent)


def allow_pandas() -> None:
    """Has pyarrow take what is of pandas again: for code that others have written."""
    import pyarrow

    # This needs pandas, so pyarrow imports it now.
    pyarrow.nulls(0).to_pandas()
