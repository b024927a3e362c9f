"""``loopscope logs``: what the components of a run print, all hosts together."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from loopscope.cli import exits
from loopscope.cli.status import existing
from loopscope.strict_json import to_json

# Between looks at what is new.
LOOK_S = 0.2

HELP = """Print what the components of a run print, all hosts together, with global times.

loopscope logs -f

Each line begins with the global time, in seconds, at which its host read it: a ? is a time that is
not known. Lines come as they reached this machine. The whole output of a component, byte for byte,
is in the run's hosts/HOST/components/NAME/.
"""


def logs(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run directory, for example runs/pipeline/latest. [default: the newest run]",
            show_default=False,
        ),
    ] = None,
    component: Annotated[
        list[str] | None,
        typer.Option(
            "--component", "-c", metavar="NAME", help="Only of this one; can be repeated."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends.")
    ] = False,
    runs: Annotated[
        Path, typer.Option("--runs", metavar="DIR", help="Where run directories are.")
    ] = Path("runs"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each line as a JSON object.")
    ] = False,
) -> None:
    from loopscope.control.standing import runs_below
    from loopscope.timeline import RunError, read_manifest

    if run is None:
        below = runs_below(runs)
        if not below:
            exits.end(exits.USAGE, f"there is no run below {runs}; --runs names another folder")
        run = below[-1]
    directory = existing(run)
    wanted = frozenset(component or ())
    try:
        if wanted:
            _check_names(directory, wanted)
        printed = _Printed(directory, wanted, as_json)
        while True:
            # Asked first: what was written before the end is printed.
            goes_on = follow and read_manifest(directory).get("status") == "running"
            printed.catch_up()
            if not goes_on:
                break
            time.sleep(LOOK_S)
    except RunError as error:
        exits.end(exits.USAGE, str(error))
    except OSError as error:
        exits.end_of_file_error(error)
    if not printed.files and not follow:
        exits.end(exits.USAGE, f"{directory} has no {printed.name}: no repeat has begun in it")


def _check_names(run: Path, wanted: frozenset[str]) -> None:
    from loopscope.timeline import read_manifest

    every = read_manifest(run).get("experiment", {}).get("components", {})
    names = set(every) if isinstance(every, dict) else {each["name"] for each in every}
    if missing := sorted(wanted - names):
        known = ", ".join(sorted(names))
        exits.end(exits.USAGE, f"there is no component {missing[0]}; there are {known}")


class _Printed:
    """What is printed of a run's lines so far."""

    def __init__(self, run: Path, wanted: frozenset[str], as_json: bool) -> None:
        from loopscope.control.journal import OUTPUT

        self.name = OUTPUT
        self.files: dict[Path, int] = {}
        """The files of its repeats, and how far they are printed."""
        self._run = run
        self._wanted = wanted
        self._as_json = as_json

    def catch_up(self) -> None:
        """Prints what is new."""
        from loopscope.control.journal import entries
        from loopscope.control.standing import repeats_of

        for repeat in repeats_of(self._run):
            file = repeat / self.name
            if file.exists():
                for entry, offset in entries(file, self.files.setdefault(file, 0)):
                    self.files[file] = offset
                    if not self._wanted or entry["component"] in self._wanted:
                        self._print(entry)
        sys.stdout.flush()

    def _print(self, entry: dict[str, Any]) -> None:
        from loopscope.control.instant import global_seconds

        if self._as_json:
            typer.echo(to_json(entry))
            return
        mark = "!" if entry["stderr"] else "|"
        at = global_seconds(entry["global_ns"])
        typer.echo(f"{at}  {entry['component']}@{entry['host']} {mark} {entry['text']}")
