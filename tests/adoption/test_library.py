"""What ``libloopscope.so``, which goes into strangers' programs, asks of their machines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(sys.executable).parents[1] / "lib" / "libloopscope.so.0"

# Debian 10 and RHEL 8.
OLDEST_GLIBC = (2, 28)

# Bytes of the file as it is installed, debug information included.
LARGEST = 300_000


def output(*words: str | Path) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout


def undefined(library: Path) -> dict[str, str]:
    """Every symbol that the library takes from elsewhere, weak ones too, with its version."""
    symbols = {}
    for line in output("readelf", "--wide", "--dyn-syms", library).splitlines():
        words = line.split()
        if len(words) > 7 and words[6] == "UND":
            name, _, version = words[7].partition("@")
            symbols[name] = version
    return symbols


def too_new(version: str) -> bool:
    number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
    # Others, such as GLIBC_PRIVATE and GLIBC_ABI_DT_RELR, come with one glibc or with newer ones.
    return number is None or (int(number[1]), int(number[2])) > OLDEST_GLIBC


def test_it_needs_libc_alone() -> None:
    dynamic = output("readelf", "--wide", "--dynamic", LIBRARY)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    assert "libc.so.6" in needed
    # Both others are parts of the C library, too.
    loader = {name for name in needed if name.startswith("ld-linux")}
    assert needed - loader <= {"libc.so.6", "libpthread.so.0"}


def test_it_runs_with_older_c_libraries() -> None:
    symbols = undefined(LIBRARY)
    assert symbols["mmap"], "readelf tells the symbols' versions"
    unversioned = {name for name, version in symbols.items() if not version}
    # What the compiler's start files mention, weak: nothing has to provide it.
    assert unversioned <= {
        "__gmon_start__",
        "_ITM_deregisterTMCloneTable",
        "_ITM_registerTMCloneTable",
    }
    versions = {name: version for name, version in symbols.items() if version}
    assert {name: version for name, version in versions.items() if too_new(version)} == {}
    references = output("readelf", "--wide", "--version-info", LIBRARY)
    needs = set(re.findall(r"Name: (\S+)\s+Flags", references))
    assert needs and {version for version in needs if too_new(version)} == set()


def test_its_thread_functions_are_found_before_they_moved_into_libc() -> None:
    """Until glibc 2.33 they were in libpthread, and a program need not have loaded that."""
    dynamic = output("readelf", "--wide", "--dynamic", LIBRARY)
    if any(name.startswith("pthread_") for name in undefined(LIBRARY)):
        assert "[libpthread.so.0]" in dynamic


def test_headers_of_a_newer_c_library_change_nothing(tmp_path: Path) -> None:
    """From glibc 2.38 on a call of strtol is one of __isoc23_strtol."""
    source = tmp_path / "number.c"
    source.write_text(
        'extern long newer(const char *, char **, int) __asm__("__isoc23_strtol");\n'
        "long number(const char *text)\n{\n    return newer(text, (char **)0, 10);\n}\n"
    )
    library = tmp_path / "number.so"
    versions = ROOT / "crates/trace/c/versions.h"
    compiler = os.environ.get("CC", "cc")
    output(
        compiler, "-D_GNU_SOURCE", "-include", versions, "-fPIC", "-shared", "-o", library, source
    )
    symbols = undefined(library)
    assert "__isoc23_strtol" not in symbols
    assert not too_new(symbols["strtol"])


def test_it_is_small() -> None:
    assert LIBRARY.stat().st_size <= LARGEST
