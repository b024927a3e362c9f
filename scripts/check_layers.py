"""Holds the dependency rules of ARCHITECTURE.md: which crate and which package may use which.

It also holds that no source file but tests is longer than 500 lines.

Asks cargo for the crates' dependencies and reads the Python files' imports; prints every breach and
exits 1 if there is one.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Texts of control that depend on the provider.
NAMES_A_PROVIDER = re.compile(r"\btestbed:? (ssh|local)\b|\bssh\b|\bover SSH\b")

# Lines of a source file.
LONGEST = 500

# What each crate may depend on, of our own. A crate that is not here is an error: every new crate
# takes its place in the design first.
CRATES: dict[str, set[str]] = {
    "time": set(),
    "ctf": {"time"},
    "predicate": {"time"},
    "trace": {"time", "ctf"},
    "trace-layer": {"trace"},
    "collect": {"time", "ctf", "predicate", "trace"},
    "clock": {"time"},
    "clocksync": {"time", "ctf", "clock"},
    "kernel": {"time", "ctf", "sock-diag"},
    "timeline": {"time", "ctf"},
    "phase": set(),
    "timer": {"time"},
    "quantity": set(),
    "stack": set(),
    "sock-diag": set(),
    "netlink": set(),
    "unix-lines": set(),
    "takeover": {"stack", "sock-diag"},
    "divert": {"stack"},
    "stm": set(),
    "stm-shared": {"stm", "trace", "unix-lines"},
    "stm-link": {"stm", "stm-shared"},
    "stm-c": {"stm", "stm-shared", "timer"},
    "features": {"time"},
    "messages": {"quantity"},
    "frames": set(),
    "engine": {"stack", "frames", "unix-lines"},
    "stack-service": {
        "divert",
        "engine",
        "frames",
        "netlink",
        "stack",
        "takeover",
        "unix-lines",
    },
    "preload": {"engine", "stack", "time", "trace"},
    "emulate": {"time", "trace", "phase", "timer", "quantity", "frames"},
    "workload": {"time", "trace", "phase", "timer", "quantity", "messages"},
    "agent": {
        "time",
        "ctf",
        "collect",
        "clocksync",
        "emulate",
        "kernel",
        "netlink",
        "phase",
        "timer",
    },
    "clock-verify": {"agent", "clock", "clocksync", "collect", "quantity", "time", "timer"},
    "host": {
        "agent",
        "clock",
        "clock-verify",
        "clocksync",
        "collect",
        "emulate",
        "features",
        "kernel",
        "phase",
        "quantity",
        "stack-service",
        "stm-link",
        "stm-shared",
        "time",
        "timer",
        "workload",
    },
    "python": {
        "clocksync",
        "ctf",
        "emulate",
        "features",
        "kernel",
        "messages",
        "predicate",
        "stm",
        "stm-shared",
        "time",
        "timeline",
        "timer",
    },
}

# What each Python package may import, of our own.
PACKAGES: dict[str, set[str]] = {
    "extras": set(),
    "files": set(),
    "port_ranges": set(),
    "socket_lines": {"strict_json"},
    "strict_json": set(),
    "layout": set(),
    "pandas_import": set(),
    "experiment": {"port_ranges", "strict_json"},
    "timeline": {"experiment", "files", "layout", "strict_json"},
    "provider": {"strict_json"},
    "testbed": {"experiment", "provider", "files", "strict_json"},
    "phase": set(),
    "stm": set(),
    "analysis": {"timeline", "experiment", "layout", "strict_json"},
    "report": {"analysis", "timeline", "experiment", "extras", "files", "strict_json"},
    "export": {"analysis", "timeline", "experiment", "layout"},
    "graph": {
        "analysis",
        "report",
        "export",
        "timeline",
        "experiment",
        "extras",
        "layout",
        "pandas_import",
        "strict_json",
    },
    "control": {
        "provider",
        "experiment",
        "files",
        "layout",
        "socket_lines",
        "strict_json",
    },
    "preparation": {"analysis", "experiment", "report"},
    "pipeline": {
        "preparation",
        "testbed",
        "control",
        "graph",
        "report",
        "analysis",
        "timeline",
        "experiment",
        "extras",
        "files",
    },
    "api": {
        "pipeline",
        "control",
        "graph",
        "report",
        "analysis",
        "timeline",
        "experiment",
        "testbed",
        "extras",
    },
    "pytest_plugin": {"api"},
    "cli": {
        "api",
        "stm",
        "extras",
        "pipeline",
        "control",
        "graph",
        "export",
        "report",
        "analysis",
        "timeline",
        "experiment",
        "testbed",
        "files",
        "layout",
        "pandas_import",
        "port_ranges",
        "socket_lines",
        "strict_json",
    },
}

# Crates that other people's programs link: what else they may depend on at run time.
STRANGERS = {
    "trace": {"cc"},
    "trace-layer": {"tracing-core", "tracing-subscriber"},
    "clock": {"cc"},
}

# Python packages that other people's programs import: nothing but the standard library.
ALONE = ["crates/trace-py/loopscope_trace"]


def crate_breaches() -> Iterator[str]:
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    for package in metadata["packages"]:
        crate = Path(package["manifest_path"]).parent.name
        if crate not in CRATES:
            yield f"crates/{crate}: has no place in scripts/check_layers.py"
            continue
        for dependency in package["dependencies"]:
            if dependency["kind"] == "dev":
                continue
            if dependency.get("path"):
                used = Path(dependency["path"]).name
                if used not in CRATES[crate]:
                    yield f"crates/{crate}: may not depend on {used}"
            elif crate in STRANGERS and dependency["name"] not in STRANGERS[crate]:
                name = dependency["name"]
                yield f"crates/{crate}: is linked into strangers' programs, so not {name}"


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and package of every import of our own packages in a file."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = imported_from(path, node)
            names = [module]
            if module == "loopscope":
                names = [f"loopscope.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
            names = [word.value for word in node.args[:1] if isinstance(word, ast.Constant)]
        else:
            continue
        for name in names:
            if name.startswith("loopscope."):
                yield node.lineno, name.split(".")[1]


def imported_from(path: Path, node: ast.ImportFrom) -> str:
    """The full name of the module that an import takes from."""
    if not node.level:
        return node.module or ""
    own = path.relative_to(ROOT / "python").with_suffix("").parts
    return ".".join([*own[: -node.level], *filter(None, [node.module])])


def called(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def provider_breaches() -> Iterator[str]:
    """Places where control names a provider: it does not know which it has."""
    for path in sorted((ROOT / "python/loopscope/control").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and NAMES_A_PROVIDER.search(text):
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield f"{place}: control does not know which provider it has"


def package_breaches() -> Iterator[str]:
    top = ROOT / "python" / "loopscope"
    for path in sorted(top.rglob("*.py")):
        relative = path.relative_to(top)
        package = relative.parts[0].removesuffix(".py")
        if "_proto" in relative.parts or package == "__init__":
            continue
        if package not in PACKAGES:
            yield f"python/loopscope/{relative}: {package} has no place in scripts/check_layers.py"
            continue
        for line, used in imports(path):
            if used not in PACKAGES[package] | {package, "_native", "__version__"}:
                yield f"python/loopscope/{relative}:{line}: {package} may not import {used}"


def alone_breaches() -> Iterator[str]:
    for top in ALONE:
        paths = sorted((ROOT / top).rglob("*.py*"))
        if not paths:
            yield f"{top}: is not there"
        for path in paths:
            if path.suffix not in {".py", ".pyi"}:
                continue
            for node in ast.walk(ast.parse(path.read_text(), str(path))):
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                else:
                    continue
                for name in names:
                    if name.split(".")[0] not in sys.stdlib_module_names:
                        place = f"{path.relative_to(ROOT)}:{node.lineno}"
                        yield f"{place}: goes into strangers' programs, so no import of {name}"


def long_files() -> Iterator[str]:
    """Source files that are longer than LONGEST lines, tests aside."""
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    for path in map(Path, listed):
        is_test = {"tests", "tests.rs"} & set(path.parts)
        if path.suffix in {".py", ".rs", ".c", ".h"} and not is_test and (ROOT / path).exists():
            lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
            if lines > LONGEST:
                yield f"{path}: has {lines} lines, and {LONGEST} are the most: split it"


def main() -> int:
    breaches = [
        *crate_breaches(),
        *package_breaches(),
        *provider_breaches(),
        *alone_breaches(),
        *long_files(),
    ]
    for breach in breaches:
        print(breach, file=sys.stderr)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
