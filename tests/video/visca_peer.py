"""A second implementation of VISCA over IP, to test the first one against.

Messages are filled into templates as Sony's manuals print them, in which letters stand for the hex
digits of numbers. It has nothing in common with loopscope_video.visca, and must stay so.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Any, NamedTuple

COMMAND, INQUIRY, REPLY = bytes.fromhex("01 00"), bytes.fromhex("01 10"), bytes.fromhex("01 11")
CONTROL, CONTROL_REPLY = bytes.fromhex("02 00"), bytes.fromhex("02 01")
# In a control command: numbers start again. In a control reply: they do.
RESET = b"\x01"

DRIVES = {
    "up": "81 01 06 01 VV WW 03 01 FF",
    "down": "81 01 06 01 VV WW 03 02 FF",
    "left": "81 01 06 01 VV WW 01 03 FF",
    "right": "81 01 06 01 VV WW 02 03 FF",
    "upleft": "81 01 06 01 VV WW 01 01 FF",
    "upright": "81 01 06 01 VV WW 02 01 FF",
    "downleft": "81 01 06 01 VV WW 01 02 FF",
    "downright": "81 01 06 01 VV WW 02 02 FF",
    "stop": "81 01 06 01 VV WW 03 03 FF",
}
ABSOLUTE_POSITION = "81 01 06 02 VV WW 0Y 0Y 0Y 0Y 0Z 0Z 0Z 0Z FF"
HOME = "81 01 06 04 FF"
ZOOM_DIRECT = "81 01 04 47 0p 0q 0r 0s FF"
PAN_TILT_INQUIRY = "81 09 06 12 FF"
ZOOM_INQUIRY = "81 09 04 47 FF"
COMMANDS = [*DRIVES.values(), ABSOLUTE_POSITION, HOME, ZOOM_DIRECT]

ACK = "90 4y FF"
COMPLETION = "90 5y FF"
ERROR = "90 6y xx FF"
PAN_TILT_ANSWER = "90 50 0w 0w 0w 0w 0z 0z 0z 0z FF"
ZOOM_ANSWER = "90 50 0p 0q 0r 0s FF"
SYNTAX_ERROR = 0x02


class PeerError(ValueError):
    """What the other side sent is not what the manual says."""


class PeerReply(NamedTuple):
    """A reply: its kind, the number of its socket, and its numbers.

    The kind is "ack", "completion", "error" (whose number is the code), "pan-tilt" or "zoom".
    """

    kind: str
    socket: int
    numbers: tuple[int, ...] = ()


def _fill(template: str, **digits: str) -> bytes:
    """The template's bytes, in which a letter's places take its digits, one after the other."""
    left = {letter: list(text) for letter, text in digits.items()}
    text = "".join(left[each].pop(0) if each in left else each for each in template)
    assert not any(left.values()), f"{template}: digits are left over: {left}"
    return bytes.fromhex(text)


def _match(template: str, message: bytes) -> dict[str, str] | None:
    """The digits that a message has in the places of letters, unless it is another message."""
    text = message.hex(" ").upper()
    if len(text) != len(template):
        return None
    found: dict[str, str] = {}
    for place, digit in zip(template, text, strict=True):
        if place in "0123456789ABCDEF ":
            if place != digit:
                return None
        else:
            found[place] = found.get(place, "") + digit
    return found


def _byte(number: int) -> str:
    if not 0 <= number <= 0xFF:
        raise PeerError(f"{number} is no byte")
    return f"{number:02X}"


def _position(number: int) -> str:
    """Four hex digits, in which 8000 to FFFF are negative numbers."""
    if not -32768 <= number <= 32767:
        raise PeerError(f"{number} is no position")
    return f"{number + 65536 if number < 0 else number:04X}"


def _number(digits: str) -> int:
    number = int(digits, 16)
    return number - 65536 if number >= 32768 else number


def _zoom_digits(position: int) -> dict[str, str]:
    if not 0 <= position <= 0xFFFF:
        raise PeerError(f"{position} is no zoom")
    return dict(zip("pqrs", f"{position:04X}", strict=True))


def drive_message(direction: str, pan_speed: int, tilt_speed: int) -> bytes:
    """The command to turn to a direction, such as "upleft", or to "stop"."""
    return _fill(DRIVES[direction], V=_byte(pan_speed), W=_byte(tilt_speed))


def move_message(pan: int, tilt: int, pan_speed: int, tilt_speed: int) -> bytes:
    """The command to turn to a position."""
    speeds = {"V": _byte(pan_speed), "W": _byte(tilt_speed)}
    return _fill(ABSOLUTE_POSITION, **speeds, Y=_position(pan), Z=_position(tilt))


def home_message() -> bytes:
    """The command to turn straight ahead."""
    return _fill(HOME)


def zoom_message(position: int) -> bytes:
    """The command to move the zoom to a position."""
    return _fill(ZOOM_DIRECT, **_zoom_digits(position))


def pan_tilt_question() -> bytes:
    """The inquiry where the head looks."""
    return _fill(PAN_TILT_INQUIRY)


def zoom_question() -> bytes:
    """The inquiry for the zoom's position."""
    return _fill(ZOOM_INQUIRY)


