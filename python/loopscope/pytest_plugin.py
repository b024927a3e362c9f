"""A pytest plugin: runs experiments in a fixture, so that tests can assert deadlines.

`pip install loopscope` is enough for pytest to load it. A test asks for the fixture
`loopscope_run`:

    def test_the_loop_meets_its_deadlines(loopscope_run):
        loopscope_run("experiments/pipeline.yaml", params={"count": 1000}).assert_passed()

The same experiment with the same parameters is run once for each scope, which is the session
unless `--loopscope-scope` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from loopscope.api import Experiment, Run, Sweep

Scope = Literal["session", "package", "module", "class", "function"]
SCOPES: tuple[Scope, ...] = ("session", "package", "module", "class", "function")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options `--loopscope-scope` and `--loopscope-runs`."""
    group = parser.getgroup("loopscope", "experiments that loopscope runs")
    group.addoption(
        "--loopscope-scope",
        choices=SCOPES,
        default=None,
        help="Which tests share a run of the same experiment. Default: the ini option "
        "loopscope_scope, else session.",
    )
    group.addoption(
        "--loopscope-runs",
        metavar="DIR",
        default=None,
        help="Where run directories are made and kept. Default: the ini option loopscope_runs, "
        "else pytest's temporary directory.",
    )
    parser.addini("loopscope_scope", "which tests share a run of the same experiment")
    parser.addini("loopscope_runs", "where run directories are made, from the root directory")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses an ini option that names no scope."""
    scope = config.getini("loopscope_scope")
    if scope and scope not in SCOPES:
        raise pytest.UsageError(f"loopscope_scope: {scope}: give one of {', '.join(SCOPES)}")


def _scope(fixture_name: str, config: pytest.Config) -> Scope:
    scope: Scope = config.getoption("--loopscope-scope") or config.getini("loopscope_scope")
    return scope or "session"


class Runner:
    """Runs experiments, each with the same parameters once. The fixture `loopscope_run` is one."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        """Where run directories are made."""
        self._root = root
        self._ended: dict[tuple[str, str], Run | Sweep | Exception] = {}

    def __call__(
        self, experiment: str | Path | Experiment, params: Mapping[str, Any] | None = None
    ) -> Run | Sweep:
        """The run of an experiment.

        The experiment is a file, from pytest's root directory on if it is relative, or built in
        Python.

        Raises what `loopscope.run` raises; of a run that failed in an earlier test the same
        again.
        """
        import loopscope

        __tracebackhide__ = True
        if isinstance(experiment, loopscope.Experiment):
            key = f"{experiment.folder}\n{experiment.to_yaml()}"
        else:
            experiment = self._root / experiment
            key = str(experiment.resolve())
        asked = (key, repr(sorted((params or {}).items())))
        if asked not in self._ended:
            try:
                self._ended[asked] = loopscope.run(experiment, params, folder=self.folder)
            except (
                loopscope.ExperimentErrors,
                loopscope.MissingExtraError,
                loopscope.RunError,
                loopscope.RunFailed,
                OSError,
            ) as error:
                self._ended[asked] = error
        ended = self._ended[asked]
        if isinstance(ended, Exception):
            raise ended
        return ended


@pytest.fixture(scope=_scope)
def loopscope_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Run | Sweep]:
    """Runs an experiment and returns the run: `loopscope_run(file_or_experiment, params={…})`.

    The tests of its scope share a run of the same experiment with the same parameters.
    """
    config = request.config
    given = config.getoption("--loopscope-runs")
    place = given and config.invocation_params.dir / given
    if not place and (ini := config.getini("loopscope_runs")):
        place = config.rootpath / ini
    return Runner(Path(place or tmp_path_factory.mktemp("loopscope")), config.rootpath)
