"""Graphs whose clients come and go, sources that go as fast as their readers, and sinks."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loopscope_video import items, nodes, runner
from loopscope_video.graph import Graph
from loopscope_video.head import Pose
from loopscope_video.nodes import CanvasSettings, MixerSettings, SceneSettings
from loopscope_video.runner import Runner
from loopscope_video.scene import Motion, Optics, Scene
from loopscope_video.streams import CAPACITY, channel, next_time

from loopscope import stm

pytestmark = pytest.mark.full

BIN = Path(sys.prefix) / "bin"
PATIENCE_S = 60
NEVER_S = 1e6
SHAPE = (48, 64, 3)
CANVAS = np.full(SHAPE, 40, np.uint8)
CLIENTS = """
nodes:
  canvas: {kind: canvas}
  camera: {kind: scene, rate_hz: 100, duration_s: 600, width: 128, height: 96}
  one:    {kind: scale, from: {camera: every}, width: 64}
  two:    {kind: scene}
  other:  {kind: background, from: two}
  mixed:  {kind: mixer, from: [{canvas: every}, {one: latest}, {other: latest}]}
"""


@pytest.fixture(autouse=True)
def _service(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPSCOPE_STM", environment["LOOPSCOPE_STM"])


@contextmanager
def running(graph: Graph, *names: str) -> Iterator[Runner]:
    """Runs nodes in a thread, which has to end with the block, and to succeed."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            made.run()
        except BaseException as error:
            failures.append(error)

    with Runner(graph, list(names), patience_s=PATIENCE_S) as made:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield made
        thread.join(PATIENCE_S)
        assert not thread.is_alive() and not failures, failures


def open_channel(name: str, *, puts: bool) -> stm.Channel:
    return channel(name, puts=puts, item_bytes=runner.ITEM_BYTES, full="refuse")


def put(output: stm.Output, number: int, content: items.Content | None) -> None:
    """Puts a node's item; None: its end."""
    if content is None:
        output.put(number, items.END, timeout=PATIENCE_S)
        return
    with output.loan(items.size_of(content), timeout=PATIENCE_S) as loan:
        items.write(content, loan.view)
        loan.put(number, timeout=PATIENCE_S)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def grey(value: int) -> np.ndarray[Any, Any]:
    return np.full(SHAPE, value, np.uint8)


class Mixing:
    """The mixer of the graph in this process, with the test as its other nodes."""

    def __init__(self, stack: ExitStack) -> None:
        names = ("canvas", "one", "other")
        self.channels = {name: open_channel(name, puts=True) for name in names}
        self.out = {
            name: stack.enter_context(each.output())
            for name, each in self.channels.items()
            if name != "one"  # which another process may have
        }
        self._into = stack.enter_context(open_channel("mixed", puts=False).input())
        self.turns = 0

    def turn(self) -> np.ndarray[Any, Any]:
        """What is mixed with the next canvas."""
        put(self.out["canvas"], self.turns, CANVAS)
        with self._into.get(self.turns, timeout=PATIENCE_S) as item:
            content = items.read(item.view)
            assert isinstance(content, np.ndarray)
            found = content.copy()
            del content
        self._into.consume_until(self.turns)
        self.turns += 1
        return found

    def is_grey(self, value: float) -> bool:
        """Whether that is grey of this value."""
        return bool((self.turn() == round(value)).all())


@pytest.fixture
def mixing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mixing]:
    monkeypatch.setattr(runner, "STALE_S", NEVER_S)
    (tmp_path / "clients.yaml").write_text(CLIENTS)
    graph = Graph.load(tmp_path / "clients.yaml")
    with ExitStack() as stack, running(graph, "mixed"):
        made = Mixing(stack)
        yield made
        put(made.out["canvas"], made.turns, None)


def test_a_mixer_takes_the_latest_that_there_is_and_waits_for_nobody(mixing: Mixing) -> None:
    assert mixing.is_grey(40)  # there is nobody else
    with mixing.channels["one"].output() as one:
        # Its times have nothing to do with the canvas'.
        put(one, 1000, grey(100))
        assert mixing.is_grey((40 + 100) / 2)
        assert mixing.is_grey((40 + 100) / 2)  # the same one again, as there is no newer one
        put(mixing.out["other"], 3, np.full((24, 32), 220, np.uint8))
        assert mixing.is_grey((40 + 100 + 220) / 3)
        put(one, 1001, grey(160))
        assert mixing.is_grey((40 + 160 + 220) / 3)
        put(one, 1002, None)
    assert mixing.is_grey((40 + 220) / 2)
    # The client comes again.
    assert next_time(mixing.channels["one"]) == 1003
    with mixing.channels["one"].output() as one:
        put(one, 1003, grey(130))
        assert mixing.is_grey((40 + 130 + 220) / 3)
        put(one, 1004, None)
    put(mixing.out["other"], 4, None)
    assert mixing.is_grey(40)


def test_a_mixer_that_does_nothing_holds_no_client_up(mixing: Mixing) -> None:
    last = 3 * CAPACITY
    for number in range(last + 1):
        put(mixing.out["other"], number, grey(number))
    assert mixing.is_grey((40 + last) / 2)


def test_what_is_too_old_counts_as_nothing(mixing: Mixing, monkeypatch: pytest.MonkeyPatch) -> None:
    put(mixing.out["other"], 0, grey(100))
    assert mixing.is_grey(70)
    monkeypatch.setattr(runner, "STALE_S", 0.2)
    until(lambda: mixing.is_grey(40))
    monkeypatch.setattr(runner, "STALE_S", NEVER_S)
    assert mixing.is_grey(70)
    put(mixing.out["other"], 1, grey(120))
    assert mixing.is_grey(80)


