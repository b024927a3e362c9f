"""Windows of an X server that show pictures; the server is Xvfb, and Pillow looks at its screen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image, ImageGrab

pytestmark = pytest.mark.full

BIN = Path(sys.prefix) / "bin"
PATIENCE_S = 60
WIDTH, HEIGHT = 400, 300
# Blue, green and red of a picture's quarters: left and right above, left and right below.
QUARTERS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (40, 120, 200)]


@pytest.fixture(scope="module")
def screen() -> Iterator[str]:
    """The name of an X server with a screen of 400 x 300 pixels."""
    server = shutil.which("Xvfb")
    if server is None:
        pytest.skip("Xvfb is not installed")
    pytest.importorskip("tkinter", reason="Python has no tkinter")
    told, tells = os.pipe()
    size = f"{WIDTH}x{HEIGHT}x24"
    program = subprocess.Popen(
        [server, "-displayfd", str(tells), "-screen", "0", size, "-nolisten", "tcp"],
        pass_fds=[tells],
        stderr=subprocess.DEVNULL,
    )
    os.close(tells)
    try:
        with os.fdopen(told) as number:
            yield f":{number.readline().strip()}"
    finally:
        program.terminate()
        program.wait(PATIENCE_S)


def on(screen: str) -> np.ndarray:
    """Red, green and blue of the screen's pixels."""
    return np.asarray(ImageGrab.grab(xdisplay=screen).convert("RGB")).astype(int)


def quarters(width: int, height: int) -> np.ndarray:
    picture = np.empty((height, width, 3), np.uint8)
    for place, colour in enumerate(QUARTERS):
        down, right = divmod(place, 2)
        rows = slice(down * height // 2, (down + 1) * height // 2)
        picture[rows, right * width // 2 : (right + 1) * width // 2] = colour
    return picture


@pytest.mark.parametrize(
    ("width", "height", "shown"),
    [(200, 100, (200, 100)), (800, 400, (360, 180)), (100, 1000, (27, 270))],
)
def test_a_picture_is_drawn_where_its_pixels_are(
    screen: str,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    height: int,
    shown: tuple[int, int],
) -> None:
    monkeypatch.setenv("DISPLAY", screen)
    from loopscope_video.window import opened

    with opened("a test") as window:
        assert window.show(1, np.full((7, 9), 128, np.uint8))
        assert (on(screen)[:7, :9] == 128).all()
        assert window.show(2, quarters(width, height))
        seen = on(screen)
        for place, (blue, green, red) in enumerate(QUARTERS):
            down, right = divmod(place, 2)
            middle = seen[shown[1] * (2 * down + 1) // 4, shown[0] * (2 * right + 1) // 4]
            assert middle.tolist() == [red, green, blue]
        # What is behind the last row and column is the screen's, which is black.
        assert seen[: shown[1], shown[0] :].sum() == seen[shown[1] :].sum() == 0
    assert on(screen).sum() == 0


def test_a_window_that_its_user_has_closed_stays_closed(
    screen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", screen)
    from loopscope_video.window import opened

    picture = quarters(200, 100)
    with opened("a test") as window:
        assert window.show(1, picture)
        window._root.focus_force()
        window._root.update()
        window._root.event_generate("<Escape>")
        assert not window.show(2, picture)
        assert on(screen).sum() == 0
        assert not window.show(3, picture)


@pytest.fixture
def environment(tmp_path: Path, screen: str) -> Iterator[dict[str, str]]:
    """A service's, with the screen."""
    path = str(tmp_path / "stm")
    environment = {**os.environ, "LOOPSCOPE_STM": path, "DISPLAY": screen}
    service = subprocess.Popen(
        [BIN / "loopscope", "stm", "serve", "--socket", path], stdout=subprocess.PIPE, text=True
    )
    try:
        assert service.stdout is not None
        assert "serving" in service.stdout.readline()
        yield environment
    finally:
        service.terminate()
        service.communicate(timeout=PATIENCE_S)


def video(
    environment: dict[str, str], *words: str | Path, code: int = 0
) -> subprocess.CompletedProcess[str]:
    command = [BIN / "loopscope-video", *words]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_the_display_shows_the_ball_in_a_window(screen: str, environment: dict[str, str]) -> None:
    words = ["display", "--channel", "frames", "--port", "0", "--window", "true"]
    display = subprocess.Popen(
        [BIN / "loopscope-video", *words], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert display.stdout is not None
    assert "showing at" in display.stdout.readline()
    camera = subprocess.Popen(
        [BIN / "loopscope-video", "camera", "--port", "0", "--duration_s", "4", "--width", "320"]
        + ["--height", "240"],
        env=environment,
    )
    end = time.monotonic() + PATIENCE_S
    # The ball has a radius of 1.5 degrees of 50, in 320 pixels.
    while not 150 < red_on(screen) < 450:
        assert time.monotonic() < end
    assert camera.wait(PATIENCE_S) == 0
    said, _ = display.communicate(timeout=PATIENCE_S)
    assert display.returncode == 0 and re.search(r"display: \d+ pictures", said), said


def red_on(screen: str) -> int:
    """Pixels of the screen that are red as the ball is."""
    pixels = on(screen)
    return int((pixels[:, :, 0] - pixels[:, :, 1:].max(axis=2) > 60).sum())


def test_a_graph_shows_pictures_masks_and_jpegs(
    screen: str, environment: dict[str, str], tmp_path: Path
) -> None:
    nodes: dict[str, dict[str, object]] = {
        "camera": {"kind": "scene", "duration_s": 2, "width": 160},
        "moved": {"kind": "background", "from": "camera"},
        "small": {"kind": "encode", "from": "camera"},
    }
    for source in ("camera", "moved", "small"):
        nodes[f"{source}_shown"] = {"kind": "window", "from": source, "title": source}
    file = tmp_path / "graph.yaml"
    file.write_text(yaml.safe_dump({"nodes": nodes}), encoding="utf-8")
    said = video(environment, "graph", file).stdout
    for source in ("camera", "moved", "small"):
        taken = re.search(rf"{source}_shown: (\d+) in", said)
        assert taken is not None and int(taken[1]) >= 10, said


def test_without_a_screen_and_without_tk_it_says_what_is_missing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    words = ["display", "--port", "0", "--window", "true"]
    for name in ("", ":30000"):
        said = video(environment | {"DISPLAY": name}, *words, code=1).stderr
        assert said.startswith("loopscope-video: display: window: ") and said.count("\n") == 1
        assert "DISPLAY has to name an X server" in said
    (tmp_path / "tkinter.py").write_text("raise ModuleNotFoundError('no Tk', name='_tkinter')")
    said = video(environment | {"PYTHONPATH": str(tmp_path)}, *words, code=1).stderr
    assert said.startswith("loopscope-video: display: window: this Python has no tkinter")
    assert "python3-tk" in said and said.count("\n") == 1


def test_a_picture_of_a_file_is_the_same_in_the_window(
    screen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer's picture, so that red and blue are not changed twice."""
    monkeypatch.setenv("DISPLAY", screen)
    import io

    from loopscope_video.streams import decode
    from loopscope_video.window import opened

    kept = io.BytesIO()
    Image.new("RGB", (64, 64), (250, 100, 20)).save(kept, "JPEG", quality=95)
    with opened("a test") as window:
        picture = decode(memoryview(kept.getvalue()))
        assert picture is not None and window.show(1, picture)
        assert np.abs(on(screen)[:64, :64] - [250, 100, 20]).max() < 8
