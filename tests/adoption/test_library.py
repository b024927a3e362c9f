"""What the programs and libraries ask of machines: glibc 2.28 or later.

``libloopscope.so`` goes into strangers' programs, and the host binary to other machines.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PREFIX = Path(sys.executable).parents[1]
LIBRARY = PREFIX / "lib" / "libloopscope.so.0"

# Debian 10 and RHEL 8.
OLDEST_GLIBC = (2, 28)

# Bytes of the file as it is installed, debug information included.
LARGEST = 300_000


def output(*words: str | Path) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout


def undefined(library: Path) -> dict[str, str]:
    """Every symbol that the library takes from elsewhere, weak ones too, with its version.

    Weak symbols without a version are left out: nothing has to provide them.
    """
    symbols = {}
    for line in output("readelf", "--wide", "--dyn-syms", library).splitlines():
        words = line.split()
        if len(words) > 7 and words[6] == "UND":
            name, _, version = words[7].partition("@")
            if version or words[4] != "WEAK":
                symbols[name] = version
    return symbols


def too_new(version: str) -> bool:
    number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
    # Others, such as GLIBC_PRIVATE and GLIBC_ABI_DT_RELR, come with one glibc or with newer ones.
    return number is None or (int(number[1]), int(number[2])) > OLDEST_GLIBC


def extension(package: str) -> Path:
    """The native module of an installed package."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.origin is not None
    (path,) = Path(found.origin).parent.glob("_*.so")
    return path


def needed(file: Path) -> set[str]:
    """Names of the libraries that a file needs, but the loader's."""
    dynamic = output("readelf", "--wide", "--dynamic", file)
    names = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    assert "libc.so.6" in names
    return {name for name in names if not name.startswith("ld-linux")}


# Parts of the C library, until glibc 2.33.
GLIBC = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1"}


def shipped() -> dict[str, Path]:
    return {
        "library": LIBRARY,
        "stm-library": PREFIX / "lib" / "libloopscope_stm.so.0",
        "preload-library": PREFIX / "lib" / "libloopscope_preload.so",
        "host": PREFIX / "bin" / "loopscope-host",
        "desk-python": extension("loopscope"),
        "trace-python": extension("loopscope_trace"),
    }


def test_the_library_needs_libc_alone() -> None:
    assert needed(LIBRARY) <= {"libc.so.6", "libpthread.so.0"}


def test_the_stm_library_has_the_functions_of_its_header() -> None:
    library = shipped()["stm-library"]
    header = (PREFIX / "include/loopscope/stm.h").read_text("utf-8")
    declared = set(re.findall(r"\b(loopscope_stm_\w+)\(", header))
    symbols = output("readelf", "--wide", "--dyn-syms", library).splitlines()
    words = [line.split() for line in symbols]
    # The linker adds names of its own, such as _init.
    names = {each[7] for each in words if len(each) > 7 and each[6] not in ("UND", "Ndx")}
    defined = {name for name in names if "@" not in name and not name.startswith("_")}
    assert defined == declared and len(declared) > 20
    assert "libloopscope_stm.so.0" in output("readelf", "--wide", "--dynamic", library)


def test_the_preload_library_stands_before_functions_of_the_c_library_alone() -> None:
    """A name of another kind would stand before a program's own."""
    library = shipped()["preload-library"]
    words = [line.split() for line in output("readelf", "-W", "--dyn-syms", library).splitlines()]
    names = {each[7] for each in words if len(each) > 7 and each[6] not in ("UND", "Ndx")}
    assert {"socket", "recvmsg", "epoll_wait", "close"} <= names
    own = ctypes.CDLL(None)
    # The linker adds _init and _fini. Later versions of glibc have all of the others.
    later = {"_init", "_fini", "_Fork", "close_range", "closefrom", "epoll_pwait2", "execveat"}
    later |= {"preadv64v2", "pwritev64v2"}
    assert {name for name in names if not hasattr(own, name)} <= later


@pytest.mark.parametrize("file", shipped().values(), ids=shipped().keys())
def test_it_runs_with_older_c_libraries(file: Path) -> None:
    assert needed(file) <= GLIBC
    symbols = undefined(file)
    versions = {name: version for name, version in symbols.items() if version}
    assert versions, "readelf tells the symbols' versions"
    assert {name: version for name, version in versions.items() if too_new(version)} == {}
    # Python's have none.
    unversioned = symbols.keys() - versions.keys()
    assert all(re.match("_?Py", name) for name in unversioned), unversioned
    references = output("readelf", "--wide", "--version-info", file)
    needs = set(re.findall(r"Name: (\S+)\s+Flags", references))
    assert needs and {version for version in needs if too_new(version)} == set()


def test_its_thread_functions_are_found_before_they_moved_into_libc() -> None:
    """Until glibc 2.33 they were in libpthread, and a program need not have loaded that."""
    assert any(name.startswith("pthread_") for name in undefined(LIBRARY))
    assert "libpthread.so.0" in needed(LIBRARY)


def test_it_is_small() -> None:
    assert LIBRARY.stat().st_size <= LARGEST
