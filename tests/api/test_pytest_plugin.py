"""The pytest plugin, with runs that are opened instead of measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_run import expectation, pipeline

import loopscope

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
import pathlib
import loopscope

calls = pathlib.Path(__file__).parent / "calls"

def run(experiment, params=None, *, folder):
    with calls.open("a") as out:
        out.write(f"{getattr(experiment, 'name', experiment)} {params} {folder}\\n")
    if params == {"fails": 1}:
        raise loopscope.RunFailed("source on h1 ended with exit status 3")
    return loopscope.open_run({run!r})

loopscope.run = run
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with tests whose runs are a stored one that passes."""
    use(pytester, pipeline(pytester.path / "stored", messages=20).write())
    monkeypatch.setenv("PYTHONPATH", str(Path(loopscope.__file__).parents[1]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def use(pytester: pytest.Pytester, run: Path) -> None:
    """Every experiment ends in this run."""
    pytester.makeconftest(CONFTEST.replace("{run!r}", repr(str(run))))


def run_tests(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "loopscope.pytest_plugin", "-p", "no:cacheprovider",
                                         *words)  # fmt: skip


def calls(pytester: pytest.Pytester) -> list[str]:
    """What was run, in order; the tests begin without."""
    file = pytester.path / "calls"
    lines = file.read_text().splitlines()
    file.unlink()
    return lines


SHARED = """
import loopscope, pytest
from pathlib import Path

class TestA:
    def test_passes(self, loopscope_run):
        loopscope_run("own.yaml", params={"count": 3}).assert_passed()

    def test_is_the_same(self, loopscope_run):
        run = loopscope_run(Path(__file__).parent / "own.yaml", params={"count": 3})
        assert run is loopscope_run("own.yaml", params={"count": 3})
        assert run.paths is not None

class TestB:
    def test_other_parameters(self, loopscope_run):
        loopscope_run("own.yaml", params={"count": 4}).assert_passed()
        loopscope_run("own.yaml", params={"count": 3}).assert_passed()

    def test_built(self, loopscope_run):
        for _ in range(2):
            loopscope_run(loopscope.Experiment(name="built", hosts=["h1"])).assert_passed()
"""


def test_tests_of_a_scope_share_a_run(suite: pytest.Pytester) -> None:
    suite.makepyfile(SHARED)
    run_tests(suite).assert_outcomes(passed=4)
    shared = calls(suite)
    assert [line.split(" ")[0].rpartition("/")[2] for line in shared] == ["own.yaml"] * 2 + [
        "built"
    ]
    run_tests(suite, "--loopscope-scope=class").assert_outcomes(passed=4)
    assert len(calls(suite)) == 4
    run_tests(suite, "-o", "loopscope_scope=function").assert_outcomes(passed=4)
    assert len(calls(suite)) == 5
    wrong = run_tests(suite, "-o", "loopscope_scope=sesion")
    wrong.stderr.fnmatch_lines(["*loopscope_scope: sesion: give one of session,*"])


def test_runs_are_kept_where_a_person_wants_them(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_it(loopscope_run): loopscope_run('own.yaml')")
    run_tests(suite, "--loopscope-runs=kept").assert_outcomes(passed=1)
    assert calls(suite)[0].endswith(f" {suite.path / 'kept'}")
    run_tests(suite, "-o", "loopscope_runs=build/runs").assert_outcomes(passed=1)
    assert calls(suite)[0].endswith(f" {suite.path / 'build/runs'}")


def test_a_failure_names_the_expectation_its_cause_and_the_report(suite: pytest.Pytester) -> None:
    late = expectation("loop.p99 < 100us", "p99", "<", 100_000)
    run = pipeline(suite.path / "late", messages=20, expect=[late]).write()
    (run / "report.html").write_text("<html>")
    use(suite, run)
    suite.makepyfile("def test_it(loopscope_run): loopscope_run('own.yaml').assert_passed()")
    done = run_tests(suite)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "*ExpectationsFailed: *late: FAIL",
            "E*  FAIL     loop.p99 < 100us: * µs ± *",
            "E*  cause    the slowest hop of loop is * → *: p99 *",
            f"E*  report: {(run / 'report.html').as_uri()}",
        ]
    )
    # The traceback ends in the test, not in loopscope.
    done.stdout.no_fnmatch_line("*judgement.py*")


def test_unknown_fails_and_says_why(suite: pytest.Pytester) -> None:
    drops = {("sink", "pipe:received"): 3}
    use(suite, pipeline(suite.path / "torn", messages=20, lose_every=10, drops=drops).write())
    suite.makepyfile("def test_it(loopscope_run): loopscope_run('own.yaml').assert_passed()")
    done = run_tests(suite)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "*ExpectationsUnknown: *torn: UNKNOWN",
            "E*  UNKNOWN  loop.lost == 0: * (*may be missing*)",
        ]
    )


def test_a_run_that_fails_is_run_once(suite: pytest.Pytester) -> None:
    test = "def test_{}(loopscope_run): loopscope_run('own.yaml', params={{'fails': 1}})\n"
    suite.makepyfile(test.format("a") + test.format("b"))
    done = run_tests(suite)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*RunFailed: source on h1 ended with exit status 3"])
    assert len(calls(suite)) == 1


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    entry = "[project.entry-points.pytest11]\n"
    assert '\n"loopscope.pytest_plugin" = "loopscope.pytest_plugin"\n' in text.partition(entry)[2]