def ack_message(number: int = 1) -> bytes:
    """The reply that a command was accepted in a socket."""
    return _fill(ACK, y=f"{number:X}")


def completion_message(number: int = 1) -> bytes:
    """The reply that the command of a socket was carried out."""
    return _fill(COMPLETION, y=f"{number:X}")


def error_message(code: int, number: int = 0) -> bytes:
    """The reply that a request was refused."""
    return _fill(ERROR, y=f"{number:X}", x=_byte(code))


def pan_tilt_answer(pan: int, tilt: int) -> bytes:
    """The answer where the head looks."""
    return _fill(PAN_TILT_ANSWER, w=_position(pan), z=_position(tilt))


def zoom_answer(position: int) -> bytes:
    """The answer with the zoom's position."""
    return _fill(ZOOM_ANSWER, **_zoom_digits(position))


def parse_reply(message: bytes) -> PeerReply:
    """The reply of a message. Raises PeerError."""
    if (found := _match(ACK, message)) is not None:
        return PeerReply("ack", int(found["y"], 16))
    if (found := _match(COMPLETION, message)) is not None:
        return PeerReply("completion", int(found["y"], 16))
    if (found := _match(ERROR, message)) is not None:
        return PeerReply("error", int(found["y"], 16), (int(found["x"], 16),))
    if (found := _match(PAN_TILT_ANSWER, message)) is not None:
        return PeerReply("pan-tilt", 0, (_number(found["w"]), _number(found["z"])))
    if (found := _match(ZOOM_ANSWER, message)) is not None:
        return PeerReply("zoom", 0, (int("".join(found[each] for each in "pqrs"), 16),))
    raise PeerError(f"no reply of the manual: {message.hex(' ')}")


def packet(kind: bytes, sequence: int, payload: bytes) -> bytes:
    """The bytes of a datagram."""
    return kind + len(payload).to_bytes(2, "big") + sequence.to_bytes(4, "big") + payload


def parse_packet(data: bytes) -> tuple[bytes, int, bytes]:
    """The type, the sequence number and the payload of a datagram. Raises PeerError."""
    kind, length, sequence, payload = data[:2], data[2:4], data[4:8], data[8:]
    if not 1 <= len(payload) <= 16 or int.from_bytes(length, "big") != len(payload):
        raise PeerError(f"no header, or not the length that it says: {data.hex(' ')}")
    return kind, int.from_bytes(sequence, "big"), payload


def _bare_socket(address: str, port: int) -> tuple[socket.socket, Any]:
    """A UDP socket for an address's family, and the address as that family writes it."""
    found = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    family, kind, protocol, _name, where = found[0]
    return socket.socket(family, kind, protocol), where


