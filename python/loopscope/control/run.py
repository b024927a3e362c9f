"""A whole run: its directory, its repeats, its time line."""

from __future__ import annotations

from pathlib import Path

from loopscope.control.failure import RunFailed, RunInterrupted
from loopscope.control.interruption import Interruption
from loopscope.control.progress import Progress
from loopscope.control.repeat import execute
from loopscope.control.rundir import RunDirectory, settle
from loopscope.control.timeline import make_timeline
from loopscope.experiment import Experiment


def run_experiment(
    experiment: Experiment,
    source: bytes,
    root: Path,
    version: str,
    progress: Progress,
    stop: bool = False,
) -> RunDirectory:
    """Runs every repeat of an experiment, or of each point of its sweep, and makes its tables.

    ``source`` is the experiment file, ``root`` the directory of all runs. Raises RunFailed or
    RunInterrupted; what was measured until then is in the run directory, which is named in the
    exception's text. A point of a sweep that fails is kept as failed, and the others go on unless
    ``stop`` says otherwise: ``failed_points`` of the directory tells of it.
    """
    directory = RunDirectory(root, experiment, source, version)
    run = _Run(directory, progress)
    status = "failed"
    try:
        if experiment.points:
            run.points(experiment, stop)
        else:
            run.repeats(experiment)
        if not directory.failed_points:
            status = "complete"
        return directory
    except (RunInterrupted, KeyboardInterrupt):
        # What comes after the last repeat can be made again at any time.
        whole = run.executed == max(1, len(experiment.points)) * experiment.repeat
        status = "complete" if whole else "interrupted"
        what = "all that was to be measured" if whole else "what was measured"
        raise RunInterrupted(_kept(directory, what)) from None
    except RunFailed as error:
        raise RunFailed(f"{error}\n{_kept(directory)}") from None
    except OSError as error:
        what = f"cannot write {error.filename}: {error.strerror}"
        raise RunFailed(f"{what}\n{_kept(directory)}") from None
    finally:
        try:
            directory.describe(status=status)
        except OSError as error:
            # What the run came to is more than that its disk is full now.
            progress.note(f"cannot write {error.filename}: {error.strerror}")


class _Run:
    """A run in progress."""

    def __init__(self, directory: RunDirectory, progress: Progress) -> None:
        self._directory = directory
        self._progress = progress
        self._interruption = Interruption(progress)
        self.executed = 0
        """Repeats that came to their end, of all points."""

    def repeats(self, experiment: Experiment, point: str = "base", prefix: str = "") -> None:
        """``prefix`` tells the hosts of this point from others'."""
        phases: list[dict[str, float]] = []
        left: list[dict[str, str]] = []
        seeded = [experiment.of_repeat(number + 1) for number in range(experiment.repeat)]
        if experiment.seeds:
            self._directory.describe(point, seeds=[each.seeds for each in seeded])
        for number in range(1, experiment.repeat + 1):
            if experiment.repeat > 1:
                self._progress.stage(f"repeat {number} of {experiment.repeat}")
            path = self._directory.repeat(number, point)
            token = f"{self._directory.token}{prefix}"
            token += f"{number:x}" if experiment.repeat > 1 else ""
            of_repeat = seeded[number - 1]
            work = execute(of_repeat, token, path, self._progress, self._interruption)
            try:
                executed = self._interruption.run(work)
            finally:
                settle(path)
            phases.append(executed.phases)
            left.append(executed.left)
            neighbours = "permanent" if executed.knows_neighbours else "asked"
            self._directory.describe(point, phases=phases, left=left, neighbours=neighbours)
            self.executed += 1
            if self._interruption.asked:
                raise RunInterrupted
            self._progress.stage("making the time line")
            make_timeline(experiment, path, self._progress)

    def points(self, experiment: Experiment, stop: bool) -> None:
        """Every point of the sweep, one after the other, whatever becomes of the others."""
        count = len(experiment.points)
        for number, point in enumerate(experiment.points, start=1):
            self._progress.point(f"point {number} of {count}: {point.name}")
            self._directory.describe(point.name, status="running")
            before, said = self.executed, {"status": "interrupted"}
            try:
                # Letters, so that it cannot be taken for a repeat's number.
                prefix = f"p{number}r" if point.experiment.repeat > 1 else f"p{number}"
                self.repeats(point.experiment, point.name, prefix)
                said = {"status": "complete"}
            except RunFailed as failure:
                said = {"status": "failed", "error": str(failure)}
                self._progress.note(f"point {point.name} failed: {failure}")
                self._directory.failed_points[point.name] = str(failure)
                if self._interruption.asked:
                    raise RunInterrupted from None
                if stop:
                    break
            except (RunInterrupted, KeyboardInterrupt):
                if self.executed - before == point.experiment.repeat:
                    said = {"status": "complete"}
                raise
            finally:
                self._directory.describe(point.name, **said)
        self._progress.point("")


def _kept(directory: RunDirectory, what: str = "what was measured") -> str:
    return f"{what} is in {directory.path}; to see it: loopscope report {directory.path}"
