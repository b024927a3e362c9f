"""The command line: one program for each part of the loop, and one for graphs of nodes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import BaseModel

from loopscope_video import settings
from loopscope_video.errors import SettingsError, VideoError, nearest

_EXTRA = "OpenCV is missing; install it with: pip install opencv-python-headless"


def _camera(config: dict[str, Any]) -> Callable[[Any], str]:
    from loopscope_video import camera

    read = settings.read(settings.CameraSettings, config)
    return lambda session: camera.run(session, read)


def _tracker(config: dict[str, Any]) -> Callable[[Any], str]:
    from loopscope_video import follow

    read = settings.read(settings.TrackerSettings, config)
    return lambda session: follow.run(session, read)


def _display(config: dict[str, Any]) -> Callable[[Any], str]:
    from loopscope_video import display

    read = settings.read(settings.DisplaySettings, config)
    return lambda session: display.run(session, read)


def _graph(file: str, config: dict[str, Any]) -> Callable[[Any], str]:
    from loopscope_video.graph import Graph
    from loopscope_video.runner import Runner

    read = settings.read(settings.GraphSettings, config)
    graph = Graph.load(Path(file), read.set)
    names = read.nodes.split(",") if read.nodes else None
    chosen = graph.chosen(names)

    def run(session: Any) -> str:
        with ExitStack() as stack:
            for phase in session:
                if phase.name == "connect":
                    runner = stack.enter_context(Runner(graph, names, patience_s=read.patience_s))
                elif phase.name == "run":
                    runner.run()
        return "\n".join(f"{node.name}: {runner.counts[node.name].text()}" for node in chosen)

    return run


# Each program's phases, what makes it, and its settings.
_PROGRAMS: dict[
    str, tuple[list[str], Callable[[dict[str, Any]], Callable[[Any], str]], type[BaseModel]]
] = {
    "camera": (["listen", "run"], _camera, settings.CameraSettings),
    "tracker": (["connect", "run"], _tracker, settings.TrackerSettings),
    "display": (["listen", "run"], _display, settings.DisplaySettings),
}
_GRAPH = "graph"
_USAGE = """loopscope-video: a camera on a pan-tilt-zoom head, a tracker that turns it, a display

  loopscope-video camera  [--SETTING VALUE ...]   pictures of a scene or a clip, and the head
  loopscope-video tracker [--SETTING VALUE ...]   finds the ball, and turns the head after it
  loopscope-video display [--SETTING VALUE ...]   shows pictures to browsers, and in a window
  loopscope-video graph FILE [--SETTING VALUE ...]   runs nodes of a graph as threads
  loopscope-video predict [--SETTING VALUE ...]   which network delay the loop endures; --json

They find each other's pictures by the service of `loopscope stm serve`, or by the experiment that
they are components of. `loopscope-video PROGRAM --help` lists a program's settings.
"""


def main() -> None:
    """Runs the program that the command line names. Exits 1 where it fails, 2 for a mistake."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h"):
        print(_USAGE, end="")
        return
    models = {key: model for key, (_, _, model) in _PROGRAMS.items()}
    models |= {_GRAPH: settings.GraphSettings, "predict": settings.PredictSettings}
    if name not in models:
        _fail(f"no program {name!r}; {nearest(name, models)}", 2)
    if {"--help", "-h"} & set(arguments):
        print(f"loopscope-video {name}: {(models[name].__doc__ or '').rstrip('.')}\n")
        print(settings.describe(models[name]))
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        _predict(arguments) if name == "predict" else _run(name, arguments)
    except SettingsError as error:
        _fail("\n".join(f"{name}: {line}" for line in str(error).splitlines()), 2)


def _run(name: str, arguments: list[str]) -> None:
    from loopscope import stm
    from loopscope.phase import PhaseError, Session

    phases: list[str]
    make: Callable[[dict[str, Any]], Callable[[Any], str]]
    if name == _GRAPH:
        if not arguments or arguments[0].startswith("--"):
            _fail("graph: name the file of the graph first, such as graph.yaml", 2)
        file, *arguments = arguments
        phases, make = ["connect", "run"], partial(_graph, file)
    else:
        phases, make, _ = _PROGRAMS[name]
    made: list[Callable[[Any], str]] = []
    try:
        with Session(
            phases, arguments, lambda session: made.append(make(session.config))
        ) as session:
            told = made[0](session)
            print("\n".join(f"{name}: {line}" for line in told.splitlines()), flush=True)
    except ModuleNotFoundError as error:
        if error.name != "cv2":
            raise
        _fail(f"{name}: {_EXTRA}", 1)
    except PhaseError as error:
        # Without an agent there is no dialogue that could fail: the command line is wrong.
        _fail(f"{name}: {error}", 1 if "LOOPSCOPE_PHASE_FD" in os.environ else 2)
    except (VideoError, stm.StmError, OSError) as error:
        _fail(f"{name}: {error}", 1)


def _predict(arguments: list[str]) -> None:
    import json

    from loopscope.phase import PhaseError, Session
    from loopscope_video.predict import predict

    as_json = "--json" in arguments
    try:
        session = Session([], [word for word in arguments if word != "--json"])
    except PhaseError as error:
        _fail(f"predict: {error}", 2)
    found = predict(settings.read(settings.PredictSettings, session.config))
    if as_json:
        print(json.dumps(asdict(found)))
        return
    print(f"head: time constant {found.lag_s * 1e3:.1f} ms, {found.latency_s * 1e3:.1f} ms late")
    print(f"loop: stable with less than {found.loop_s * 1e3:.0f} ms of delay in all")
    if found.network_s <= 0:
        print("network: there is no delay with which it is stable")
    else:
        print(f"network: less than {found.network_s * 1e3:.0f} ms in each direction")


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _fail(text: str, code: int) -> None:
    print(f"loopscope-video: {text}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
