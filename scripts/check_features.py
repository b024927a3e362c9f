"""Holds that the host programs, the Python module and the tests share one build of each dependency.

Cargo chooses features for the packages of one command. Prints every package for which the commands
of the Makefile choose other features than the build of the tests, and exits 1 if there is one. What
to do: name the missing features in crates/features/Cargo.toml.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["--workspace", "--exclude", "loopscope-python"]
OTHERS = {
    "the host programs": [
        *("--package", "loopscope-host", "--package", "loopscope-stm-c"),
        *("--package", "loopscope-preload"),
    ],
    "the Python module": ["--package", "loopscope-python"],
}
EDGES = (("normal", "normal,dev"), ("normal,build", "normal,build,dev"))
"""Kinds of dependencies of the commands, and of the tests.

What programs are linked with is compared by itself: what build scripts and macros use may have
other features, which would hide a difference.
"""
ONLY_PYTHON = ("loopscope-emulate", "loopscope-python", "pyo3", "target-lexicon")
"""Beginnings of names of packages that only the Python module has, or has without the router."""


def packages(options: list[str]) -> set[str]:
    """Each package of a build with version and features, as one line."""
    command = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]", *options]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {line.removesuffix(" (*)").replace(" (proc-macro)", "") for line in output.splitlines()}


def main() -> int:
    found = set()
    for edges, of_tests in EDGES:
        tests = packages([*TESTS, "--edges", of_tests])
        for name, options in OTHERS.items():
            for package in packages([*options, "--edges", edges]) - tests:
                own = package.split()[0]
                if name == "the Python module" and own.startswith(ONLY_PYTHON):
                    continue
                chosen = [line for line in sorted(tests) if line.startswith(f"{own} ")]
                theirs = ", ".join(chosen) or "do not have it"
                found.add(f"{name} have {package}, the tests {theirs}")
    print("\n".join(sorted(found)), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
