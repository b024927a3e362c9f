"""Graphs of nodes against the same work done by one function, in one process and in several."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from effort import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy
from loopscope_video import items
from loopscope_video.errors import SettingsError, VideoError
from loopscope_video.graph import Graph
from loopscope_video.nodes import SceneSettings
from loopscope_video.tracker import Tracker

from loopscope import stm

BIN = Path(sys.prefix) / "bin"
PATIENCE_S = 60
PICTURES = 60

shapes = of_numpy.array_shapes(max_dims=3, max_side=6)
arrays = st.one_of(
    of_numpy.arrays(np.uint8, shapes),
    of_numpy.arrays(np.dtype("<f4"), shapes, elements=st.floats(width=32, allow_nan=False)),
)


@settings(max_examples=cases(200, 5000))
@given(st.one_of(arrays, st.binary(max_size=50)))
def test_what_is_written_into_an_item_is_read_from_it(content: items.Content) -> None:
    memory = bytearray(items.size_of(content))
    items.write(content, memoryview(memory))
    found = items.read(memoryview(memory))
    assert type(found) is type(content)
    assert np.array_equal(found, content)  # type: ignore[arg-type]
    assert isinstance(found, bytes) or found.dtype == content.dtype  # type: ignore[union-attr]


@settings(max_examples=cases(500, 20_000))
@given(
    st.one_of(
        st.binary(max_size=40),
        st.tuples(
            st.sampled_from([0, 1, 2, 3, 4, 255]),
            st.integers(0, 5),
            st.binary(min_size=14, max_size=14),
            st.binary(max_size=20),
        ).map(lambda parts: bytes(parts[:2]) + parts[2] + parts[3]),
    )
)
def test_bytes_of_another_program_are_an_item_or_an_error(data: bytes) -> None:
    try:
        found = items.read(memoryview(data))
    except VideoError:
        return
    assert found is None or items.size_of(found) == len(data)


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((1, 1, 1, 1), np.uint8)])
def test_what_is_no_item_is_not_written(array: np.ndarray) -> None:
    with pytest.raises(VideoError, match="is no item"):
        items.write(array, memoryview(bytearray(items.size_of(array))))


SCENE = {"kind": "scene"}


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({}, "nodes is a mapping"),
        ({"a": 3}, "a: a node is a mapping"),
        ({"a": {"kind": "scena"}}, "a: kind: no kind 'scena'; did you mean scene?"),
        ({"a": {}}, "a: kind: no kind None; there are scene, capture"),
        ({"a": SCENE | {"rate": 3}}, "a: rate: no such setting; did you mean rate_hz?"),
        ({"a": SCENE | {"rate_hz": 0}}, "a: rate_hz: 0 will not do"),
        ({"a": SCENE | {"rate_hz": None}}, "a: rate_hz: null goes on as fast as its readers"),
        (
            {"a": {"kind": "canvas", "rate_hz": None}, "b": {"kind": "mixer", "from": "a"}},
            "a: rate_hz: null goes on as fast as its readers take every item",
        ),
        ({"a": SCENE | {"from": "a"}}, "a: from: a node of kind scene has no inputs, and not 1"),
        ({"a": {"kind": "scale"}}, "a: from: a node of kind scale has 1 input, and not 0"),
        ({"a": {"kind": "draw", "from": "a"}}, "a: from: a node of kind draw has 2 or more inputs"),
        (
            {"a": {"kind": "tracker", "from": ["b", "c", "d"]}},
            "a: from: a node of kind tracker has 1 or 2 inputs, and not 3",
        ),
        (
            {"a": {"kind": "histogram"}},
            "a: from: a node of kind histogram has 1 or 2 inputs, and not 0",
        ),
        ({"a": {"kind": "discard"}}, "a: from: a node of kind discard has 1 input, and not 0"),
        ({"a": {"kind": "scale", "from": "b"}}, "a: from: no node 'b'; there are a"),
        (
            {"a": {"kind": "mixer", "from": [{"b": "latest"}, "c"]}},
            "a: from: b: the first input says when there is something to do, and cannot be latest",
        ),
        (
            {"a": {"kind": "draw", "from": ["b", "c", {"d": "latest"}]}},
            "a: from: d: latest may bring nothing, and a node of kind draw needs all of its "
            "inputs; latest is for mixer",
        ),
        (
            {"a": {"kind": "histogram", "from": ["b", {"c": "latest"}]}},
            "a: from: c: latest may bring nothing, and a node of kind histogram needs all",
        ),
        (
            {"a": {"kind": "scale", "from": {"b": "latest"}}},
            "a: from: b: latest may bring nothing, and a node of kind scale needs all",
        ),
        ({"a": {"kind": "scale", "from": {"b": "all"}}}, "a: from: {'b': 'all'} is neither NODE"),
        (
            {"a": SCENE, "b": {"kind": "decode", "from": "a"}},
            "b: from: a gives pictures, and JPEGs are wanted",
        ),
        (
            {"a": {"kind": "scale", "from": "b"}, "b": {"kind": "scale", "from": "a"}},
            "a, b: their edges go in a circle",
        ),
        ({"": SCENE}, ": a node's name is a text"),
        ({7: SCENE}, "7: a node's name is a text"),
    ],
)
def test_a_graph_that_is_none_is_told(nodes: object, said: str) -> None:
    with pytest.raises(SettingsError) as told:
        Graph.of(nodes)
    assert str(told.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: [", "g.yaml: while parsing"),
        ("- 1", "g.yaml: a graph has nodes: and nothing else"),
        ("nodes: {a: {kind: scene}}\nedges: {}", "g.yaml: a graph has nodes: and nothing else"),
        ("nodes: {a: {kind: nothing}}", "g.yaml: a: kind: no kind 'nothing'"),
    ],
)
def test_a_file_that_is_no_graph_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.yaml").write_text(text)
    with pytest.raises(SettingsError) as told:
        Graph.load(Path("g.yaml"))
    assert str(told.value).startswith(said)
    with pytest.raises(SettingsError, match="none.yaml: No such file"):
        Graph.load(Path("none.yaml"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"camra": {"width": 80}}, "g.yaml: set: no node 'camra'; did you mean camera?"),
        ({"camera": {"with": 80}}, "g.yaml: camera: with: no such setting; did you mean width?"),
        ({"camera": {"width": 8}}, "g.yaml: camera: width: 8 will not do"),
    ],
)
def test_other_settings_than_the_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, dict[str, object]],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.yaml").write_text("nodes: {camera: {kind: scene, width: 160, height: 120}}")
    camera = Graph.load(Path("g.yaml"), {"camera": {"width": 80}}).nodes["camera"].settings
    assert isinstance(camera, SceneSettings) and (camera.width, camera.height) == (80, 120)
    with pytest.raises(SettingsError) as told:
        Graph.load(Path("g.yaml"), changes)
    assert str(told.value).startswith(said)


GRAPH = """
nodes:
  file:    {kind: record, from: {jpeg: every}, folder: pictures}
  clip:    {kind: capture, file: clip.avi, rate_hz: 1000}
  small:   {kind: scale, from: {clip: every}, width: 160}
  moving:  {kind: background, from: {small: every}}
  colours: {kind: histogram, from: [{small: every}, {moving: every}]}
  found:   {kind: tracker, from: {clip: every}}
  marked:  {kind: draw, from: [{clip: every}, {found: every}]}
  both:    {kind: mixer, from: [{marked: every}, {moving: every}]}
  jpeg:    {kind: encode, from: {both: every}, quality: 95}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a graph and the clip that it reads."""
    (tmp_path / "graph.yaml").write_text(GRAPH)
    writer = cv2.VideoWriter(
        str(tmp_path / "clip.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 25, (320, 240)
    )
    for number in range(PICTURES):
        picture = np.full((240, 320, 3), (90, 120, 40), np.uint8)
        cv2.circle(picture, (30 + 4 * number, 120), 15, (40, 40, 230), cv2.FILLED)
        writer.write(picture)
    writer.release()
    return tmp_path


def graph(folder: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BIN / "loopscope-video", "graph", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def expected(folder: Path) -> list[bytes]:
    """What the graph makes of the clip, by OpenCV's functions one after the other."""
    clip = cv2.VideoCapture(str(folder / "clip.avi"))
    tracker = Tracker()
    subtractor = cv2.createBackgroundSubtractorMOG2(100, 16, False)
    found = []
    for number in range(PICTURES):
        there, picture = clip.read()
        assert there
        small = cv2.resize(picture, (160, 120), interpolation=cv2.INTER_AREA)
        moving = cv2.cvtColor(subtractor.apply(small), cv2.COLOR_GRAY2BGR)
        spot = tracker.look(number, picture)
        if spot is not None:
            reach = np.float32(1.5) * np.float32(spot.radius)
            x, y = float(np.float32(spot.x)), float(np.float32(spot.y))
            one = round(x - float(reach)), round(y - float(reach))
            other = round(x + float(reach)), round(y + float(reach))
            cv2.rectangle(picture, one, other, (255, 255, 255), 2)
        moving = cv2.resize(moving, (320, 240), interpolation=cv2.INTER_AREA)
        mixed = np.rint((picture.astype(np.float32) + moving) / 2).astype(np.uint8)
        found.append(cv2.imencode(".jpg", mixed, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes())
    return found


def until_joined(folder: Path, names: list[str]) -> None:
    """Waits until the nodes of these names have joined their inputs' channels."""
    joins = sum(len(node.inputs) for node in Graph.load(folder / "graph.yaml").chosen(names))
    service, end = stm.Service(folder / "stm"), time.monotonic() + PATIENCE_S
    while sum(len(each["inputs"]) for each in service.list()) < joins:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.parametrize(
    "processes",
    [
        [""],
        ["file,jpeg,both,moving", "colours,found,marked", "clip,small"],
        ["found,jpeg", "marked,file,colours", "both", "moving", "small", "clip"],
    ],
    ids=["one process", "three processes", "six processes"],
)
def test_it_makes_what_one_function_makes(
    folder: Path, environment: dict[str, str], processes: list[str]
) -> None:
    for turn in range(2):
        programs = []
        for nodes in processes:
            if nodes == processes[-1]:
                # It has the clip, which begins at once.
                until_joined(folder, [name for each in processes[:-1] for name in each.split(",")])
            programs.append(
                graph(folder, environment, "graph.yaml", *(["--nodes", nodes] if nodes else []))
            )
        said = ""
        for program in programs:
            out, err = program.communicate(timeout=PATIENCE_S)
            assert program.returncode == 0, err
            said += out
        assert len(re.findall(r"^graph: \w+: ", said, re.M)) == 9
        assert f"graph: file: {PICTURES} in, 0 out, 0 passed over, 0 lost" in said
        # In the second turn the numbers go on: a time that was there never comes back.
        first = turn * (PICTURES + 1)
        names = [f"{first + number:09}.jpg" for number in range(PICTURES)]
        made = [(folder / "pictures" / name).read_bytes() for name in names]
        assert made == expected(folder)
    assert len(list((folder / "pictures").iterdir())) == 2 * PICTURES


@pytest.mark.full
def test_who_wants_the_newest_holds_nobody_up(folder: Path, environment: dict[str, str]) -> None:
    text = """
nodes:
  clip: {kind: capture, file: clip.avi, rate_hz: 500}
  jpeg: {kind: encode, from: clip}
  file: {kind: record, from: {jpeg: every}, folder: pictures}
"""
    (folder / "newest.yaml").write_text(text)
    program = graph(folder, environment, "newest.yaml")
    out, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0, err
    told = re.search(r"jpeg: (\d+) in, (\d+) out, (\d+) passed over, (\d+) lost", out)
    assert told is not None
    taken, given_, passed, lost = map(int, told.groups())
    # The end is an item, too, which may have come before the last pictures were looked at.
    assert taken == given_ and taken + passed + lost in (PICTURES, PICTURES + 1)
    assert len(list((folder / "pictures").iterdir())) == given_


@pytest.mark.full
def test_a_join_does_not_wait_for_what_was_passed_over_by_a_node_that_has_ended(
    folder: Path, environment: dict[str, str]
) -> None:
    text = """
nodes:
  clip:  {kind: capture, file: clip.avi, rate_hz: 1000}
  found: {kind: tracker, from: clip}
  drawn: {kind: draw, from: [{clip: every}, found]}
  jpeg:  {kind: encode, from: {drawn: every}}
  file:  {kind: record, from: {jpeg: every}, folder: pictures}
"""
    (folder / "join.yaml").write_text(text)
    for _ in range(3):
        program = graph(folder, environment, "join.yaml", "--patience_s", "10")
        out, err = program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 0, err
        told = re.search(r"drawn: (\d+) in, (\d+) out, 0 passed over, 0 lost, (\d+) with", out)
        assert told is not None, out
        taken, drawn, alone = map(int, told.groups())
        assert taken == PICTURES and drawn + alone == taken and drawn > 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("clip", "said"),
    [
        ("none.avi", "node clip: capture: there is no file none.avi"),
        ("graph.yaml", "node clip: capture: graph.yaml cannot be opened as video"),
    ],
)
def test_a_node_that_fails_ends_the_others(
    folder: Path, environment: dict[str, str], clip: str, said: str
) -> None:
    (folder / "bad.yaml").write_text(GRAPH.replace("clip.avi", clip))
    program = graph(folder, environment, "bad.yaml")
    _, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 1
    assert f"loopscope-video: graph: {said}\n" in err and "Traceback" not in err


@pytest.mark.full
def test_items_of_another_program_and_none_at_all_are_told(
    folder: Path, environment: dict[str, str]
) -> None:
    program = graph(folder, environment, "graph.yaml", "--nodes", "small", "--patience_s", "0.3")
    _, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, err) == (
        1,
        "loopscope-video: graph: node small: it waited 0.3 s for an item of clip\n",
    )
    program = graph(folder, environment, "graph.yaml", "--nodes", "smal")
    _, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 2
    assert err == "loopscope-video: graph: nodes: no node 'smal'; did you mean small?\n"
    for text in ("[", "3", "{small: 3}"):
        program = graph(folder, environment, "graph.yaml", "--set", text)
        _, err = program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 2
        assert err.startswith("loopscope-video: graph: set") and "Traceback" not in err


@pytest.mark.full
def test_ctrl_c_ends_a_graph(folder: Path, environment: dict[str, str]) -> None:
    (folder / "long.yaml").write_text("nodes: {a: {kind: scene, duration_s: 600}}")
    program = graph(folder, environment, "long.yaml")
    time.sleep(1.5)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 130 and err == ""
