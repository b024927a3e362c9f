"""What the paths' figures came to against their target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from targets import Row, verdict

SECONDS = 20


def _part(what: str) -> Callable[[dict[str, Any]], Iterator[Row]]:
    def rows(found: dict[str, Any]) -> Iterator[Row]:
        ratio = found.get("ratio")
        yield Row(
            f"{found['messages'] / 1e6:g} M messages, {what}, cold files to table",
            f"{SECONDS} s",
            "{median:.1f} s ({min:.1f} to {max:.1f})".format(**found["seconds"]),
            "{median:.2f} times as fast as one query".format(**ratio) if ratio else "",
            verdict(found["seconds"]["median"] <= SECONDS),
        )
        cpu, peak = found["cpu_seconds"]["median"], found["peak_mb"]["median"]
        yield Row("  of it", "", f"{cpu:.1f} s of CPU, {peak:.0f} MB at most", "", "")

    return rows


PARTS = {"path-lists": _part("five hops"), "path-graphs": _part("a graph with a sampler")}


def notes(found: dict[str, Any]) -> Iterator[str]:
    """None: the table says all."""
    yield from ()
