"""A whole run: its directory, its repeats, its time line."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from loopscope.control.failure import RunFailed, RunInterrupted
from loopscope.control.progress import Progress
from loopscope.control.repeat import execute
from loopscope.control.rundir import RunDirectory
from loopscope.control.timeline import make_timeline
from loopscope.experiment import Experiment

T = TypeVar("T")


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
    status = "failed"
    try:
        if experiment.points:
            _run_points(experiment, directory, progress, stop)
        else:
            directory.describe(phases=_run_repeats(experiment, directory, progress))
        if not directory.failed_points:
            status = "complete"
        return directory
    except (RunInterrupted, KeyboardInterrupt):
        status = "interrupted"
        raise RunInterrupted(_kept(directory)) from None
    except RunFailed as error:
        raise RunFailed(f"{error}\n{_kept(directory)}") from None
    finally:
        directory.describe(status=status)


def _run_repeats(
    experiment: Experiment,
    directory: RunDirectory,
    progress: Progress,
    point: str = "base",
    prefix: str = "",
) -> list[dict[str, float]]:
    """The phases' seconds of each repeat. ``prefix`` tells the hosts of this point from others'."""
    phases = []
    for number in range(1, experiment.repeat + 1):
        if experiment.repeat > 1:
            progress.stage(f"repeat {number} of {experiment.repeat}")
        path = directory.repeat(number, point)
        token = f"{directory.token}{prefix}"
        token += f"{number:x}" if experiment.repeat > 1 else ""
        phases.append(_interruptible(execute(experiment, token, path, progress), progress))
        progress.stage("making the time line")
        make_timeline(experiment, path, progress)
    return phases


def _run_points(
    experiment: Experiment, directory: RunDirectory, progress: Progress, stop: bool
) -> None:
    """Every point of the sweep, one after the other, whatever becomes of the others."""
    count = len(experiment.points)
    for number, point in enumerate(experiment.points, start=1):
        progress.point(f"point {number} of {count}: {point.name}")
        directory.describe_point(point.name, status="running")
        status, error = "interrupted", None
        try:
            # Letters, so that it cannot be taken for a repeat's number.
            prefix = f"p{number}r" if point.experiment.repeat > 1 else f"p{number}"
            phases = _run_repeats(point.experiment, directory, progress, point.name, prefix)
            directory.describe_point(point.name, phases=phases)
            status = "complete"
        except RunFailed as failure:
            status, error = "failed", str(failure)
            progress.note(f"point {point.name} failed: {failure}")
            directory.describe_point(point.name, error=error)
        finally:
            directory.describe_point(point.name, status=status)
        if error is not None:
            directory.failed_points[point.name] = error
            if stop:
                break
    progress.point("")


def _kept(directory: RunDirectory) -> str:
    return f"what was measured is in {directory.path}; to see it: loopscope report {directory.path}"


def _interruptible(work: Coroutine[Any, Any, T], progress: Progress) -> T:
    """Runs ``work`` so that SIGINT, SIGTERM and SIGHUP end it in good order."""

    async def main() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)
        count = 0

        def interrupt() -> None:
            nonlocal count
            count += 1
            if count == 1:
                progress.note("interrupted: ending the programs and removing what was made")
                task.cancel()
            elif count == 2:
                progress.note("still cleaning up; once more leaves the rest to: loopscope reset")
            else:
                # The agents see their input close and clean up by themselves.
                os._exit(130)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, interrupt)
        try:
            return await task
        except asyncio.CancelledError:
            raise RunInterrupted from None

    return asyncio.run(main())
