"""The examples in the docstrings of the Python API, over synthetic runs."""

from __future__ import annotations

import doctest
import inspect
import os
from pathlib import Path

import pytest

import loopscope
from loopscope import api, pytest_plugin
from loopscope.api import experiment, figure, finished

MODULES = (loopscope, api, experiment, figure, finished)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples(home: Path, module: object) -> None:
    assert inspect.ismodule(module)
    flags = doctest.NORMALIZE_WHITESPACE
    done = doctest.testmod(module, extraglobs={"ls": loopscope}, optionflags=flags)
    assert done.attempted > 0 and done.failed == 0, f"in {os.getcwd()}"


def test_every_public_name_is_documented_with_an_example() -> None:
    """Classes and functions; errors say when they are raised."""
    for name in loopscope.__all__:
        each = getattr(loopscope, name)
        assert inspect.getdoc(each), name
        plain = name == "__version__" or (inspect.isclass(each) and issubclass(each, Exception))
        if not plain and name != "Problem":
            assert ">>> " in (each.__doc__ or ""), f"{name} has no example"
    assert pytest_plugin.__doc__


def test_the_package_is_typed() -> None:
    assert (Path(loopscope.__file__).parent / "py.typed").is_file()
