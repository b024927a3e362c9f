"""Messages for errors of DuckDB and Arrow about tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class RunError(Exception):
    """A run directory that cannot be read. The text says which file and what to do."""


class NothingMeasuredError(RunError):
    """A run that ended before anything was measured. The text has the reason."""


def is_interrupt(error: Exception) -> bool:
    """Whether DuckDB noticed Ctrl-C before Python did.

    Its threads compute on until they are told (`interrupt` of the connection), and the end of the
    program would wait for them.
    """
    return isinstance(error, RuntimeError) and str(error) == "Query interrupted"


def table_error(error: BaseException) -> str | None:
    """The problem and its remedy, in a line; None for an error that is not of tables."""
    import duckdb
    import pyarrow as pa
    from ibis.common.exceptions import IbisError

    # Arrow's own are OSError, ValueError and others as well.
    if not isinstance(error, duckdb.Error | pa.ArrowException | IbisError):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    what = lines[0] if lines else type(error).__name__
    return (
        f"the tables cannot be read: {what}. If a file is damaged, loopscope report RUN makes a "
        "run's tables again"
    )


@contextmanager
def readable_errors() -> Iterator[None]:
    """Raises what is wrong with tables as RunError, and an interrupt as KeyboardInterrupt."""
    try:
        yield
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        if (what := table_error(error)) is None:
            raise
        raise RunError(what) from error
