"""Threads, forks, other Pythons, and programs that nobody records."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from python_programs import Programs

pytestmark = pytest.mark.full

SMOKE = """
    import sys
    from loopscope_trace import counter, event, interval

    ticks = event("t", "ticks", number="u32", note="str")
    step = interval("t", "step")
    late = counter("t", "late")
    for i in range(200):
        with step(i):
            ticks(i, i * i, note=str(sys.version_info[1]))
        late.add()
    late.log()
    try:
        ticks(1, 2**32, "")
        sys.exit("too large a number was taken")
    except OverflowError as error:
        assert "number" in str(error)
"""


def test_threads(programs: Programs) -> None:
    recorded = programs.record("""
        import threading
        from loopscope_trace import counter, event, interval, thread_init

        hit = event("t", "hit", thread="u8")
        step = interval("t", "step")
        total = counter("t", "total")

        def work(thread):
            thread_init()
            for i in range(500):
                with step(i):
                    hit(i, thread)
                total.add()

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total.log()
    """)
    by_tid: dict[int, list[tuple[int, int]]] = {}
    for row in recorded.rows("t:hit"):
        by_tid.setdefault(row["tid"], []).append((row["thread"], row["id"]))
    assert sorted(by_tid.values()) == [[(n, i) for i in range(500)] for n in range(8)]
    assert Counter(recorded.column("t:step", "id")) == {i: 8 for i in range(500)}
    assert recorded.column("t:total", "value")[0] == 4000


def test_forked_children_record_too(programs: Programs) -> None:
    recorded = programs.record("""
        import multiprocessing, os
        from loopscope_trace import event

        hit = event("t", "hit", child="u8")

        def work(child):
            for i in range(100):
                hit(i, child)

        for i in range(100):
            hit(i, 255)
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(n,)) for n in range(4)]
        for child in children:
            child.start()
        for child in children:
            child.join()
            assert child.exitcode == 0
    """)
    by_pid: dict[int, list[tuple[int, int]]] = {}
    for row in recorded.rows("t:hit"):
        by_pid.setdefault(row["pid"], []).append((row["child"], row["id"]))
    assert sorted(by_pid.values()) == [[(n, i) for i in range(100)] for n in (0, 1, 2, 3, 255)]


@pytest.mark.parametrize("runtime", ["", "/nonexistent"])
def test_a_program_that_cannot_be_recorded_runs_as_it_is(programs: Programs, runtime: str) -> None:
    done = programs.run(
        """
        from loopscope_trace import event, histogram, interval, thread_init

        plain, full = event("t", "plain"), event("t", "full", size="u8")
        step, wait = interval("t", "step"), histogram("t", "wait")
        thread_init()
        for i in range(1000):
            plain(i)
            full(i, i)
            with step(i):
                wait.add(i)
        wait.log()
        # Arguments are counted, not looked at.
        full("not an id", 1e9)
        for call in (plain, full, lambda: full(1), lambda: plain(1, 2), wait.add):
            try:
                call()
            except TypeError:
                print("TypeError")
        """,
        runtime=runtime,
    )
    assert done.stdout == "TypeError\n" * 5


def python(minor: int) -> str | None:
    """An interpreter of this version that runs: in PATH, or one of pyenv's that is not."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python3.{minor}"))
    for candidate in [shutil.which(f"python3.{minor}"), *map(str, places)]:
        if candidate is not None:
            check = [candidate, "-c", "import sys; print(sys.version_info[:2])"]
            done = subprocess.run(check, capture_output=True, text=True, check=False)
            if done.stdout == f"(3, {minor})\n":
                return candidate
    return None


@pytest.mark.parametrize("minor", range(8, 15))
def test_one_module_for_every_python(programs: Programs, minor: int) -> None:
    other = python(minor)
    if other is None:
        pytest.skip(f"SKIPPED LOUDLY: there is no python3.{minor} here")
    recorded = programs.record(SMOKE, python=other)
    assert recorded.column("t:ticks", "number") == [i * i for i in range(200)]
    assert set(recorded.column("t:ticks", "note")) == {str(minor)}
    assert recorded.column("t:step", "id") == list(range(200))
    assert recorded.column("t:late", "value")[0] == 200


def test_the_extension_needs_a_c_library_of_2018_alone(programs: Programs) -> None:
    (module,) = programs.site.glob("loopscope_trace/_core*.so")
    assert module.name == "_core.abi3.so"
    command = ["readelf", "--wide", "--dynamic", "--version-info", module]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", told))
    assert "libc.so.6" in needed
    assert needed <= {"libc.so.6", "libpthread.so.0"}
    versions = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", told)
    assert versions
    assert max((int(major), int(minor)) for major, minor in versions) <= (2, 28)


def test_an_extension_that_does_not_load_says_what_is_wanted(programs: Programs) -> None:
    (module,) = programs.site.glob("loopscope_trace/_core*.so")
    module.write_bytes(b"of another machine")
    done = programs.run("import loopscope_trace", check=False)
    assert done.returncode == 1
    assert "ImportError: loopscope_trace needs 64-bit Linux on x86-64 or aarch64" in done.stderr


def test_names_and_ranges_that_a_trace_cannot_hold(programs: Programs) -> None:
    done = programs.run("""
        from loopscope_trace import describe, event, histogram, interval

        for make in (
            lambda: event("a b", "c"),
            lambda: event("a", "c:d"),
            lambda: event("a", ""),
            lambda: event("a", "n" * 256),
            lambda: event("a", "b", size="int"),
            lambda: event("a", "b", id="u8"),
            lambda: event("a", "b", **{"x-y": "u8"}),
            lambda: event("a", "b", **{f"f{n}": "u8" for n in range(9)}),
            lambda: event("a", "b", unit="u8"),
            lambda: interval("a", "b", over=1.5),
            lambda: histogram("a", "b", low=1, high=2),
            lambda: histogram("a", "b", low=2, high=1, buckets=1),
            lambda: histogram("a", "b", low=0, high=10, buckets=11),
            lambda: (histogram("a", "r"), histogram("a", "r", low=0, high=10, buckets=10)),
            lambda: describe("a", "b", description="x" * 5000),
        ):
            try:
                print("taken:", make())
            except ValueError as error:
                print("ValueError", error)
    """)
    lines = done.stdout.splitlines()
    assert len(lines) == 15
    assert all(line.startswith("ValueError ") for line in lines), lines


def test_waiting_processes_leave_nothing(programs: Programs) -> None:
    """With nothing but the package, a program waits to be attached to, and then cleans up."""
    done = programs.run(
        """
        import glob, os
        from loopscope_trace import event

        event("t", "e")(1)
        (own,) = glob.glob(f"/dev/shm/loopscope-{os.geteuid()}/{os.getpid()}-*")
        print(own)
        """,
        runtime=None,
    )
    assert not Path(done.stdout.strip()).exists()
