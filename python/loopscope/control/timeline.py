"""A repeat's time line: in one go, or as pieces of work that several processes share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopscope import _native, layout
from loopscope.control.causality import Bounds, messages_of
from loopscope.control.failure import RunFailed
from loopscope.control.foreign import sources
from loopscope.control.program_messages import write_messages
from loopscope.control.program_wakeups import write_wakeups
from loopscope.control.progress import Progress
from loopscope.control.staged_timeline import drafted
from loopscope.experiment import Experiment, from_manifest
from loopscope.strict_json import from_json, to_json

Each = Callable[[Callable[[Any], None], Sequence[Any]], None]
"""Does a function for each item, in whatever process; returns when all are done."""


def make_timeline(experiment: Experiment, repeat: Path, progress: Progress) -> None:
    """Solves the clocks of a repeat and makes its ``timeline/`` and ``tables/``.

    They are made again where its messages are to bound the clocks. What other tools recorded is on
    it too.

    Raises RunFailed where the streams cannot be read.
    """
    given = (repeat, *_clock(experiment))
    with _readable_errors(), drafted(repeat) as draft:
        messages: Bounds = {}
        if experiment.clock.messages:
            _native.build_run(*given, {}, [], draft, progress.amount)
            messages = messages_of(experiment, draft)
        foreign = sources(experiment, repeat)
        summary = _native.build_run(*given, messages, foreign, draft, progress.amount)
        _end(experiment, repeat, draft, draft, summary)


def make_timelines(
    each: Each, repeats: Sequence[tuple[Experiment, Path]], progress: Progress
) -> None:
    """Makes the time lines of several repeats, each of their stream files a piece of work.

    All pieces must find the repeats under the same paths. One that is done twice, or that a killed
    process leaves half done, harms nothing.
    """
    with _readable_errors(), ExitStack() as drafts:
        jobs = []
        for experiment, repeat in repeats:
            draft = drafts.enter_context(drafted(repeat))
            manifest = experiment.to_manifest()
            job = _Job(manifest, str(repeat), str(draft))
            if experiment.clock.messages:
                first = draft / "without-messages"
                first.mkdir()
                job = _Job(manifest, str(repeat), str(draft), str(first))
            jobs.append(job)
        if firsts := [_Job(job.manifest, job.repeat, job.before) for job in jobs if job.before]:
            _stages(each, firsts, progress)
        _stages(each, jobs, progress)
        progress.stage("what was found in the streams")
        each(_conclude, jobs)


@dataclass(frozen=True)
class _Job:
    """A repeat whose time line is to be made, as values of JSON, which go to another process."""

    manifest: Mapping[str, Any]
    repeat: str
    draft: str
    before: str | None = None
    """Where its time line is as it would be if no messages bounded the clocks."""


def _stages(each: Each, jobs: Sequence[_Job], progress: Progress) -> None:
    progress.stage(f"clocks, repeats: {len(jobs)}")
    each(_solve, jobs)
    files = [
        (job, index)
        for job in jobs
        for index in range(len(_native.stream_files(job.repeat, job.draft)))
    ]
    progress.stage(f"stream files: {len(files)}")
    each(_decode, files)


def _solve(job: _Job) -> None:
    experiment = from_manifest(job.manifest)
    messages = messages_of(experiment, Path(job.before)) if job.before else {}
    with _readable_errors(), _aside(job.draft) as out:
        _native.solve_run(job.repeat, *_clock(experiment), messages, out)


def _decode(piece: tuple[_Job, int]) -> None:
    job, index = piece
    with _readable_errors(), _aside(job.draft) as out:
        _native.decode_stream(job.repeat, job.draft, index, out)


def _conclude(job: _Job) -> None:
    experiment, repeat = from_manifest(job.manifest), Path(job.repeat)
    foreign = sources(experiment, repeat)
    with _readable_errors(), _aside(job.draft) as out:
        summary = _native.conclude_run(job.repeat, job.draft, foreign, out)
        _end(experiment, repeat, Path(job.draft), out, summary)


def _end(experiment: Experiment, repeat: Path, made: Path, out: Path, summary: str) -> None:
    """Writes the last tables of a time line, and its summary.

    ``made`` is where its other tables are, ``out`` where these go.
    """
    found = from_json(summary)
    found["told"] = {}
    write_messages(experiment, repeat, made, out, found)
    write_wakeups(experiment, repeat, made, out, found)
    layout.summary(out).write_text(to_json(found) + "\n", encoding="utf-8")


@contextmanager
def _aside(draft: str) -> Iterator[Path]:
    """A folder of a piece's own, whose files go into the draft when it is done.

    Each goes there at once; what another attempt has put there is the same.
    """
    with tempfile.TemporaryDirectory(prefix=".piece-", dir=draft) as own:
        yield Path(own)
        for file in sorted(Path(own).rglob("*")):
            if file.is_file():
                place = draft / file.relative_to(own)
                place.parent.mkdir(parents=True, exist_ok=True)
                file.replace(place)


@contextmanager
def _readable_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise RunFailed(f"the time line cannot be made: {error}") from None
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise RunFailed(f"the time line cannot be made: {why}") from None


def _clock(experiment: Experiment) -> tuple[str, float]:
    """Reference and wander."""
    return experiment.hosts[0], experiment.clock.wander_ppm * 1e-6
