"""Holds that the host programs, the Python module and the tests share one build of each dependency.

Cargo chooses features for the packages of one command. Prints every package for which the commands
of the Makefile choose other features than the build of the tests, and exits 1 if there is one. What
to do: name the missing features in crates/features/Cargo.toml.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["--workspace", "--exclude", "loopscope-python", "--edges", "normal,build,dev"]
OTHERS = {
    "the host programs": ["--package", "loopscope-host", "--edges", "normal,build"],
    "the Python module": ["--package", "loopscope-python", "--edges", "normal,build"],
}
OWN = {"loopscope-emulate", "loopscope-python"}
"""Have other features in the Python module on purpose: it has no router."""
ONLY_PYTHON = ("pyo3", "target-lexicon")


def packages(options: list[str]) -> set[str]:
    """Each package of a build with version and features, as one line."""
    command = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]", *options]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {line.removesuffix(" (*)").replace(" (proc-macro)", "") for line in output.splitlines()}


def main() -> int:
    tests = packages(TESTS)
    status = 0
    for name, options in OTHERS.items():
        for package in sorted(packages(options) - tests):
            own = package.split()[0]
            if own in OWN or own.startswith(ONLY_PYTHON):
                continue
            chosen = [line for line in sorted(tests) if line.startswith(f"{own} ")]
            print(f"{name} have {package}, the tests {', '.join(chosen) or 'do not have it'}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
