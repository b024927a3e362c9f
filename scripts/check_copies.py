"""Finds code that stands in two places: more than twelve equal lines, outside of tests.

Compares lines without indentation. Blank lines, comments, lone brackets and imports do not count.
Prints every pair of places and exits 1 if there is one.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 12
ENDINGS = {".py", ".rs", ".c", ".h", ".hpp"}
SKIPPED = re.compile(r"(#(?!define)|//|/?\*|\"\"\"|import |from |use |pub use )|[\W_]*$")
IMPORTS = re.compile(r"^(from [\w.]+ import|(?:pub )?use [\w:]+::) ?[({][^)}]*[)}];?", re.MULTILINE)

Place = tuple[Path, int]


def sources() -> list[Path]:
    """The tracked source files that are not tests."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
    return [
        path
        for path in map(Path, listed.splitlines())
        if path.suffix in ENDINGS and not {"tests", "tests.rs"} & set(path.parts)
        if (ROOT / path).exists()
    ]


def code(path: Path) -> list[tuple[int, str]]:
    """The lines that count, with their numbers."""
    text = (ROOT / path).read_text(encoding="utf-8")
    text = IMPORTS.sub(lambda found: "\n" * found[0].count("\n"), text)
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1))
    return [(number, line) for number, line in lines if not SKIPPED.match(line)]


def copies() -> dict[tuple[Path, Path], tuple[int, int]]:
    """For each two files, or a file twice, the lines where the first shared run begins."""
    seen: dict[tuple[str, ...], Place] = {}
    found: dict[tuple[Path, Path], tuple[int, int]] = {}
    for path in sources():
        lines = code(path)
        for start in range(len(lines) - MOST):
            window = lines[start : start + MOST + 1]
            first = seen.setdefault(tuple(line for _, line in window), (path, window[0][0]))
            if first != (path, window[0][0]):
                found.setdefault((first[0], path), (first[1], window[0][0]))
    return found


def main() -> int:
    found = copies()
    for (one, other), (here, there) in found.items():
        print(f"{one}:{here} and {other}:{there} share more than {MOST} lines")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
