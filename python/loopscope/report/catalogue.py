"""The figures of a run, by name: one table of their kinds, and what draws each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loopscope.analysis.messages import Messages
from loopscope.analysis.recorded_kernels import has_events
from loopscope.analysis.why import can_explain
from loopscope.experiment import quantity
from loopscope.report import figures
from loopscope.report.canvas import FORMATS, WIDTHS, Format, Width, save, write_csv
from loopscope.report.clock_charts import CLOCK_CHARTS, clock_chart, has_clock_chart
from loopscope.report.figure_source import FigureSource, chosen
from loopscope.report.path_samples import ages_of, joins, list_of, part_of, paths_of
from loopscope.report.remote_item_chart import has_remote_items
from loopscope.report.sample_charts import Detail
from loopscope.report.sampled_charts import sampled_chart
from loopscope.report.samples import FigureError, missing
from loopscope.report.thread_channel_graph import has_graph

if TYPE_CHECKING:
    from loopscope.report.chart import Chart
    from loopscope.report.waterfall import Fall

OWN = "own"
"""The kind of those that the experiment's file names."""
COMPARING = ("mean-deviation", "pattern-points")
"""The kinds that compare the points of a sweep."""
Row = Sequence[str | int | float]
Of = Literal["samples", "path", "pattern", "run"]


@dataclass(frozen=True)
class Choice:
    """Options of a request for figures. None: the default."""

    message: str | None = None
    """The key of one, as it is shown."""
    repeat: int | None = None
    from_ns: int | None = None
    until_ns: int | None = None
    log: str | None = None
    against: str | None = None
    finding: int | None = None
    """The place of one among a path's findings, from 1."""
    width: Width = "two"
    formats: Sequence[Format] = FORMATS

    @property
    def given(self) -> list[str]:
        """Names of the options that were given."""
        each: dict[str, object]
        each = {"message": self.message, "repeat": self.repeat, "from": self.from_ns}
        each |= {"until": self.until_ns, "log": self.log, "against": self.against}
        each |= {"finding": self.finding}
        return [name for name, value in each.items() if value is not None]


@dataclass(frozen=True)
class RunKind:
    what: str
    of: Of
    """Subject of which each figure is one."""
    make: Callable[[FigureSource, str, Choice], Chart]
    """Raises `FigureError` where there is nothing to draw."""
    takes: tuple[str, ...]
    """Which of a person's further choices it heeds."""


@dataclass(frozen=True)
class Wanted:
    kind: str
    of: str
    """Empty of the whole run."""

    @property
    def stem(self) -> str:
        """The stem of its files' names."""
        if self.kind == OWN:
            return self.of
        slug = re.sub(r"[^\w.]+", "-", self.of, flags=re.ASCII).strip("-").replace("-.", ".")
        return f"{self.kind}-{slug}" if slug else self.kind


def parse(source: FigureSource, words: Sequence[str], choice: Choice) -> list[Wanted]:
    """The figures that words ask for, such as `ccdf loop rate waterfall`.

    A kind, then what it is to be of; without that, all that suits it. Nothing given: every figure
    of the run.

    Raises `FigureError` with the nearest right spelling, and for a choice that none of the figures
    heeds.
    """
    _check(source, choice)
    wanted = _parsed(source, words)
    takes = {each for one in wanted if one.kind != OWN for each in KINDS[one.kind].takes}
    for option in choice.given:
        if option not in takes:
            heed = [kind for kind, known in KINDS.items() if option in known.takes]
            raise FigureError(f"--{option} is for {', '.join(heed)}")
    return wanted


def names(source: FigureSource) -> list[str]:
    """Every word that `parse` knows in this run."""
    return [*KINDS, *source.subjects, *_own_names(source)]


def figures_of(source: FigureSource) -> Path:
    """Where a run's figures go."""
    return (source.path if source.swept else source.run.output) / "figures"


def places(
    source: FigureSource, wanted: Wanted, folder: Path | None
) -> list[tuple[FigureSource, Path]]:
    """Sources of a figure and folders of its files.

    Those of a sweep for each point, but for what compares points. `folder` is a person's choice.
    Raises `FigureError`.
    """
    if not source.swept or wanted.kind in (OWN, *COMPARING):
        return [(source, figures_of(source) if folder is None else folder)]
    return [
        (point, figures_of(point) if folder is None else folder / str(point.point))
        for point in source.points
    ]


