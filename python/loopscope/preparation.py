"""What judging a run needs and does not depend on the run: modules, templates, adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules

_TABLES = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "loopscope.control.timeline",
    "duckdb",
)
_REPORT = (
    "numpy.fft",
    "numpy.ma",
    "numpy.random",
    "loopscope.graph.stored_analyses",
    "loopscope.report.plots",
    "loopscope.report.page",
    "loopscope.report.terminal",
)


def steps(before_tables: Callable[[], None]) -> Iterator[Callable[[], object]]:
    """Steps that make it, each of 0.1 s or so, in the order in which a run needs what they make.

    ``before_tables`` is a step before the first one that may make a table.
    """
    for name in _TABLES:
        yield partial(import_module, name)
        if name == "pyarrow":
            yield before_tables
    yield _read_manifests
    for package in ("loopscope.analysis", "loopscope.analysis.findings"):
        found = import_module(package).__path__
        for module in iter_modules(found, f"{package}."):
            yield partial(import_module, module.name)
    for name in _REPORT:
        yield partial(import_module, name)
    yield _write_results
    yield _make_pages


def _read_manifests() -> None:
    from loopscope.experiment import manifest

    manifest.prepare()


def _write_results() -> None:
    from loopscope.analysis import Results

    Results.prepare()


def _make_pages() -> None:
    from loopscope.report import html

    html.prepare()
