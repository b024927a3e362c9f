"""Optional dependencies: the extra that installs each, and the error where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EXTRAS: Final = {
    "grpc": ("testbed", "runs on a testbed"),
    "google": ("testbed", "runs on a testbed"),
    "matplotlib": ("figures", "figures as files"),
    "perfetto": ("exports", "Perfetto traces"),
    "pyspark": ("spark", "analyses on Spark"),
}
"""Top-level module to the extra that installs it and what needs it."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed. The text names the command that installs it."""


def remedy(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'loopscope[{extra}]'"


def missing_extra(error: BaseException) -> MissingExtraError | None:
    """The error for a person where an import lacked an extra that is not installed; else None."""
    if isinstance(error, MissingExtraError):
        return error
    module = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module not in EXTRAS:
        return None
    extra, what = EXTRAS[module]
    return MissingExtraError(
        f"{what} need the package {module}, which is not installed: {remedy(extra)}", name=module
    )


@contextmanager
def readable_import_errors() -> Iterator[None]:
    """Raises MissingExtraError where an import fails because an extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        explained = missing_extra(error)
        if explained is None:
            raise
        raise explained from None