def _check(source: FigureSource, choice: Choice) -> None:
    for each in choice.formats:
        if each not in FORMATS:
            raise FigureError(f"--format: {missing('format', each, FORMATS)}")
    if choice.width not in WIDTHS:
        raise FigureError(f"--width: {missing('width', choice.width, WIDTHS)}")
    if choice.repeat is not None and not source.swept:
        known = source.run.repeats
        if choice.repeat not in known:
            raise FigureError(f"--repeat {choice.repeat}: the run has {', '.join(map(str, known))}")
    begin, end = choice.from_ns, choice.until_ns
    if begin is not None and end is not None and end <= begin:
        raise FigureError("--until must be later than --from")


def _own_names(source: FigureSource) -> list[str]:
    return [each.name for each in source.whole.figures] if source.whole else []


def _parsed(source: FigureSource, words: Sequence[str]) -> list[Wanted]:
    if not words:
        return list(everything(source))
    found: list[Wanted] = []
    names = _own_names(source)
    kind, given = "", 0
    for word in words:
        # Right after a kind a path of that name is meant, should there be one.
        is_subject = kind and not given and word in _subjects(source, KINDS[kind].of)
        if word in KINDS and not is_subject:
            if kind and not given:
                found += _all(source, kind)
            kind, given = word, 0
        elif word in names and not is_subject:
            if kind and not given:
                found += _all(source, kind)
            found.append(Wanted(OWN, word))
            kind, given = "", 0
        elif not kind:
            raise FigureError(missing("figure", word, [*KINDS, *names]))
        else:
            found.append(Wanted(kind, _subject(source, kind, word)))
            given += 1
    if kind and not given:
        found += _all(source, kind)
    return found


def everything(source: FigureSource) -> Iterator[Wanted]:
    """Every figure of a run: each kind of all that suits it, then the experiment's own.

    Of samples only the paths from end to end.
    """
    if source.swept:
        yield from (Wanted("mean-deviation", each) for each in source.wholes)
        yield from (Wanted("pattern-points", each) for each in _subjects(source, "pattern"))
        yield from (Wanted(OWN, name) for name in source.own)
        return
    for kind, known in KINDS.items():
        if known.of == "run":
            if _has(source, kind):
                yield Wanted(kind, "")
        else:
            suits = [] if kind in COMPARING else _measured(source, known.of)
            if kind == "causes":
                told = has_events(source.run)
                suits = [each for each in suits if told and list_of(source.results, each)]
            if kind == "findings":
                suits = [each for each in suits if source.findings(each).certain]
            yield from (Wanted(kind, each) for each in suits)
    yield from (Wanted(OWN, name) for name in source.own)


def _has(source: FigureSource, kind: str) -> bool:
    """Whether a kind that is of the whole run has something to show."""
    if kind in CLOCK_CHARTS:
        return has_clock_chart(kind, source.clocks)
    of_channels = {"channels": has_graph, "remote-items": has_remote_items}
    return kind not in of_channels or of_channels[kind](source.results)


def draw(source: FigureSource, wanted: Wanted, directory: Path, choice: Choice) -> tuple[Path, ...]:
    """Writes a figure and its numbers, returns the files.

    Raises `FigureError`, and `OSError` where files cannot be written.
    """
    # Slow to import: Matplotlib.
    from loopscope.report.chart_file import file_figure

    chart = chart_of(source, wanted, choice)
    directory.mkdir(parents=True, exist_ok=True)
    figure = file_figure(chart, WIDTHS[choice.width])
    files = save(figure, directory / wanted.stem, choice.formats)
    return (*files, write_csv(directory / wanted.stem, chart.rows))


def chart_of(source: FigureSource, wanted: Wanted, choice: Choice) -> Chart:
    """The description of a figure, which renderers draw. Raises `FigureError`."""
    return (_own if wanted.kind == OWN else KINDS[wanted.kind].make)(source, wanted.of, choice)


def duration_ns(option: str, text: str | None) -> int | None:
    """A time such as `30s` in ns; None where none is given. Raises `FigureError`."""
    if text is None:
        return None
    try:
        return int(quantity.parse(text, quantity.DURATION))
    except quantity.QuantityError as error:
        hint = f" (did you mean {error.hint}?)" if error.hint else ""
        raise FigureError(f"{option}: {error}{hint}") from None


def _all(source: FigureSource, kind: str) -> list[Wanted]:
    of = KINDS[kind].of
    if of == "run":
        return [Wanted(kind, "")]
    names = _measured(source, of)
    if not names:
        hint = "; name what it is to be of: --list shows it" if of == "samples" else ""
        why = "has no pattern" if of == "pattern" else "has no path of which a message arrived"
        raise FigureError(f"{kind}: this run {why}{hint}")
    return [Wanted(kind, each) for each in names]


