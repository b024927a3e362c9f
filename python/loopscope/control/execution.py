"""One execution of an experiment: a testbed that is made, used and removed, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loopscope.control import probe_plan, router
from loopscope.control.collection import Collection
from loopscope.control.disk_space import noted_when_full
from loopscope.control.failure import RunFailed
from loopscope.control.interruption import Interruption
from loopscope.control.journal import Journal
from loopscope.control.progress import Progress
from loopscope.control.repeat import RESERVE, Repeat
from loopscope.control.spare_time import SpareTime
from loopscope.experiment import Experiment, files_to_send
from loopscope.files import reserve
from loopscope.provider import (
    CLOCK,
    DATA,
    AgentError,
    AgentLost,
    LackOfHosts,
    Provider,
    Request,
    TestbedError,
)
from loopscope.provider.patience import to_the_end

RESERVE_BYTES = 1 << 20


def _request(experiment: Experiment, run_id: str, directory: Path) -> Request:
    """The testbed that the experiment needs, whose hosts write into ``directory``."""
    network = experiment.network
    emulation = network.emulation
    return Request(
        run_id=run_id,
        hosts=experiment.hosts,
        directory=directory,
        folder=experiment.folder,
        files=files_to_send(experiment),
        networks={DATA: network.data, CLOCK: network.clock},
        data_mtu=network.mtu,
        hidden_clocks=experiment.clocks.seed,
        router=router.is_needed(experiment),
        clock_pairs=probe_plan.pairs(experiment.hosts, mesh=experiment.clock.mesh),
        router_host=emulation.router if emulation is not None else None,
        routed=router.links_between(experiment),
        probes_on_data=experiment.clock.network == DATA,
        counters=experiment.clock.counters,
    )


@dataclass(frozen=True)
class Executed:
    """Report of a repeat.

    Each phase's seconds, the phase in which a component ended that was to go on, how components
    failed that the run went on without, the common starts, whether the hosts had each other's
    Ethernet addresses from the start, and the failure of a repeat that came to its end and of which
    not all could be collected.
    """

    phases: dict[str, float]
    left: dict[str, str]
    failed: dict[str, dict[str, str]]
    starts: dict[str, dict[str, Any]]
    knows_neighbours: bool
    failure: RunFailed | None = None


async def execute(
    experiment: Experiment,
    provider: Provider,
    run_id: str,
    directory: Path,
    progress: Progress,
    interruption: Interruption,
    lacks: Callable[[Sequence[LackOfHosts]], None],
    collection: Collection,
    spare: SpareTime,
) -> Executed:
    """Runs the experiment once on the provider's hosts, its files in ``directory``.

    ``lacks`` is called with what the hosts cannot do, once they are made. ``collection`` takes what
    is not kept and not collected, also where this raises. ``spare`` goes on until components start,
    and again when they have ended.

    Whatever happens, components are ended, their files are closed, and the testbed is removed.
    Raises RunFailed with the first cause.
    """
    with Journal(progress, directory) as journal:
        executed = await _execute(
            experiment, provider, run_id, directory, journal, interruption, lacks, collection, spare
        )
        if not collection.problems:
            return executed
        failure = RunFailed("\n".join(collection.problems))
        failure.show(journal)
        return replace(executed, failure=failure)


async def _execute(
    experiment: Experiment,
    provider: Provider,
    run_id: str,
    directory: Path,
    progress: Progress,
    interruption: Interruption,
    lacks: Callable[[Sequence[LackOfHosts]], None],
    collection: Collection,
    spare: SpareTime,
) -> Executed:
    progress.stage(f"making {len(experiment.hosts)} hosts")
    bed = provider(_request(experiment, run_id, directory))
    repeat: Repeat | None = None
    ended = False
    reserve(directory / RESERVE, RESERVE_BYTES)
    spare.begin()
    try:
        async with bed:
            if (lacking := bed.lacking) is not None:
                lacks(lacking)
            try:
                router.check_mover(experiment, bed.router)
                repeat = Repeat(experiment, bed, run_id, progress, spare)
            except (RunFailed, TestbedError):
                # What the agents have written until now is not left on machines.
                await to_the_end(bed.fetch())
                raise
            try:
                with noted_when_full(directory, progress):
                    phases = await repeat.run()
                ended = True
                return Executed(
                    phases, repeat.left, repeat.failed, repeat.starts, bed.knows_neighbours
                )
            except AgentError as error:
                failure = RunFailed(str(error))
                if isinstance(error, AgentLost):
                    failure = await repeat.failure_of_loss(error)
                failure.show(progress)
                raise failure from None
            except RunFailed as failure:
                failure.show(progress)
                raise
            finally:
                # A second interruption ends the collecting as well.
                more = 0 if interruption.asked else 1
                try:
                    await to_the_end(repeat.collect(directory), more)
                finally:
                    collection.unfinished.update(repeat.unfinished)
                    if interruption.asked:
                        progress.note(repeat.collected)
    except RunFailed as failure:
        raise failure if repeat is None else repeat.completed(failure) from None
    except (AgentError, TestbedError) as error:
        raise RunFailed(str(error)) from None
    finally:
        (directory / RESERVE).unlink(missing_ok=True)
        collection.leave_out(bed.left_out)
        collection.uncollected.update(bed.uncollected)
        # Where the repeat came to its end, they are its failure.
        for problem in (*bed.problems, *(() if ended else bed.uncollected.values())):
            progress.note(problem)
