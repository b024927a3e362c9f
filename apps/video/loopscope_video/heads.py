"""Heads over the network: a server for a simulated head, and a controller of any head, by VISCA."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from loopscope_video.head import Drive, Head, MoveTo, Order, Pose, Zoom
from loopscope_video.visca import (
    MOST_PAN,
    MOST_TILT,
    MOST_ZOOM,
    UNITS_PER_DEGREE,
    Acknowledged,
    AskPanTilt,
    AskZoom,
    Completed,
    Datagram,
    DriveLevels,
    Kind,
    MoveHome,
    MoveToUnits,
    PanTiltIs,
    Refusal,
    Refused,
    Reply,
    Request,
    ViscaError,
    ZoomIs,
    ZoomTo,
    read_reply,
    read_request,
    reply_bytes,
    request_bytes,
)

# A datagram of VISCA has at most 8 + 16 bytes.
_MOST_BYTES = 64
_RESET, _RESET_DONE = b"\x01", b"\x01"
# Time between two looks whether the server is to end, in seconds.
_LOOK_S = 0.1


class HeadServer:
    """A simulated head that obeys all who send it VISCA, in a thread of its own."""

    def __init__(
        self,
        head: Head,
        clock: Callable[[], float],
        *,
        port: int = 0,
        ordered: Callable[[int, Order], object] = lambda sequence, order: None,
    ) -> None:
        """Listens at a UDP port, of IPv6 and IPv4 where there are both; 0: at any.

        `clock`: the head's time in seconds. `ordered`: called at each order's arrival with its
        sequence number. Raises OSError.
        """
        self._head = head
        self._clock = clock
        self._ordered = ordered
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._socket = _listen(port)
        self._socket.settimeout(_LOOK_S)
        self.refused = 0
        """Datagrams that were no request that is known."""
        self._thread = threading.Thread(target=self._serve, name="head", daemon=True)

    @property
    def port(self) -> int:
        """The UDP port."""
        port: int = self._socket.getsockname()[1]
        return port

    def __enter__(self) -> HeadServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._socket.close()

    def at(self, now_s: float) -> Pose:
        """Where the head looks at an instant of its clock."""
        with self._lock:
            return self._head.at(now_s)

    def _serve(self) -> None:
        while not self._ending.is_set():
            try:
                data, sender = self._socket.recvfrom(_MOST_BYTES)
            except TimeoutError:
                continue
            except ConnectionError:
                continue  # an earlier answer could not be delivered
            for answer in self._answers(data):
                try:
                    self._socket.sendto(answer, sender)
                except OSError:
                    break  # there is no way back, and the sender will see no answer

    def _answers(self, data: bytes) -> list[bytes]:
        try:
            asked = Datagram.unpack(data)
        except ViscaError:
            self.refused += 1
            return []
        if asked.kind is Kind.CONTROL and asked.payload == _RESET:
            return [Datagram(Kind.CONTROL_REPLY, asked.sequence, _RESET_DONE).pack()]
        try:
            replies = self._obey(asked.sequence, read_request(asked.payload))
        except ViscaError:
            self.refused += 1
            replies = [Refused(Refusal.SYNTAX)]
        return [
            Datagram(Kind.REPLY, asked.sequence, reply_bytes(reply)).pack() for reply in replies
        ]

    def _obey(self, sequence: int, request: Request) -> list[Reply]:
        if isinstance(request, AskPanTilt | AskZoom):
            pose = self.at(self._clock())
            if isinstance(request, AskZoom):
                return [ZoomIs(self._zoom_units(pose.zoom))]
            return [PanTiltIs(_units(pose.pan), _units(pose.tilt))]
        order = self._order(request)
        with self._lock:
            # The clock is read under the lock, so that orders come in the order of their instants.
            self._head.order(self._clock(), order)
        self._ordered(sequence, order)
        return [Acknowledged(), Completed()]

    def _order(self, request: DriveLevels | MoveToUnits | MoveHome | ZoomTo) -> Order:
        able = self._head.abilities
        pan_step, tilt_step = able.pan.max_speed / MOST_PAN, able.tilt.max_speed / MOST_TILT
        match request:
            case DriveLevels(pan, tilt):
                return Drive(pan * pan_step, tilt * tilt_step)
            case MoveToUnits(pan, tilt, pan_speed, tilt_speed):
                degrees = pan / UNITS_PER_DEGREE, tilt / UNITS_PER_DEGREE
                return MoveTo(*degrees, pan_speed * pan_step, tilt_speed * tilt_step)
            case MoveHome():
                return MoveTo(0.0, 0.0)
            case ZoomTo(position):
                zoom = able.zoom
                return Zoom(zoom.lowest + (zoom.highest - zoom.lowest) * position / MOST_ZOOM)

    def _zoom_units(self, factor: float) -> int:
        zoom = self._head.abilities.zoom
        return round((factor - zoom.lowest) / (zoom.highest - zoom.lowest) * MOST_ZOOM)


@dataclass
class Answers:
    """What a head has said to the requests of a controller."""

    sent: int = 0
    acknowledged: int = 0
    completed: int = 0
    refused: int = 0
    not_understood: int = 0
    undeliverable: int = 0
    """Times that the network said that nobody listens there."""


class Controller:
    """Steers a head by VISCA over IP, and never waits for it: what it answers is counted."""

    def __init__(self, address: str, port: int, speeds: tuple[float, float]) -> None:
        """`speeds`: degrees per second of pan and tilt at the highest level. Raises OSError."""
        found = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, to = found[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.connect(to)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        self._speeds = speeds
        self._sequence = 0
        self._last_completed = -1
        self.answers = Answers()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        self.collect()
        self._socket.close()

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next command."""
        return self._sequence

    @property
    def is_obeyed(self) -> bool:
        """Whether the head has completed the last command."""
        return self._last_completed == self._sequence - 1

    def drive(self, drive: Drive) -> None:
        """Sends speeds, as the nearest levels that the protocol has."""
        pan, tilt = self._speeds
        levels = DriveLevels(_level(drive.pan, pan, MOST_PAN), _level(drive.tilt, tilt, MOST_TILT))
        message = request_bytes(levels)
        datagram = Datagram(Kind.COMMAND, self._sequence, message).pack()
        self._sequence += 1
        self.answers.sent += 1
        self.collect()
        try:
            self._socket.send(datagram)
        except ConnectionError:
            self.answers.undeliverable += 1

    def collect(self) -> None:
        """Counts the answers that have come."""
        while True:
            try:
                data = self._socket.recv(_MOST_BYTES)
            except BlockingIOError:
                return
            except ConnectionError:
                self.answers.undeliverable += 1
                continue
            try:
                datagram = Datagram.unpack(data)
                reply = read_reply(datagram.payload)
            except ViscaError:
                self.answers.not_understood += 1
                continue
            if isinstance(reply, Acknowledged):
                self.answers.acknowledged += 1
            elif isinstance(reply, Completed):
                self.answers.completed += 1
                self._last_completed = max(self._last_completed, datagram.sequence)
            elif isinstance(reply, Refused):
                self.answers.refused += 1


def _level(speed: float, highest: float, most: int) -> int:
    """The level of speed that is nearest; `most` is that of the highest speed."""
    return round(min(max(speed / highest, -1), 1) * most)


def _units(degrees: float) -> int:
    return math.floor(degrees * UNITS_PER_DEGREE + 0.5)


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            listening = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        except OSError:
            pass  # the kernel has none
        else:
            try:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                listening.bind(("::", port))
            except OSError:
                listening.close()
                raise
            return listening
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        listening.bind(("", port))
    except OSError:
        listening.close()
        raise
    return listening
