"""A run directory as tables over all its repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopscope import layout
from loopscope.strict_json import from_json
from loopscope.timeline.exits import Exit, read_exit
from loopscope.timeline.foreign import ForeignTrace, read_foreign
from loopscope.timeline.loss import KernelGap, ProcessLoss, kernel_gaps, read_loss
from loopscope.timeline.manifest import (
    check_measured,
    read_json,
    read_manifest,
    read_point,
    read_specification,
    run_id,
)
from loopscope.timeline.problems import problem_lines
from loopscope.timeline.relation import identifier, literals
from loopscope.timeline.table_error import RunError

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa
    from duckdb import DuckDBPyConnection
    from ibis.backends.duckdb import Backend

    from loopscope.experiment import Experiment
    from loopscope.timeline.relation import Relation


TABLES = (
    *("hosts", "clock", "entities", "foreign_clocks", "clock_events", "loop_residuals"),
    *("loss", "triggers"),
)
"""Tables in `tables/` besides the paths."""


class UnknownTableError(RunError):
    """No repeat of the run has a table of this name."""


def open_run(path: str | Path, point: str | None = None) -> Run:
    """Opens a run directory; `runs/<experiment>/latest` will do.

    `point` names the combination of swept parameters; it may be left out where there is only one.
    Raises `RunError` where `path` is not a run directory or the point is not in it.
    """
    root, points = _points(path)
    if point is None:
        if len(points) > 1:
            raise RunError(f"{path} has several points; name one with --point: {', '.join(points)}")
        point = next(iter(points))
    if point not in points:
        raise RunError(f"{path} has no point {point!r}; it has: {', '.join(points)}")
    manifest = read_manifest(root)
    swept = {each["name"]: each for each in manifest.get("experiment", {}).get("points", ())}
    if point in swept:
        # What is said of a point is said of it alone.
        how = read_point(root, manifest, point)
        manifest = {**manifest, "experiment": swept[point]["experiment"], **how}
    output = root if len(points) == 1 and point not in swept else root / point
    return Run(root, point, points[point], manifest, output)


def points_of(path: str | Path) -> list[str]:
    """The points of a run that have something to show, those of a sweep in its order.

    Raises `RunError` where `path` is not a run directory.
    """
    root, points = _points(path)
    swept = read_manifest(root).get("experiment", {}).get("points", ())
    names = [each["name"] for each in swept]
    return [name for name in names if name in points] or list(points)


def _points(path: str | Path) -> tuple[Path, dict[str, dict[int, Path]]]:
    """The run's directory, and its points' repeats by name."""
    root = Path(path).resolve()
    if not root.is_dir():
        raise RunError(f"{path}: no such run directory")
    points = {
        each.name: repeats
        for each in sorted(root.iterdir())
        if each.is_dir() and (repeats := _repeats(each))
    }
    if not points:
        check_measured(root)
        raise RunError(
            f"{path} is not a run directory: it has no <point>/<repeat>/hosts. "
            "Give a directory like runs/<experiment>/latest, or where it fits a recording's or an "
            "import's."
        )
    return root, points


class Run:
    """One point of a run: the tables of all its repeats, each with a column `repeat` (int32)."""

    _scope: tuple[str, ...] = ("repeat",)
    """The columns that tell the rows of different repeats apart."""

    def __init__(
        self,
        path: Path,
        point: str,
        repeats: Mapping[int, Path],
        manifest: Mapping[str, Any],
        output: Path,
    ) -> None:
        self.path = path
        self.point = point
        self.repeats = dict(repeats)
        """Repeat number to its directory, in order."""
        self.manifest = manifest
        self.output = output
        """Where what is made of all repeats goes: the run, or the point where there are several."""

    @property
    def id(self) -> str:
        """`<UTC>-<id>`, also of a copy."""
        return run_id(self.path, self.manifest)

    @property
    def experiment(self) -> str:
        name = self.manifest.get("experiment", {}).get("name")
        return str(name) if name else self.path.parent.name

    @cached_property
    def specification(self) -> Experiment | None:
        """The experiment by which the run is judged; None where no manifest describes it.

        Raises `RunError` where what the manifest says is no experiment.
        """
        return read_specification(self.path, self.manifest)

    @property
    def incomplete(self) -> str | None:
        """Status of a run that did not end well: `failed`, `interrupted`, `killed`, or `running`.

        None for a run that is whole.
        """
        status = self.manifest.get("status", "complete")
        return None if status == "complete" else str(status)

    @cached_property
    def tables(self) -> Mapping[str, Mapping[int, list[Path]]]:
        """`group.name` to the Parquet files of each repeat that has it."""
        found: dict[str, dict[int, list[Path]]] = {}
        for repeat, directory in self.repeats.items():
            for table, files in layout.event_tables(directory).items():
                found.setdefault(table, {})[repeat] = files
        return dict(sorted(found.items()))

    def table(self, name: str) -> ibis.Table:
        """The time line of one event class, `group.name`, each repeat in the order of time.

        Raises `UnknownTableError`.
        """
        return self._view(*self._event_files(name))

    def relation(self, name: str) -> Relation:
        """The rows of one event class, `group.name`, or of one of `TABLES`, as DuckDB's relation.

        Raises `UnknownTableError`, and `RunError` where one of `TABLES` is missing.
        """
        of_all = name in TABLES
        schema, view, files = self._own_files(name) if of_all else self._event_files(name)
        return self._connection.sql(self._every_repeat(f"{schema}.{view}", files))

    def relation_of(self, table: pa.Table) -> Relation:
        """An Arrow table's rows, to be joined to those of `relation`."""
        return self._connection.from_arrow(table)

    def files_in_order(self, name: str, repeat: int, spool: Path) -> list[Path]:
        """The files of a repeat's table, one after the other in the order of time.

        They are its own, or one that is written into the folder `spool`.
        """
        files = self.tables[name][repeat]
        if not self._overlap(name, repeat):
            return files
        file = spool / f"{name}.parquet"
        rows = f"SELECT * EXCLUDE (repeat) FROM ({self._select(name, repeat, files)})"
        self._connection.execute(
            f"COPY ({rows}) TO {literals(str(file))} (FORMAT parquet, COMPRESSION zstd)"
        )
        return [file]

    def _overlap(self, name: str, repeat: int) -> bool:
        """Whether the parts of a table are of a stream file each (`schema/run-directory.md`)."""
        return len(self.tables[name][repeat]) > 1 and name in self._own[repeat]

    @cached_property
    def _own(self) -> Mapping[int, set[str]]:
        """Names of tables of the programs' own events, by repeat."""
        found: dict[int, set[str]] = {}
        for repeat, summary in self._summaries.items():
            found[repeat] = {event.replace(":", ".", 1) for event in summary.get("events", ())}
        return found

    @cached_property
    def path_tables(self) -> Mapping[str, ibis.Table]:
        """`tables/path-<name>.parquet` of every repeat, by the path's name: one row per message."""
        found: dict[str, dict[int, list[Path]]] = {}
        for repeat, directory in self.repeats.items():
            for name, file in layout.path_tables(directory).items():
                found.setdefault(name, {})[repeat] = [file]
        return {name: self._view("paths", name, files) for name, files in sorted(found.items())}

    @property
    def hops(self) -> ibis.Table:
        """One row per message and hop that it has made.

        Columns: `path`, `hop` (from 0), `repeat`, `id`, `start` (global ns), `duration`, `err_ns`.
        Raises `RunError` where no path was measured.
        """
        if not self.path_tables:
            raise RunError(f"{self.path}: no path was measured, so there are no hops")
        return hops_of(self.path_tables, self._scope)

    def sql(self, query: str) -> ibis.Table:
        """A SELECT over all tables, by names such as `pipe.received`, `paths.loop`, `hops`."""
        self.register()
        return self._database.sql(query)

    def register(self) -> Backend:
        """The database, with a view of every table by its name."""
        for name, table in self.every_table().items():
            if name == "hops":
                self._database.create_view(name, table, overwrite=True)
        return self._database

    def every_table(self) -> dict[str, ibis.Table]:
        """Events, `tables/`, paths and hops by the names that `sql` knows, in their order."""
        found = {name: self.table(name) for name in self.tables}
        for name in TABLES:
            if all(layout.table(each, name).exists() for each in self.repeats.values()):
                found[name] = self._every(name)
        found |= {f"paths.{name}": table for name, table in self.path_tables.items()}
        if self.path_tables:
            found["hops"] = self.hops
        return dict(sorted(found.items()))

    @property
    def hosts(self) -> ibis.Table:
        """`tables/hosts.parquet` of every repeat."""
        return self._every("hosts")

    @property
    def clock(self) -> ibis.Table:
        """`tables/clock.parquet` of every repeat."""
        return self._every("clock")

    @property
    def entities(self) -> ibis.Table:
        """`tables/entities.parquet` of every repeat."""
        return self._every("entities")

    @property
    def foreign_clocks(self) -> ibis.Table:
        """`tables/foreign_clocks.parquet` of every repeat."""
        return self._every("foreign_clocks")

    @property
    def clock_events(self) -> ibis.Table:
        """`tables/clock_events.parquet` of every repeat."""
        return self._every("clock_events")

    @property
    def loop_residuals(self) -> ibis.Table:
        """`tables/loop_residuals.parquet` of every repeat."""
        return self._every("loop_residuals")

    @property
    def loss(self) -> ibis.Table:
        """`tables/loss.parquet` of every repeat: every process's account of its events."""
        return self._every("loss")

    @property
    def triggers(self) -> ibis.Table:
        """`tables/triggers.parquet` of every repeat: every trigger of a flight recorder."""
        return self._every("triggers")

    @cached_property
    def accounts(self) -> tuple[ProcessLoss, ...]:
        """Every process's account of its events, with its call sites, from `loss.json`."""
        return self._accounts("loss.json")

    @cached_property
    def kernel_accounts(self) -> tuple[ProcessLoss, ...]:
        """The kernels' accounts: a process for each class of events, a `pid` for each processor."""
        return self._accounts("kernel/loss.json")

    def _accounts(self, name: str) -> tuple[ProcessLoss, ...]:
        accounts: list[ProcessLoss] = []
        for repeat, directory in self.repeats.items():
            for file in sorted(directory.glob(f"hosts/*/{name}")):
                host = file.relative_to(directory).parts[1]
                try:
                    accounts += read_loss(file, repeat, host)
                except ValueError as error:
                    raise RunError(f"{file}: not an account of loss: {error}") from error
        return tuple(accounts)

    @cached_property
    def kernel_gaps(self) -> dict[tuple[int, str], dict[str, list[KernelGap]]]:
        """When events are missing, in the counter, by repeat and kernel, by class."""
        return {
            (repeat, file.parts[-3]): kernel_gaps(file)
            for repeat, directory in self.repeats.items()
            for file in sorted(directory.glob("hosts/*/kernel/counts.json"))
        }

    @cached_property
    def kernels(self) -> dict[int, dict[str, Any]]:
        """What became of recording kernels, by repeat and kernel, from `kernel.json`."""
        found = {}
        for repeat, directory in self.repeats.items():
            file = directory / layout.KERNELS
            if file.exists():
                found[repeat] = from_json(file.read_text(encoding="utf-8"))["kernels"]
        return found

    @cached_property
    def exits(self) -> tuple[Exit, ...]:
        """Ending of every component of which it is known, from `exit.json`."""
        return tuple(
            read_exit(file, repeat)
            for repeat, directory in self.repeats.items()
            for file in sorted(directory.glob("hosts/*/components/*/exit.json"))
        )

    @cached_property
    def without_exit(self) -> tuple[tuple[int, str, str], ...]:
        """Repeat, host and name of components of which nobody has written down how they ended."""
        return tuple(
            (repeat, folder.parent.parent.name, folder.name)
            for repeat, directory in self.repeats.items()
            for folder in sorted(directory.glob("hosts/*/components/*"))
            if not (folder / "exit.json").exists()
        )

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Problems that making the time line found: damage, disagreement, doubtful clocks."""
        return problem_lines(
            {repeat: each.get("problems", []) for repeat, each in self._summaries.items()}
        )

    @cached_property
    def foreign(self) -> tuple[ForeignTrace, ...]:
        """Traces of other tools from the run's hosts, and what became of them."""
        return tuple(
            read_foreign(each, repeat)
            for repeat, summary in self._summaries.items()
            for each in summary.get("foreign", ())
        )

    @cached_property
    def told(self) -> dict[int, dict[str, dict[str, Any]]]:
        """What was told of programs from the kernels' events, by repeat.

        By group and event (`sent`, `received`, `fired`) how many there are (`events`), and how many
        may be `missing` on each kernel of which it was recorded.
        """
        return {repeat: each.get("told", {}) for repeat, each in self._summaries.items()}

    @property
    def _summaries(self) -> dict[int, dict[str, Any]]:
        """Findings of making each repeat's tables; empty where there are none."""
        files = {repeat: layout.summary(each) for repeat, each in self.repeats.items()}
        return {repeat: read_json(file) if file.exists() else {} for repeat, file in files.items()}

    @cached_property
    def probes(self) -> tuple[Mapping[str, Any], ...]:
        """`clock.json` of each repeat that has it: what the clock probes put on their network."""
        files = (directory / "clock.json" for directory in self.repeats.values())
        return tuple(read_json(file) for file in files if file.exists())

    @cached_property
    def environment(self) -> Mapping[str, Mapping[str, Any]]:
        """Host to its `env.json`, of the first repeat that has it."""
        found: dict[str, Mapping[str, Any]] = {}
        for directory in self.repeats.values():
            for file in sorted(directory.glob("hosts/*/env.json")):
                found.setdefault(file.parent.name, read_json(file))
        return found

    @cached_property
    def _connection(self) -> DuckDBPyConnection:
        import duckdb

        return duckdb.connect()

    @cached_property
    def _database(self) -> Backend:
        """The same database for Ibis."""
        import ibis

        return ibis.duckdb.from_connection(self._connection)

    def _every(self, name: str) -> ibis.Table:
        return self._view(*self._own_files(name))

    def _event_files(self, name: str) -> tuple[str, str, Mapping[int, list[Path]]]:
        """Group and name of an event class, and its files of each repeat.

        Raises `UnknownTableError`.
        """
        if name not in self.tables:
            known = ", ".join(self.tables) or "none"
            raise UnknownTableError(f"{self.path}: no table {name}; it has: {known}")
        group, _, event = name.partition(".")
        return group, event, self.tables[name]

    def _own_files(self, name: str) -> tuple[str, str, Mapping[int, list[Path]]]:
        """Group (`main`), name and files of each repeat of one of `TABLES`. Raises `RunError`."""
        files = {repeat: [layout.table(each, name)] for repeat, each in self.repeats.items()}
        for file, *_ in files.values():
            if not file.exists():
                raise RunError(
                    f"{file} is missing: this repeat's time line was not built by this version; "
                    f"make it again: loopscope report {self.path}"
                )
        return "main", name, files

    def _view(self, schema: str, name: str, files: Mapping[int, list[Path]]) -> ibis.Table:
        """A view over the files, so that DuckDB reads only what a query asks for."""
        place = f"{identifier(schema)}.{identifier(name)}"
        rows = self._every_repeat(f"{schema}.{name}", files)
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}")
        self._connection.execute(f"CREATE OR REPLACE VIEW {place} AS {rows}")
        return self._database.table(name, database=schema)

    def _every_repeat(self, table: str, files: Mapping[int, list[Path]]) -> str:
        """SQL of the rows of a table, of all repeats."""
        parts = (f"({self._select(table, repeat, paths)})" for repeat, paths in files.items())
        return " UNION ALL BY NAME ".join(parts)

    def _scope_columns(self, repeat: int) -> str:
        """Columns of a repeat's rows before their own ones, as SQL."""
        return f"{repeat}::INTEGER AS repeat"

    def _select(self, table: str, repeat: int, paths: list[Path]) -> str:
        """The rows of a repeat's table, in order."""
        names = literals(*self._scope)
        select = (
            f"SELECT {self._scope_columns(repeat)}, COLUMNS(c -> c NOT IN ({names})) "
            # A point's folder, delay=10ms, is no partition of its tables.
            f"FROM read_parquet([{literals(*map(str, paths))}], hive_partitioning = false)"
        )
        if table in self.tables and self._overlap(table, repeat):
            # As in a table that was merged: what ties, by stream file and record.
            select += " ORDER BY ts, counter, id, file_index, file_row_number"
        return select


