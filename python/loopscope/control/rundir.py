"""Run directories: made, described, linked as the latest. The layout is schema/run-directory.md."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from loopscope.control.failure import RunFailed, RunInterrupted
from loopscope.control.interruption import Interruption
from loopscope.control.progress import Progress
from loopscope.experiment import Experiment, Point
from loopscope.files import write_whole
from loopscope.provider import LackOfHosts
from loopscope.provider.left_out import LeftOut, escaped, why_of_kind, why_of_path
from loopscope.strict_json import from_json, to_json

MANIFEST_VERSION = 1
POINT_VERSION = 1
POINT = "point.json"
BASE = "base"
"""The point of a run without a sweep."""
COMPLETE = "complete"
FAILED = "failed"


class RunDirectory:
    """One run's directory while it is made."""

    def __init__(self, root: Path, experiment: Experiment, source: bytes, version: str) -> None:
        """Makes ``root/<experiment>/<UTC>-<id>`` and what describes it; ``source`` is the file."""
        now = datetime.now(timezone.utc)
        token = secrets.token_hex(3)
        self.id = f"{now:%Y%m%dT%H%M%SZ}-{token}"
        self.token = token
        self.failed_points: dict[str, str] = {}
        """Points of the sweep that failed, each with the reason."""
        self.measured = 0
        """Repeats that came to their end, of all points."""
        self.path = root / experiment.name / self.id
        self.path.mkdir(parents=True)
        # Tells who reads it that the run goes on, for as long as this process lives.
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        (self.path / "experiment.yaml").write_bytes(source)
        self._manifest: dict[str, Any] = {
            "version": MANIFEST_VERSION,
            "run": self.id,
            "created": now.isoformat(timespec="seconds"),
            "loopscope": version,
            "status": "running",
            "experiment": experiment.to_manifest(),
        }
        self._experiment = experiment
        self._lacking: list[dict[str, Any]] | None = None
        self._point: tuple[str, dict[str, Any]] = ("", {})
        self.describe()
        self._link_latest()

    def repeat(self, number: int, point: str = BASE) -> Path:
        """The directory of a point's repeat (from 1), made."""
        path = self.path / point / str(number)
        path.mkdir(parents=True)
        return path

    def describe(self, point: str = BASE, **entries: Any) -> None:
        """Adds to the description of the run, or of a point of its sweep.

        A point has a file of its own: there may be many. Points are described one after the other.
        """
        if point == BASE:
            self._manifest.update(entries)
            write_whole(self.path / "manifest.json", _document(self._manifest))
            return
        if self._point[0] != point:
            self._point = point, {"version": POINT_VERSION}
        self._point[1].update(entries)
        (self.path / point).mkdir(exist_ok=True)
        write_whole(self.path / point / POINT, _document(self._point[1]))

    def lacks(self, progress: Progress, lacking: Sequence[LackOfHosts]) -> None:
        """Writes into the manifest what the hosts cannot do, and shows it once in a run."""
        if self._lacking is not None:
            return
        self._lacking = [{**asdict(each.lack), "hosts": list(each.hosts)} for each in lacking]
        self.describe(lacking=self._lacking)
        for each in lacking:
            who = "hosts lack"
            if not each.everywhere:
                who = f"{', '.join(each.hosts)} lack{'s' if len(each.hosts) == 1 else ''}"
            progress.note(f"{who} {each.lack.what} ({each.lack.why}): {each.lack.cost}")

    @contextmanager
    def being_made(self, progress: Progress) -> Iterator[None]:
        """Writes down how the run ended, however that is.

        What it raises says where what was measured is: RunFailed, also for files that cannot be
        written, and RunInterrupted.
        """
        status = FAILED
        why: dict[str, str] = {}
        try:
            yield
            if not self.failed_points:
                status = COMPLETE
        except (RunInterrupted, KeyboardInterrupt):
            # What comes after the last repeat can be made again at any time.
            every = max(1, len(self._experiment.points)) * self._experiment.repeat
            whole = self.measured == every
            status = COMPLETE if whole else "interrupted"
            what = "all that was to be measured" if whole else "what was measured"
            raise RunInterrupted(self.kept(what)) from None
        except RunFailed as error:
            why = {"error": str(error)}
            raise error.with_lines(self.kept()) from None
        except OSError as error:
            what = f"cannot write {error.filename}: {error.strerror}"
            why = {"error": what}
            raise RunFailed(f"{what}\n{self.kept()}") from None
        finally:
            try:
                self.describe(status=status, **why)
            except OSError as error:
                # What the run came to is more than that its disk is full now.
                progress.note(f"cannot write {error.filename}: {error.strerror}")

    @contextmanager
    def point_being_made(
        self, point: Point, progress: Progress, interruption: Interruption
    ) -> Iterator[None]:
        """Writes down how a point of the sweep ended. One that fails does not end the sweep."""
        self.describe(point.name, status="running")
        before, said = self.measured, {"status": "interrupted"}
        try:
            yield
            said = {"status": COMPLETE}
        except RunFailed as failure:
            said = {"status": FAILED, "error": str(failure)}
            progress.note(f"point {point.name} failed: {failure.to_show}")
            self.failed_points[point.name] = str(failure)
            if interruption.asked:
                raise RunInterrupted from None
        except (RunInterrupted, KeyboardInterrupt):
            if self.measured - before == point.experiment.repeat:
                said = {"status": COMPLETE}
            raise
        finally:
            self.describe(point.name, **said)

    def kept(self, what: str = "what was measured") -> str:
        """Where that is, for people."""
        if not any(self.path.glob("*/[0-9]*/hosts")):
            return f"nothing was measured; what is known of the run is in {self.path}"
        return f"{what} is in {self.path}; to see it: loopscope report {self.path}"

    def _link_latest(self) -> None:
        link = self.path.parent / "latest"
        draft = self.path.parent / f".latest-{self.token}"
        draft.symlink_to(self.path.name)
        os.replace(draft, link)