def test_a_client_that_is_killed_is_missing_until_it_is_started_again(
    mixing: Mixing, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def client(duration_s: float) -> subprocess.Popen[str]:
        change = f"{{camera: {{duration_s: {duration_s}}}}}"
        return subprocess.Popen(
            [BIN / "loopscope-video", "graph", "clients.yaml", "--nodes", "camera,one"]
            + ["--set", change],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    program = client(600)
    try:
        until(lambda: not mixing.is_grey(40))
    finally:
        program.kill()
        program.communicate(timeout=PATIENCE_S)
    monkeypatch.setattr(runner, "STALE_S", 0.2)
    until(lambda: mixing.is_grey(40))
    monkeypatch.setattr(runner, "STALE_S", NEVER_S)
    before = next_time(mixing.channels["one"])
    program = client(1)
    until(lambda: next_time(mixing.channels["one"]) > before)
    _, said = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0, said
    # It has said that it ended, so it is missing at once.
    assert mixing.is_grey(40)
    assert 10 < next_time(mixing.channels["one"]) - before <= 101


def test_a_mixer_of_masks_gives_pictures() -> None:
    mask = np.zeros((4, 6), np.uint8)
    mask[1, 2] = 255
    with ExitStack() as stack:
        step = MixerSettings().step(stack)
        alone = step(0, [mask, None])
        both = step(1, [mask, None, np.full((8, 12, 3), 55, np.uint8)])
    assert alone.shape == both.shape == (4, 6, 3)
    assert (alone == mask[:, :, None]).all()
    assert both[1, 2].tolist() == [155] * 3 and both[0, 0].tolist() == [28] * 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of sources and sinks, in s, which the test sets."""
    now = [100.0]
    monkeypatch.setattr(nodes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_source_without_a_rate_repeats_its_pictures_as_fast_as_they_are_taken(
    clock: list[float],
) -> None:
    graph = Graph.of(
        {
            "camera": {"kind": "scene", "rate_hz": None, "duration_s": 10, "prepared": 5}
            | {"width": 64, "height": 48, "period_s": 2},
            "small": {"kind": "scale", "from": {"camera": "every"}},
        }
    )
    scene = Scene(Optics(64, 48), Motion(10, 2))
    swing = [scene.picture(Pose(0, 0, 1), 2 * number / 5) for number in range(5)]
    assert len({picture.tobytes() for picture in swing}) == 5
    with Runner(graph, ["small"]):
        # It has made the channel, as nodes do.
        camera = stm.Service().open("camera")

    def taken(number: int) -> bool:
        """Takes the item of a number. Returns whether it is the end."""
        with into.oldest(timeout=PATIENCE_S) as item:
            assert item.time == number
            content = items.read(item.view)
            assert content is None or np.array_equal(content, swing[number % 5])
            is_end = content is None
            del content
        # Nothing that its reader has not consumed has had to go.
        assert camera.counts().put <= number + camera.capacity
        into.consume_until(number)
        return is_end

    with camera.input() as into, running(graph, "camera"):
        assert not any(taken(number) for number in range(17))
        until(lambda: camera.counts().put == 17 + camera.capacity)
        # Its time is over while it waits for room, with one more picture or without.
        clock[0] += 10
        ahead = 17 + camera.capacity
        assert not any(taken(number) for number in range(17, ahead))
        assert taken(ahead) or taken(ahead + 1)
        assert camera.counts().dropped == 0


def test_a_scene_without_rate_and_pictures_shows_the_instant(clock: list[float]) -> None:
    shown = SceneSettings(rate_hz=None, duration_s=1, width=64, height=48).contents()
    scene = Scene(Optics(64, 48), Motion(10, 10))
    for passed in (0, 0.25, 0.75):
        clock[0] = 100 + passed
        assert np.array_equal(next(shown), scene.picture(Pose(0, 0, 1), passed))
    clock[0] = 101
    assert list(shown) == []


def test_a_canvas_is_black() -> None:
    pictures = list(CanvasSettings(rate_hz=1000, duration_s=0.002, width=32, height=16).contents())
    assert pictures and all(not each.any() and each.shape == (16, 32, 3) for each in pictures)


def test_a_sink_takes_all_that_nodes_give_until_its_time_is_over(clock: list[float]) -> None:
    graph = Graph.of(
        {
            "camera": {"kind": "scene"},
            "moving": {"kind": "background", "from": "camera"},
            "found": {"kind": "tracker", "from": "camera"},
            "colours": {"kind": "histogram", "from": "camera"},
            "jpeg": {"kind": "encode", "from": "camera"},
        }
        | {
            f"sink_{name}": {"kind": "discard", "from": {name: "every"}, "duration_s": duration}
            for name, duration in (("camera", 5), ("moving", None), ("found", None))
        }
        | {f"sink_{name}": {"kind": "discard", "from": name} for name in ("colours", "jpeg")}
    )
    with (
        running(graph, "sink_camera", "sink_moving") as ran,
        open_channel("camera", puts=True).output() as camera,
        open_channel("moving", puts=True).output() as moving,
    ):
        for number in range(2 * CAPACITY):
            put(camera, number, CANVAS)
        clock[0] += 5
        # It has ended, and so it holds nobody up, although its process goes on.
        for number in range(2 * CAPACITY, 6 * CAPACITY):
            put(camera, number, CANVAS)
        put(moving, 0, CANVAS[:, :, 0])
        put(moving, 1, None)
    assert ran.counts["sink_moving"].taken == 1
    assert CAPACITY <= ran.counts["sink_camera"].taken <= 3 * CAPACITY + 1
