"""Holds that no Rust modules of a crate use each other in a circle.

A module uses another where a path in it that begins with ``crate``, ``self`` or ``super`` leads
there; what the root of a crate re-exports does not count, nor do tests. Prints each circle with the
names that its modules take from each other, and exits 1 if there is one. What to do: move what both
need to a module of its own, or merge what is one thing.
"""

import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Uses = dict[str, dict[str, set[str]]]


def module_of(file: Path, source: Path) -> str:
    """The path of a file's module in its crate; the root's is empty."""
    parts = file.relative_to(source).with_suffix("").parts
    return "::".join(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)


def flat(tree: str) -> Iterator[str]:
    """The paths of a use tree: ``a::{b, c::d}`` has ``a::b`` and ``a::c::d``."""
    start = tree.find("{")
    if start < 0:
        yield tree.split(" as ")[0].strip()
        return
    depth, item = 0, ""
    for character in tree[start + 1 : tree.rindex("}")] + ",":
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            if item.strip():
                yield from flat(tree[:start] + item.strip())
            item = ""
        else:
            item += character


def absolute(path: str, module: str) -> str:
    """A path from the crate's root, of one that is written in `module`."""
    words = path.split("::")
    base = [] if words[0] == "crate" else module.split("::")
    while words and words[0] in ("crate", "self", "super"):
        if words.pop(0) == "super":
            base = base[:-1]
    return "::".join([*base, *words])


def uses(source: Path) -> Uses:
    """For each module the modules that it uses, and the names that it takes from them."""
    files = {
        module_of(file, source): file for file in source.rglob("*.rs") if "tests" not in str(file)
    }
    found: Uses = {module: {} for module in files}
    for module, file in files.items():
        text = re.sub(r"//.*", "", file.read_text())
        text = re.split(r"#\[cfg\(test\)\]\s*(?:pub(?:\(\w+\))? )?mod tests", text)[0]
        trees = re.findall(r"\buse\s+((?:crate|super|self)\b[^;]*);", text)
        paths = [path for tree in trees for path in flat(re.sub(r"\s+", " ", tree))]
        paths += re.findall(r"\bcrate(?:::\w+)+", text)
        for path in paths:
            words = absolute(path, module).split("::")
            prefixes = ("::".join(words[:end]) for end in range(len(words), 0, -1))
            target = next((prefix for prefix in prefixes if prefix in files), "")
            if target not in ("", module):
                found[module].setdefault(target, set()).add(words[-1])
    return found


def main() -> int:
    status = 0
    for source in sorted(ROOT.glob("crates/*/src")):
        found = uses(source)
        try:
            graphlib.TopologicalSorter(found).prepare()
        except graphlib.CycleError as error:
            status = 1
            # Each is used by the next.
            circle = list(reversed(error.args[1]))
            print(f"{source.relative_to(ROOT)}: modules use each other in a circle:")
            for user, used in zip(circle, circle[1:], strict=False):
                print(f"  {user} takes {', '.join(sorted(found[user][used]))} from {used}")
    return status


if __name__ == "__main__":
    sys.exit(main())