class PeerController:
    """A controller of the head at an IPv4 or IPv6 address, which waits for every reply.

    Raises PeerError if a reply is not what the manual says, and TimeoutError if it does not come.
    """

    def __init__(self, address: str, port: int) -> None:
        self.sequence = 0
        """The number of the next message. A test may set it."""
        self._socket, where = _bare_socket(address, port)
        self._socket.settimeout(5)
        # Then only this address's datagrams arrive.
        self._socket.connect(where)

    def __enter__(self) -> PeerController:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, kind: bytes, payload: bytes) -> int:
        """Sends a message, and returns its sequence number."""
        sequence = self.sequence
        self._socket.send(packet(kind, sequence, payload))
        self.sequence = (sequence + 1) % (1 << 32)
        return sequence

    def send_bytes(self, data: bytes) -> None:
        """Sends a datagram as it is, such as one that no head should take."""
        self._socket.send(data)

    def receive(self, kind: bytes, sequence: int) -> bytes:
        """The payload of the next datagram, after a check of its type and sequence number."""
        data = self._socket.recv(65536)
        found_kind, found_sequence, payload = parse_packet(data)
        if (found_kind, found_sequence) != (kind, sequence):
            raise PeerError(
                f"a datagram of type {found_kind.hex()} and number {found_sequence},"
                f" instead of type {kind.hex()} and number {sequence}"
            )
        return payload

    def drive(self, direction: str, pan_speed: int, tilt_speed: int) -> tuple[PeerReply, PeerReply]:
        """Turns to a direction, or stops, and returns the ACK and the completion."""
        return self.command(drive_message(direction, pan_speed, tilt_speed))

    def move_to(
        self, pan: int, tilt: int, pan_speed: int = 0x18, tilt_speed: int = 0x14
    ) -> tuple[PeerReply, PeerReply]:
        """Turns to a position, and returns the ACK and the completion."""
        return self.command(move_message(pan, tilt, pan_speed, tilt_speed))

    def home(self) -> tuple[PeerReply, PeerReply]:
        """Turns straight ahead, and returns the ACK and the completion."""
        return self.command(home_message())

    def zoom_to(self, position: int) -> tuple[PeerReply, PeerReply]:
        """Moves the zoom, and returns the ACK and the completion."""
        return self.command(zoom_message(position))

    def pan_tilt(self) -> tuple[int, int]:
        """Where the head says that it looks."""
        pan, tilt = self._ask(pan_tilt_question(), "pan-tilt")
        return pan, tilt

    def zoom(self) -> int:
        """The position at which the head says that its zoom is."""
        (position,) = self._ask(zoom_question(), "zoom")
        return position

    def reset_sequence(self) -> None:
        """Makes numbers start again at the head, and here: the next message has number 1."""
        # A head ignores this message's own number. Whether it repeats the number or starts again
        # first, its reply has number 0.
        self.sequence = 0
        payload = self.receive(CONTROL_REPLY, self.send(CONTROL, RESET))
        if payload != RESET:
            raise PeerError(f"a control reply of {payload.hex(' ')}")

    def command(self, message: bytes) -> tuple[PeerReply, PeerReply]:
        """Sends a command, and returns the ACK and the completion."""
        sequence = self.send(COMMAND, message)
        ack = parse_reply(self.receive(REPLY, sequence))
        if ack.kind != "ack":
            raise PeerError(f"{ack}, instead of an ACK")
        completion = parse_reply(self.receive(REPLY, sequence))
        if completion != PeerReply("completion", ack.socket):
            raise PeerError(f"{completion}, instead of the completion of {ack}")
        return ack, completion

    def _ask(self, message: bytes, kind: str) -> tuple[int, ...]:
        reply = parse_reply(self.receive(REPLY, self.send(INQUIRY, message)))
        if reply.kind != kind:
            raise PeerError(f"{reply}, instead of an answer of kind {kind}")
        return reply.numbers


class PeerHead:
    """A head that moves at once, but always says that it is at the same position.

    A message that it does not know, or whose header has another message's type, is answered by a
    syntax error. A datagram with a wrong header gets no reply.
    """

    def __init__(
        self, pan: int = 0, tilt: int = 0, zoom: int = 0, address: str = "127.0.0.1"
    ) -> None:
        self.pan, self.tilt, self.zoom = pan, tilt, zoom
        self.received: list[tuple[int, bytes]] = []
        """The sequence number and payload of each message, in order."""
        self.rejected: list[bytes] = []
        """Datagrams with wrong headers, and messages that were answered by an error."""
        self._socket, where = _bare_socket(address, 0)
        self._socket.bind(where)
        self.port: int = self._socket.getsockname()[1]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="peer head", daemon=True)

    def __enter__(self) -> PeerHead:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.set()
        # The thread wakes up.
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            data, sender = self._socket.recvfrom(65536)
            if self._ends.is_set():
                return
            try:
                kind, sequence, payload = parse_packet(data)
            except PeerError:
                self.rejected.append(data)
                continue
            self.received.append((sequence, payload))
            answer_kind = CONTROL_REPLY if kind == CONTROL else REPLY
            for each in self._answers(kind, payload):
                self._socket.sendto(packet(answer_kind, sequence, each), sender)

    def _answers(self, kind: bytes, payload: bytes) -> list[bytes]:
        if kind == CONTROL and payload == RESET:
            return [RESET]
        if kind == COMMAND and any(_match(each, payload) is not None for each in COMMANDS):
            return [ack_message(), completion_message()]
        if kind == INQUIRY and payload == pan_tilt_question():
            return [pan_tilt_answer(self.pan, self.tilt)]
        if kind == INQUIRY and payload == zoom_question():
            return [zoom_answer(self.zoom)]
        self.rejected.append(payload)
        return [] if kind == CONTROL else [error_message(SYNTAX_ERROR)]
