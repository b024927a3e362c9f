"""Places of tables in the directory of a repeat, a recording or an import.

`schema/run-directory.md` describes them.
"""

from __future__ import annotations

from pathlib import Path

EVENTS = "timeline"
TABLES = "tables"
SUMMARY = "summary.json"
"""Among the tables, what their making found; written last."""
KERNELS = "kernel.json"
"""In a repeat: what became of recording the kernels' events."""
_PATH = "path-"


def has_events(directory: Path) -> bool:
    """Whether there is a time line."""
    return (directory / EVENTS).is_dir()


def event_files(directory: Path, group: str, name: str) -> list[Path]:
    """The Parquet files of one event class, in their order."""
    # part-10 is after part-9.
    return sorted(
        (directory / EVENTS / group / name).glob("*.parquet"),
        key=lambda file: (len(file.name), file.name),
    )


def event_tables(directory: Path) -> dict[str, list[Path]]:
    """`group.name` to the Parquet files of each event class, in their order."""
    folders = sorted({file.parent for file in directory.glob(f"{EVENTS}/*/*/*.parquet")})
    return {
        f"{each.parent.name}.{each.name}": event_files(directory, each.parent.name, each.name)
        for each in folders
    }


def table(directory: Path, name: str) -> Path:
    """A table that is not of one event class, such as `clock`."""
    return directory / TABLES / f"{name}.parquet"


def path_table(directory: Path, path: str) -> Path:
    """The table of a path."""
    return table(directory, f"{_PATH}{path}")


def path_tables(directory: Path) -> dict[str, Path]:
    """The tables of paths that there are, by the path's name."""
    files = sorted((directory / TABLES).glob(f"{_PATH}*.parquet"))
    return {file.stem.removeprefix(_PATH): file for file in files}


def summary(directory: Path) -> Path:
    """File with the findings of making the tables."""
    return directory / TABLES / SUMMARY