def hops_of(paths: Mapping[str, ibis.Table], scope: Sequence[str]) -> ibis.Table:
    """The hops of the messages of some paths, one at least.

    They have the columns `scope`, then those of `Run.hops`.
    """
    import ibis

    parts = []
    for name, path in paths.items():
        widths = [each for each in path.columns if each.startswith("hop_err_")]
        for number, width in enumerate(widths):
            ends = width.removeprefix("hop_err_")
            # Branching: between two events. Else: from the event of this number to the next.
            first, _, last = ends.partition("_")
            seen = path.filter(path[f"hop_{ends}"].notnull())
            duration = seen[f"hop_{ends}"]
            part = seen.select(
                *scope,
                id=seen[f"key_{last}"] if last else seen.id,
                path=ibis.literal(name),
                hop=ibis.literal(number).cast("int32"),
                start=seen[f"ts_{last}"] - duration if last else seen[f"ts_{first}"],
                duration=duration,
                err_ns=seen[width],
            )
            # A message that went into several ends has made its hops once.
            parts.append(part.distinct() if last else part)
    return ibis.union(*parts) if len(parts) > 1 else parts[0]


def _repeats(point: Path) -> dict[int, Path]:
    found = {
        int(each.name): each
        for each in point.iterdir()
        if each.name.isascii() and each.name.isdigit() and (each / "hosts").is_dir()
    }
    return dict(sorted(found.items()))
