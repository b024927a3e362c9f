"""The measuring: every repeat of an experiment, or of a point of its sweep."""

from __future__ import annotations

from functools import partial
from typing import Any

from loopscope.control.acceleration import AcceleratedSockets
from loopscope.control.acceleration import found as accelerated_sockets
from loopscope.control.collection import Collection, described
from loopscope.control.execution import execute
from loopscope.control.failure import RunInterrupted
from loopscope.control.garbage import rare_collections
from loopscope.control.interruption import Interruption
from loopscope.control.kept_files import KeptFile, fetched, sent
from loopscope.control.progress import Progress
from loopscope.control.rundir import BASE, RunDirectory, settle
from loopscope.control.spare_time import SpareTime
from loopscope.experiment import Experiment
from loopscope.provider import Provider


def measure(
    experiment: Experiment,
    provider: Provider,
    directory: RunDirectory,
    point: str,
    number: int,
    progress: Progress,
    interruption: Interruption,
    spare: SpareTime | None = None,
) -> None:
    """Runs the experiment as often as it asks for, each time into a folder of the point.

    Each repeat has hosts of its own from the provider.

    The point is the sweep's ``number``-th. ``spare`` goes on while hosts are made, and when what
    was measured is collected.

    Raises RunFailed, RunInterrupted, and OSError, which names the file.
    """
    phases: list[dict[str, float]] = []
    left: list[dict[str, str]] = []
    failed: list[dict[str, dict[str, str]]] = []
    starts: list[dict[str, Any]] = []
    files: list[dict[str, dict[str, KeptFile]]] = []
    accelerated: list[dict[str, AcceleratedSockets]] = []
    collections: list[Collection] = []
    directory.describe(point, sent=sent(experiment))
    seeded = [experiment.of_repeat(repeat + 1) for repeat in range(experiment.repeat)]
    if experiment.seeds:
        directory.describe(point, seeds=[each.seeds for each in seeded])
    # Letters, so that a point cannot be taken for a repeat's number.
    prefix = "" if point == BASE else f"p{number}"
    for repeat in range(1, experiment.repeat + 1):
        token = f"{directory.token}{prefix}"
        if experiment.repeat > 1:
            progress.stage(f"repeat {repeat} of {experiment.repeat}")
            token += f"{'r' if prefix else ''}{repeat:x}"
        path = directory.repeat(repeat, point)
        collection = Collection()
        collections.append(collection)
        work = partial(
            execute,
            seeded[repeat - 1],
            provider,
            token,
            path,
            progress,
            interruption,
            partial(directory.lacks, progress),
            collection,
            spare or SpareTime(),
        )
        try:
            with rare_collections():
                executed = interruption.run(work)
        finally:
            collection.leave_out(settle(path))
            collection.note_left_out(progress)
            directory.describe(point, **described(collections))
        found, problems = fetched(experiment, path)
        files.append(found)
        sockets, not_accelerated = accelerated_sockets(experiment, path)
        accelerated.append(sockets)
        for text in (*problems, *not_accelerated):
            progress.note(text)
        phases.append(executed.phases)
        left.append(executed.left)
        failed.append(executed.failed)
        starts.append(executed.starts)
        neighbours = "permanent" if executed.knows_neighbours else "asked"
        directory.describe(
            point,
            phases=phases,
            left=left,
            failed=failed,
            starts=starts,
            fetched=files,
            accelerated=accelerated,
            neighbours=neighbours,
        )
        if executed.failure is not None:
            raise executed.failure
        directory.measured += 1
        if interruption.asked:
            raise RunInterrupted