def _subject(source: FigureSource, kind: str, word: str) -> str:
    of = KINDS[kind].of
    if of == "run":
        raise FigureError(f"{missing('kind of figure', word, KINDS)} ({kind} is of the whole run)")
    if of == "samples":
        return word  # what can be named is more than a list
    if kind in _OF_ENDS and "[" in word and source.part(word):
        return word
    known = _subjects(source, of)
    if word not in known:
        raise FigureError(f"{kind}: {missing(of, word, known)}")
    return word


def _measured(source: FigureSource, of: Of) -> list[str]:
    """The patterns; the paths of which messages arrived, as samples from end to end, then ages."""
    if of == "pattern":
        return _subjects(source, of)
    if source.swept:
        return source.wholes if of == "samples" else list(source.paths)
    found: dict[str, None] = {}
    ages: list[str] = []
    results = source.results
    for path in paths_of(results).values():
        for ends in path.ends:
            part = part_of(results, path.name, ends)
            if not len(part.intervals.length):
                continue
            found[part.text if of == "samples" else path.name] = None
            if of == "samples" and joins(path, ends):
                used = ages_of(results, path.name, ends)
                ages += [used.text] if len(used.intervals.length) else []
    return [*found, *ages]


def _subjects(source: FigureSource, of: Of) -> list[str]:
    if of == "samples":
        return list(source.subjects)
    if of == "path":
        return list(source.paths)
    if of == "pattern" and source.experiment:
        return [each.name for each in source.experiment.patterns]
    return []


def _of_samples(kind: str) -> Callable[[FigureSource, str, Choice], Chart]:
    def make(source: FigureSource, of: str, choice: Choice) -> Chart:
        sampled = chosen(source.samples(of), choice.repeat, choice.from_ns, choice.until_ns)
        marks = source.marks if kind == "scatter" else ()
        return sampled_chart(kind, sampled, _detail(choice), marks, choice.log)

    return make


def _detail(choice: Choice) -> Detail:
    return Detail(figures.size_of(choice.width))


