"""Runs nodes of a graph as threads, which meet at channels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from loopscope import stm
from loopscope_video import items
from loopscope_video.errors import VideoError
from loopscope_video.graph import Edge, Graph, Node
from loopscope_video.items import Content
from loopscope_video.nodes import Done, Source, Step, Worker
from loopscope_video.streams import channel, next_time

T = TypeVar("T")
# Each wait looks so often whether another node has failed, in seconds.
_LOOK_S = 0.1
ITEM_BYTES = 8 << 20
"""Bytes of an item, where no experiment says how many: a picture of 1920 x 1080."""
_ROOM = "room in its channel"
_LAST_TIME = 2**63 - 1
STALE_S = 2.0
"""Seconds after which a latest item counts as none: the process that put it may be gone."""


@dataclass
class Counts:
    """What a node has done."""

    taken: int = 0
    """Items of its first input."""
    given: int = 0
    alone: int = 0
    """Items of its first input for which another input had none of the same time."""
    skipped: int = 0
    """Items that it passed over because a newer one was there."""
    lost: int = 0

    def text(self) -> str:
        """The counts for people."""
        return (
            f"{self.taken} in, {self.given} out, {self.skipped} passed over, {self.lost} lost, "
            f"{self.alone} without a partner"
        )


class Runner:
    """The nodes of a process, with their connections."""

    def __init__(
        self, graph: Graph, names: list[str] | None = None, *, patience_s: float = 20.0
    ) -> None:
        """Connects the nodes' inputs, so that what is put from now on reaches them.

        `names`: the nodes, None: all. `patience_s`: how long a node waits for an item. Raises
        StmError and SettingsError.
        """
        self._nodes = graph.chosen(names)
        self._patience_s = patience_s
        self._stopping = threading.Event()
        self._ends = threading.Condition()
        self._running = len(self._nodes)
        self._failures: list[tuple[str, BaseException]] = []
        self.counts = {node.name: Counts() for node in self._nodes}
        self._inputs: dict[str, list[stm.Input]] = {}
        with ExitStack() as stack:
            for node in self._nodes:
                self._inputs[node.name] = [
                    stack.enter_context(_joined(edge)) for edge in node.inputs
                ]
            self._open = stack.pop_all()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def run(self) -> None:
        """Runs the nodes until all have ended. Raises VideoError with the first failure."""
        threads = [
            threading.Thread(target=self._guarded, args=(node,), name=node.name, daemon=True)
            for node in self._nodes
        ]
        for thread in threads:
            thread.start()
        try:
            self._wait_for_all()
        finally:
            self._stopping.set()
            self._wait_for_all()
            for thread in threads:
                thread.join()
        if self._failures:
            name, error = self._failures[0]
            raise VideoError(f"node {name}: {error}") from error

    def _wait_for_all(self) -> None:
        """Waits for the ends of all nodes.

        A signal's exception out of a thread's `join` would have Python 3.11 take it for ended.
        """
        with self._ends:
            while self._running:
                self._ends.wait(_LOOK_S)

    def _guarded(self, node: Node) -> None:
        try:
            with ExitStack() as stack:
                output, first = None, 0
                if node.settings.gives is not None:
                    into = _channel(node.name, puts=True)
                    first = next_time(into)
                    output = stack.enter_context(into.output())
                if isinstance(node.settings, Source):
                    self._give(node.name, node.settings, output, first)
                elif isinstance(node.settings, Worker):
                    self._work(node, node.settings.step(stack), output)
        except _Stopped:
            pass
        except BaseException as error:
            self._failures.append((node.name, error))
            self._stopping.set()
        finally:
            # Where other nodes of this process go on, what this one would not take holds nobody up.
            for each in self._inputs[node.name]:
                each.close()
            with self._ends:
                self._running -= 1
                self._ends.notify_all()

    def _give(self, name: str, source: Source, output: stm.Output | None, first: int) -> None:
        counts, number = self.counts[name], first - 1
        for number, content in enumerate(source.contents(), first):
            if self._stopping.is_set():
                raise _Stopped
            self._put(output, number, content)
            counts.given += 1
        self._end(output, number + 1)

    def _work(self, node: Node, step: Step, output: stm.Output | None) -> None:
        counts = self.counts[node.name]
        inputs = list(zip(node.inputs, self._inputs[node.name], strict=True))
        (edge, first), *others = inputs
        if output is not None:
            # Where this node gives nothing for a time, those that join by times are told.
            output.derives(first)
        following = first.unseen if edge.policy == "newest" else first.oldest
        what = f"an item of {edge.source}"
        while True:
            with self._wait(what, partial(following, timeout=_LOOK_S)) as item:
                time, content = item.time, items.read(item.view)
                if content is None:
                    break
                counts.taken += 1
                with ExitStack() as held:
                    partners = self._partners(others, time, held)
                    if partners is None:
                        counts.alone += 1
                    else:
                        try:
                            given = step(time, [content, *partners])
                        except Done:
                            break
                        if given is not None:
                            self._put(output, time, given)
                            counts.given += 1
                    # An array of an item's bytes holds the item.
                    content = partners = given = None
            for each_edge, each in inputs:
                if each_edge.policy != "latest":
                    each.consume_until(time)
        counted = first.counts()
        counts.skipped, counts.lost = counted.skipped, counted.lost
        self._end(output, time)

    def _partners(
        self, others: Sequence[tuple[Edge, stm.Input]], time: int, held: ExitStack
    ) -> list[Content | None] | None:
        """The contents of the same time at the other inputs, or their latest; None: one has none.

        A None in it: there is no latest one.
        """
        found: list[Content | None] = []
        for edge, other in others:
            if edge.policy == "latest":
                found.append(_latest(other, held))
                continue
            ask = partial(_asked, other, time)
            try:
                item = self._wait(f"the item {time} of {edge.source}", ask)
            except (stm.Gone, stm.Never):
                return None
            content = None if item is None else items.read(held.enter_context(item).view)
            if content is None:
                return None
            found.append(content)
        return found

    def _put(self, output: stm.Output | None, time: int, content: Content) -> None:
        if output is None:
            return
        loan = partial(output.loan, items.size_of(content), timeout=_LOOK_S)
        with self._wait(_ROOM, loan, stm.NoSlot) as memory:
            items.write(content, memory.view)
            self._wait(_ROOM, partial(memory.put, time, timeout=_LOOK_S), stm.Full)

    def _end(self, output: stm.Output | None, time: int) -> None:
        if output is not None:
            end = partial(output.put, time, items.END, timeout=_LOOK_S)
            self._wait(_ROOM, end, stm.Full, stm.NoSlot)

    def _wait(self, what: str, call: Callable[[], T], *unready: type[Exception]) -> T:
        """The call's answer, when there is one. Raises VideoError where none comes in time.

        `unready`: the errors that say that there is none yet; by default NotYet.
        """
        for _ in range(max(1, round(self._patience_s / _LOOK_S))):
            if self._stopping.is_set():
                raise _Stopped
            with suppress(*(unready or (stm.NotYet,))):
                return call()
        raise VideoError(f"it waited {self._patience_s:g} s for {what}")


def _channel(name: str, *, puts: bool) -> stm.Channel:
    """A node's channel, in which readers that want every item make the node wait."""
    return channel(name, puts=puts, item_bytes=ITEM_BYTES, full="refuse")


def _joined(edge: Edge) -> stm.Input:
    return _channel(edge.source, puts=False).input(lossy=edge.policy != "every")


def _latest(other: stm.Input, held: ExitStack) -> Content | None:
    """The newest content that there is; None: there is none, or it has become too old."""
    try:
        item = held.enter_context(other.newest(timeout=0))
    except stm.NotYet:
        return None
    # The newest one itself is wanted again, until there is another one.
    other.consume_until(item.time - 1)
    return None if item.age_ns > STALE_S * 1e9 else items.read(item.view)


def _asked(other: stm.Input, time: int) -> stm.Item | None:
    """The item of a time; None: the node has ended without one. Raises NotYet, Gone or Never."""
    try:
        return other.get(time, timeout=_LOOK_S)
    except stm.NotYet:
        # A node that has ended promises nothing any more.
        with ExitStack() as held:
            later = [held.enter_context(item) for item in other.range(time, _LAST_TIME)]
            if any(items.read(item.view) is None for item in later):
                return None
        raise


class _Stopped(Exception):
    """Another node has failed, or the process is to end."""