def settle(repeat: Path) -> dict[str, LeftOut]:
    """Makes what the hosts left in a repeat's directory a part of the run.

    Users who may read the run may read it. In the programs' own folders only files stay, and of
    these only those that a host elsewhere could send; the rest is removed and returned by host.
    """
    _open_to_readers(repeat)
    found: dict[str, LeftOut] = {}
    for files in sorted(repeat.glob("hosts/*/components/*/files")):
        host = files.relative_to(repeat).parts[1]
        _keep_files_only(files, found.setdefault(host, LeftOut()))
    return {host: left_out for host, left_out in found.items() if left_out.count}


def _open_to_readers(repeat: Path) -> None:
    """Agents keep private what they write.

    Nobody else can write there, but in the programs' own folders, which are left alone.
    """
    readers = repeat.stat().st_mode & 0o055
    for place, folders, names in os.walk(repeat / "hosts"):
        folder = Path(place)
        folder.chmod(folder.stat().st_mode | readers)
        if folder.match("components/*/files"):
            folders.clear()
            continue
        for file in (folder / name for name in names):
            file.chmod(file.stat().st_mode | readers & 0o044)


def _keep_files_only(files: Path, left_out: LeftOut) -> None:
    """Removes sockets, pipes, links, which may lead anywhere, and paths that no host may send."""
    # The host's name and the path in its folder.
    own = files.parts[-4:]
    # By opened folders: a process of the program's that lives still cannot lead elsewhere.
    for place, folders, names, folder in os.fwalk(files):
        above = (*own, *Path(place).relative_to(files).parts)
        for name in sorted((*folders, *names)):
            with suppress(FileNotFoundError):
                kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                parts = (*above, name)
                why = why_of_path(parts) or why_of_kind(kind)
                if why is None:
                    continue
                if stat.S_ISDIR(kind):
                    _remove_folder(name, folder)
                    folders.remove(name)
                else:
                    os.unlink(name, dir_fd=folder)
                left_out.add("/".join(parts[1:]), why, stat.S_ISDIR(kind))


def _remove_folder(name: str, above: int) -> None:
    """Removes a folder with all that is in it, however deep that is. Raises OSError."""
    # Python's own way ends at a depth of some hundred folders.
    done = subprocess.run(
        ["rm", "-rf", "--", f"./{name}"],
        cwd=f"/proc/self/fd/{above}",
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise OSError(errno.EIO, f"cannot be removed: {escaped(said[-200:])}", escaped(name))


def mark_killed(run: Path) -> None:
    """Writes down that a run's controller was killed, in the run and in the point that it was at.

    Raises OSError.
    """
    for file in (run / "manifest.json", *run.glob(f"*/{POINT}")):
        said = from_json(file.read_text(encoding="utf-8"))
        if said.get("status") == "running":
            rewrite(file, {**said, "status": "killed"})


def rewrite(file: Path, description: dict[str, Any]) -> None:
    """Writes the description of a run that has ended, or of a point of it. Raises OSError."""
    write_whole(file, _document(description))


def _document(value: dict[str, Any]) -> str:
    return to_json(value, indent=2) + "\n"