def _mean_deviation(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report.sweep_chart import mean_deviation

    return mean_deviation(source, of, choice)


def _channels(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report import thread_channel_graph

    return thread_channel_graph.chart(source.results, choice.repeat)


def _remote_items(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report import remote_item_chart

    return remote_item_chart.chart(source.results, choice.repeat)


def _own(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report.experiment_charts import own_chart

    if of not in source.own:
        raise FigureError(f"{of}: nothing was measured that it could show")
    return own_chart(source.own[of])


def _hops(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report.path_charts import hops_chart, parts_of

    path = source.paths[of]
    parts = parts_of(source.results, path)
    chart = hops_chart(source.results, path, parts, source.marks)
    if chart is None:
        raise FigureError(f"path {of}: no message was seen")
    return chart


def _waterfall(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report import waterfall

    falls = _falls(source, of, choice)
    if not falls:
        raise FigureError(f"path {of}: no message arrived")
    return waterfall.chart(falls)


def _causes(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.analysis.recorded_kernels import NothingRecordedError
    from loopscope.report import cause_chart

    messages = source.listed(of)
    if can_explain(source.run) and not has_events(source.run):
        raise FigureError(
            f"{source.run.path} has counts of threads alone, which do not tell where a part was: "
            "`loopscope why` says how long each was"
        )
    try:
        if choice.message is not None:
            return cause_chart.named_causes(source.run, messages, choice.message, choice.repeat)
        chart = cause_chart.usual_causes(source.run, messages, choice.repeat)
    except NothingRecordedError as error:
        raise FigureError(str(error)) from error
    if chart is None:
        raise FigureError(f"path {of}: no message arrived")
    return chart


def _findings(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report import finding_chart

    found = source.findings(of).findings
    if not found:
        raise FigureError(f"path {of}: nothing found; `loopscope findings {source.path}` says more")
    number = choice.finding or 1
    if not 1 <= number <= len(found):
        raise FigureError(f"--finding {number}: path {of} has {len(found)}, from 1 on")
    messages = source.messages(of)
    assert isinstance(messages, Messages)
    marks = source.marks
    return finding_chart.chart(source.results, messages, found[number - 1], marks, choice.log)


def _falls(source: FigureSource, of: str, choice: Choice) -> tuple[Fall, ...]:
    """The messages that a person named, else the usual ones."""
    from loopscope.report import dag_waterfall, waterfall

    name = of.partition("[")[0].strip()
    messages = source.messages(name)
    ends = source.part(of)[1] if "[" in of else None
    if isinstance(messages, Messages):
        if ends is not None:
            raise FigureError(f"{of}: of a list the whole is drawn: {name}")
        if choice.message is None:
            return waterfall.usual(messages, choice.repeat)
        return waterfall.named(messages, choice.message, choice.repeat)
    try:
        if choice.message is None:
            return dag_waterfall.usual(messages, choice.repeat, ends)
        return dag_waterfall.named(messages, choice.message, choice.repeat, ends)
    except ValueError as error:
        raise FigureError(f"{of}: {error}") from error


def _timeline(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report import host_timeline

    window = None
    if choice.from_ns is None and choice.until_ns is None:
        window = host_timeline.slowest(source.results, choice.message, choice.repeat)
    if window is None:
        repeat = choice.repeat or next(iter(source.run.repeats))
        window = host_timeline.whole(source.run, repeat)
        until = window.end if choice.until_ns is None else window.begin + choice.until_ns
        begin = window.begin + (choice.from_ns or 0)
        window = replace(window, begin=begin, end=min(window.end, until))
    found = host_timeline.read_timeline(source.run, source.results, window)
    return host_timeline.chart(found)


def _pattern_points(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report import pattern_points_chart

    return pattern_points_chart.chart(source, of)


def _patterns(source: FigureSource, of: str, choice: Choice) -> Chart:
    from loopscope.report.path_charts import pattern_chart

    result = next(each for each in source.results.patterns if each.name == of)
    return pattern_chart(result)


def _clock(name: str) -> Callable[[FigureSource, str, Choice], Chart]:
    def make(source: FigureSource, of: str, choice: Choice) -> Chart:
        if not has_clock_chart(name, source.clocks):
            raise FigureError(f"{name}: this run knows nothing of it")
        return clock_chart(name, source.clocks)[1]

    return make


_OF_ENDS = ("waterfall",)
"""Kinds that can be of one beginning and one end of a branching path."""
_STRETCH = ("repeat", "from", "until")
_SAMPLES = (*_STRETCH, "log")

KINDS: dict[str, RunKind] = {
    "scatter": RunKind("each message or event over time", "samples", _of_samples("scatter"),
                   _SAMPLES),
    "histogram": RunKind("how many took how long", "samples", _of_samples("histogram"),
                   _SAMPLES),
    "ccdf": RunKind("the share that took at least so long, on logarithmic axes", "samples",
                    _of_samples("ccdf"),
                    _SAMPLES),
    "heatmap": RunKind("how many were where over time", "samples", _of_samples("heatmap"),
                   _SAMPLES),
    "mean-deviation": RunKind("mean and standard deviation against a swept parameter", "samples",
                              _mean_deviation, ("against", *_SAMPLES)),
    "hops": RunKind("each hop over time, and its histogram", "path", _hops, ()),
    "waterfall": RunKind("single messages hop by hop: the median, p99 and slowest, or --message",
                         "path", _waterfall, ("message", "repeat")),
    "causes": RunKind("what held single messages, by the kernel's events: the median, p99 and "
                      "slowest, or --message", "path", _causes, ("message", "repeat")),
    "findings": RunKind("the strongest pattern in a path's times on its messages, or --finding N",
                        "path", _findings, ("finding", "log")),
    "timeline": RunKind("the events of each host around the slowest message, --message, or --from "
                        "and --until", "run", _timeline, ("message", *_STRETCH)),
    "channels": RunKind("the threads and channels, and how often items are put and got", "run",
                        _channels, ("repeat",)),
    "remote-items": RunKind("the way of channels' items to readers on other hosts: the medians of "
                            "its parts", "run", _remote_items, ("repeat",)),
    "patterns": RunKind("each message type's latency against its target", "pattern", _patterns,
                        ()),
    "pattern-points": RunKind("each message type's latency at each point of a sweep", "pattern",
                              _pattern_points, ()),
    "clock": RunKind("the clocks' offset and rate over time", "run", _clock("clock"), ()),
    "clock-width": RunKind("how well each host's time is known", "run", _clock("clock-width"), ()),
    "clock-realtime": RunKind("CLOCK_REALTIME against the reference's", "run",
                              _clock("clock-realtime"), ()),
    "clock-allan": RunKind("stability of the counters", "run", _clock("clock-allan"), ()),
}  # fmt: skip
