"""The display: the newest picture for browsers, as MJPEG over HTTP, and in a window."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources

from loopscope_trace import event

from loopscope import stm
from loopscope.phase import Session
from loopscope_video.errors import VideoError
from loopscope_video.settings import DisplaySettings
from loopscope_video.streams import channel, decode, is_last
from loopscope_video.window import Window, opened

_written = event(
    "display", "written", description="a picture is written to a browser; the id is its number"
)
_BOUNDARY = "picture"
# A browser's thread looks so often whether the display ends, in seconds.
_LOOK_S = 0.5


@dataclass(frozen=True)
class Shown:
    """A picture, and how old it was when it came here, where that is known; in ns."""

    number: int
    jpeg: bytes
    age_ns: int | None = None
    age_error_ns: int | None = None


class Board:
    """The newest picture, for those who wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shown: Shown | None = None
        self._over = False

    def show(self, shown: Shown) -> None:
        """Has a picture be the newest."""
        with self._changed:
            self._shown = shown
            self._changed.notify_all()

    def end(self) -> None:
        """Lets nobody wait any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def after(self, number: int | None) -> Shown | None:
        """The newest picture, if it is not the one of this number; waits for it. None: the end."""
        with self._changed:
            while not self._over:
                if self._shown is not None and self._shown.number != number:
                    return self._shown
                self._changed.wait(_LOOK_S)
            return None

    def now(self) -> Shown | None:
        """The newest picture; None: none has come."""
        with self._changed:
            return self._shown


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], board: Board) -> None:
        self.board = board
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answers a browser's request."""
        pages = {
            "/": self._page,
            "/stream": self._stream,
            "/picture.jpg": self._picture,
            "/newest.json": self._newest,
        }
        page = pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND, f"there are {', '.join(pages)}")
            return
        with suppress(ConnectionError):  # the browser has gone
            page()

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing: each browser asks for the numbers several times a second."""

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def _page(self) -> None:
        page = resources.files("loopscope_video").joinpath("display.html").read_bytes()
        self._send("text/html; charset=utf-8", page)

    def _picture(self) -> None:
        shown = self.server.board.now()
        if shown is None:
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "no picture has come yet")
            return
        self._send("image/jpeg", shown.jpeg)

    def _newest(self) -> None:
        shown = self.server.board.now()
        newest = None
        if shown is not None:
            newest = {
                "number": shown.number,
                "age_ms": _ms(shown.age_ns),
                "age_error_ms": _ms(shown.age_error_ns),
            }
        self._send("application/json", json.dumps(newest).encode())

    def _stream(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={_BOUNDARY}")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        number: int | None = None
        while (shown := self.server.board.after(number)) is not None:
            number = shown.number
            head = f"--{_BOUNDARY}\r\nContent-Type: image/jpeg\r\n"
            head += f"Content-Length: {len(shown.jpeg)}\r\n\r\n"
            self.wfile.write(head.encode() + shown.jpeg + b"\r\n")
            _written(number)


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6


@contextmanager
def showing(board: Board, address: str, port: int) -> Iterator[int]:
    """Shows a board's pictures to browsers; the TCP port of the page. Raises VideoError."""
    try:
        server = _Server((address, port), board)
    except OSError as error:
        raise VideoError(
            f"port: cannot listen at {address or '*'} port {port}: {error.strerror}"
        ) from None
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        number: int = server.server_address[1]
        print(f"showing at http://{address or '127.0.0.1'}:{number}", flush=True)
        try:
            yield number
        finally:
            board.end()
            server.shutdown()
            thread.join()


def run(session: Session, settings: DisplaySettings) -> str:
    """Takes part in the phases, and shows pictures. Returns a text of what it has done."""
    board = Board()
    done = ""
    with (
        opened(settings.channel) if settings.window else nullcontext() as window,
        showing(board, settings.address, settings.port) as port,
        channel(settings.channel, puts=False).input(lossy=True) as into,
    ):
        for phase in session:
            if phase.name == "listen":
                phase.publish(port=port)
            elif phase.name == "run":
                done = _show(settings, into, board, window)
    return done


def _show(settings: DisplaySettings, into: stm.Input, board: Board, window: Window | None) -> str:
    pictures = 0
    while True:
        try:
            item = into.unseen(timeout=settings.patience_s)
        except stm.NotYet:
            raise VideoError(f"no picture came in {settings.patience_s:g} s") from None
        with item:
            pictures += 1
            last = is_last(item.view)
            shown = Shown(item.time, bytes(item.view), item.age_ns, item.age_error_ns)
            board.show(shown)
        # Closing the window ends the window alone.
        if window is not None and not _drawn(window, settings.channel, shown):
            window = None
        if last:
            break
    counts = into.counts()
    return f"{pictures} pictures, {counts.skipped} passed over, {counts.lost} lost"


def _drawn(window: Window, channel: str, shown: Shown) -> bool:
    """Shows a picture in a window. False: the window is closed."""
    picture = decode(memoryview(shown.jpeg))
    age = "" if shown.age_ns is None else f", {shown.age_ns / 1e6:.1f} ms old when it came"
    title = f"{channel}: picture {shown.number}{age}"
    return picture is None or window.show(shown.number, picture, title)
