"""The display: the newest picture for browsers, as MJPEG over HTTP."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources

from loopscope_trace import event

from loopscope import stm
from loopscope.phase import Session
from loopscope_video.errors import VideoError
from loopscope_video.settings import DisplaySettings
from loopscope_video.streams import channel, is_last

_written = event(
    "display", "written", description="a picture is written to a browser; the id is its number"
)
_BOUNDARY = "picture"
# A browser's thread looks so often whether the display ends, in seconds.
_LOOK_S = 0.5


@dataclass(frozen=True)
class _Shown:
    """A picture, and how old it was when it came here; all in ns."""

    number: int
    jpeg: bytes
    age_ns: int
    age_error_ns: int


class _Board:
    """The newest picture, for those who wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shown: _Shown | None = None
        self._over = False

    def show(self, shown: _Shown) -> None:
        with self._changed:
            self._shown = shown
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def after(self, number: int | None) -> _Shown | None:
        """The newest picture, if it is not the one of this number; waits for it. None: the end."""
        with self._changed:
            while not self._over:
                if self._shown is not None and self._shown.number != number:
                    return self._shown
                self._changed.wait(_LOOK_S)
            return None

    def now(self) -> _Shown | None:
        """The newest picture; None: none has come."""
        with self._changed:
            return self._shown


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], board: _Board) -> None:
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
                "age_ms": shown.age_ns / 1e6,
                "age_error_ms": shown.age_error_ns / 1e6,
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


def run(session: Session, settings: DisplaySettings) -> str:
    """Takes part in the phases, and shows pictures. Returns a text of what it has done."""
    board = _Board()
    done = ""
    try:
        server = _Server((settings.address, settings.port), board)
    except OSError as error:
        raise VideoError(
            f"port: cannot listen at {settings.address or '*'} port {settings.port}: "
            f"{error.strerror}"
        ) from None
    port = server.server_address[1]
    with server, channel(settings.channel, puts=False).input(lossy=True) as into:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            for phase in session:
                if phase.name == "listen":
                    print(f"showing at http://{settings.address or '127.0.0.1'}:{port}", flush=True)
                    phase.publish(port=port)
                elif phase.name == "run":
                    done = _show(settings, into, board)
        finally:
            board.end()
            server.shutdown()
            thread.join()
    return done


def _show(settings: DisplaySettings, into: stm.Input, board: _Board) -> str:
    pictures = 0
    while True:
        try:
            item = into.unseen(timeout=settings.patience_s)
        except stm.NotYet:
            raise VideoError(f"no picture came in {settings.patience_s:g} s") from None
        with item:
            pictures += 1
            last = is_last(item.view)
            board.show(_Shown(item.time, bytes(item.view), item.age_ns, item.age_error_ns))
        if last:
            break
    counts = into.counts()
    return f"{pictures} pictures, {counts.skipped} passed over, {counts.lost} lost"
