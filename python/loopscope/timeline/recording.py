"""Whatever else has tables: recordings, imports, and all points of a sweep at once."""

from __future__ import annotations

from pathlib import Path

from loopscope.layout import has_events
from loopscope.timeline.relation import literals
from loopscope.timeline.run import Run, open_run, points_of
from loopscope.timeline.table_error import RunError


class Recording(Run):
    """Result of `record` or `import`: tables of events, in one repeat and without an experiment."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "", {1: path}, {}, path)

    @property
    def experiment(self) -> str:
        return self.path.name


class AllPoints(Run):
    """Every point of a sweep that has tables, with the columns `point` and `repeat`.

    A repeat here is the name of the point and the number of the repeat. Raises `RunError` where no
    point has any.
    """

    _scope = ("point", "repeat")

    def __init__(self, points: list[Run]) -> None:
        first = points[0]
        directories = {
            (run.point, repeat): directory
            for run in points
            for repeat, directory in run.repeats.items()
            if has_events(directory)
        }
        self.without = [run.point for run in points if not _has_tables(run)]
        """The points that have no tables, because they were not run to their end."""
        if not directories:
            raise RunError(f"{first.path}: no point of the sweep was run to its end")
        super().__init__(first.path, "", directories, first.manifest, first.path)  # type: ignore[arg-type]

    def _scope_columns(self, repeat: object) -> str:
        assert isinstance(repeat, tuple)
        point, number = repeat
        return f"{literals(point)} AS point, {super()._scope_columns(number)}"


def _has_tables(run: Run) -> bool:
    return any(map(has_events, run.repeats.values()))


def is_recorded(path: str | Path) -> bool:
    """Whether the folder has tables of events and no points: a recording's or an import's."""
    place = Path(path)
    tables = has_events(place) or (place / "import.json").is_file()
    return tables and not (place / "manifest.json").exists()


def open_tables(path: str | Path, point: str | None = None) -> Run:
    """Opens a run, a recording, an import, or, with no `point`, all points of a sweep.

    Raises `RunError` where `path` is none of these or the point is not in it.
    """
    if is_recorded(path):
        if point is not None:
            raise RunError(f"{path} is a recording or an import, which has no points")
        return Recording(Path(path).resolve())
    names = points_of(path) if point is None else []
    if len(names) > 1:
        return AllPoints([open_run(path, name) for name in names])
    return open_run(path, point)
