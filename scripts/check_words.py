#!/usr/bin/env python3
"""Finds comments and documents that are not written in plain technical English.

It reports comments and docstrings that begin without their subject ("Of the last packet."), and
words that the project does not use.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STARTS = re.compile(r"(Of|Which|Who|Whose|Whom|Whoever|Likewise|Nor|Beside)\b")
WORDS = re.compile(
    r"\b(beside|likewise|hears?|heard|hearsay|whoever|whomever|thereof|whereof|hereby)\b", re.I
)
REMEDY = "Write subject, verb, object; the first line says what the thing is or returns."
CODE = re.compile(r"`[^`]*`")
LINE_COMMENT = re.compile(r"(?:^|\s)//[/!]?(?:\s+(.*))?$")
BLOCK_COMMENT = re.compile(r"^\s*(?:/\*\*?|\*)\s+(.*)$")
HASH_COMMENT = re.compile(r"(?:^|\s)#\s+(.*)$")

# A line's number, its text, and whether a comment begins there.
Line = tuple[int, str, bool]


def python(text: str) -> Iterator[Line]:
    """The lines of comments and docstrings of a Python file."""
    previous = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: "), token.start[0] != previous + 1
            previous = token.start[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                for number, line in enumerate(docstring.splitlines()):
                    yield node.body[0].lineno + number, line, number == 0


def comments(text: str, patterns: tuple[re.Pattern[str], ...]) -> Iterator[Line]:
    """The lines of comments that one of the patterns matches."""
    previous = -1
    for number, line in enumerate(text.splitlines(), 1):
        match = next((found for pattern in patterns if (found := pattern.search(line))), None)
        if match:
            begins = number != previous + 1 or line.lstrip().startswith("/*")
            yield number, match[1] or "", begins
            previous = number


def markdown(text: str) -> Iterator[Line]:
    """The lines of a document outside of code blocks."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line, False


def lines(path: Path, text: str) -> Iterator[Line]:
    """The lines of a file that people read as text."""
    if path.suffix == ".py":
        return python(text)
    if path.suffix in (".rs", ".c", ".h", ".cpp", ".proto"):
        return comments(text, (LINE_COMMENT, BLOCK_COMMENT))
    if path.suffix in (".toml", ".yaml", ".yml", ".sh"):
        return comments(text, (HASH_COMMENT,))
    return markdown(text) if path.suffix == ".md" else iter(())


def findings(path: Path) -> list[str]:
    """The findings in a file, each `path:line: "word"`."""
    found = []
    for number, line, begins in lines(path, path.read_text("utf-8", errors="replace")):
        plain = CODE.sub("", line)
        hits = [match[0] for match in WORDS.finditer(plain)]
        if (
            begins
            and (start := STARTS.match(line))
            and start[0].lower() not in map(str.lower, hits)
        ):
            hits.append(start[0])
        found += [f'{path.relative_to(ROOT)}:{number}: "{hit}"' for hit in hits]
    return found


def main() -> int:
    """0 if no file has findings."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    found = [finding for name in names for finding in findings(ROOT / name)]
    if found:
        print(*found, REMEDY, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
