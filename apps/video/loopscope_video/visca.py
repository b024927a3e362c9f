"""VISCA over IP: messages between a controller and a pan-tilt-zoom head, as bytes.

A datagram has a header (type, length, sequence number) and a VISCA message, which ends with FF. The
messages are those of Sony's technical manuals of the EVI and SRG series: commands, which the head
acknowledges and completes, and inquiries, which it answers. Numbers are those of the protocol:
levels of speed from -24 to 24 (tilt: 23), and positions as 16-bit numbers.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

PORT = 52381
"""UDP port of heads."""
MOST_PAN, MOST_TILT = 24, 23
"""The highest levels of speed."""
UNITS_PER_DEGREE = 51.2
"""Steps of a position, as in Sony's SRG series: 170 degrees are 2200 hex."""
MOST_ZOOM = 0x4000
"""The position of the zoom at which the lens magnifies most."""

_HEADER = struct.Struct(">HHI")
_MOST_PAYLOAD = 16
# The controller is number 0, and a head behind IP number 1.
_TO_HEAD, _FROM_HEAD, _END = 0x81, 0x90, 0xFF
# Codes of directions: negative, none, positive.
_PAN_CODES = {-1: 1, 0: 3, 1: 2}
_TILT_CODES = {-1: 2, 0: 3, 1: 1}


class ViscaError(ValueError):
    """Bytes that are no message of this protocol, or a message that cannot be sent."""


class Kind(enum.IntEnum):
    """The type of a datagram."""

    COMMAND = 0x0100
    INQUIRY = 0x0110
    REPLY = 0x0111
    CONTROL = 0x0200
    CONTROL_REPLY = 0x0201


@dataclass(frozen=True)
class Datagram:
    """A datagram: its type, its sequence number, which an answer repeats, and a message's bytes."""

    kind: Kind
    sequence: int
    payload: bytes

    def pack(self) -> bytes:
        """The datagram's bytes."""
        return _HEADER.pack(self.kind, len(self.payload), self.sequence & 0xFFFFFFFF) + self.payload

    @staticmethod
    def unpack(data: bytes) -> Datagram:
        """The datagram of these bytes. Raises ViscaError."""
        if len(data) < _HEADER.size:
            raise ViscaError(f"a datagram of {len(data)} bytes, shorter than VISCA's header of 8")
        kind, length, sequence = _HEADER.unpack_from(data)
        payload = data[_HEADER.size :]
        if not 1 <= len(payload) <= _MOST_PAYLOAD:
            raise ViscaError(f"a message of {len(payload)} bytes, not of 1 to {_MOST_PAYLOAD}")
        if len(payload) != length:
            raise ViscaError(f"a message of {len(payload)} bytes, not {length} as its header says")
        try:
            return Datagram(Kind(kind), sequence, payload)
        except ValueError:
            raise ViscaError(f"a datagram of the unknown type {kind:04x}") from None


@dataclass(frozen=True)
class DriveLevels:
    """Turn to the right and up at these levels of speed, until told otherwise."""

    pan: int
    tilt: int


@dataclass(frozen=True)
class MoveToUnits:
    """Turn to a position, at these levels of speed."""

    pan: int
    tilt: int
    pan_speed: int = MOST_PAN
    tilt_speed: int = MOST_TILT


@dataclass(frozen=True)
class MoveHome:
    """Turn straight ahead."""


@dataclass(frozen=True)
class ZoomTo:
    """Move the zoom to a position, from 0 to MOST_ZOOM."""

    position: int


@dataclass(frozen=True)
class AskPanTilt:
    """Ask where the head looks."""


@dataclass(frozen=True)
class AskZoom:
    """Ask for the position of the zoom."""


Command = DriveLevels | MoveToUnits | MoveHome | ZoomTo
Request = Command | AskPanTilt | AskZoom


@dataclass(frozen=True)
class Acknowledged:
    """A command was accepted."""


@dataclass(frozen=True)
class Completed:
    """A command was carried out."""


@dataclass(frozen=True)
class PanTiltIs:
    """Where the head looks."""

    pan: int
    tilt: int


@dataclass(frozen=True)
class ZoomIs:
    """The position of the zoom."""

    position: int


class Refusal(enum.IntEnum):
    """Why a request was refused."""

    LENGTH = 0x01
    SYNTAX = 0x02
    FULL = 0x03
    CANCELLED = 0x04
    NO_SOCKET = 0x05
    NOT_NOW = 0x41


@dataclass(frozen=True)
class Refused:
    """A request was refused."""

    why: Refusal


Reply = Acknowledged | Completed | PanTiltIs | ZoomIs | Refused


def request_bytes(request: Request) -> bytes:
    """A request's message. Raises ViscaError for numbers that it cannot hold."""
    match request:
        case DriveLevels(pan, tilt):
            # A level is sent for a motor that stands still, too.
            least = (max(1, level) for level in _levels(abs(pan), abs(tilt)))
            codes = _PAN_CODES[_sign(pan)], _TILT_CODES[_sign(tilt)]
            body = bytes([0x01, 0x06, 0x01, *least, *codes])
        case MoveToUnits(pan, tilt, pan_speed, tilt_speed):
            levels = _levels(pan_speed, tilt_speed)
            body = bytes([0x01, 0x06, 0x02, *levels, *_nibbles(pan), *_nibbles(tilt)])
        case MoveHome():
            body = b"\x01\x06\x04"
        case ZoomTo(position):
            body = bytes([0x01, 0x04, 0x47, *_nibbles(_zoom(position))])
        case AskPanTilt():
            body = b"\x09\x06\x12"
        case AskZoom():
            body = b"\x09\x04\x47"
    return bytes([_TO_HEAD]) + body + bytes([_END])


def read_request(message: bytes) -> Request:
    """The request of a message. Raises ViscaError."""
    body = _body(message, _TO_HEAD)
    head, rest = body[:3], body[3:]
    if head == b"\x01\x06\x01" and len(rest) == 4:
        pan_level, tilt_level, pan_code, tilt_code = rest
        pan, tilt = _direction(_PAN_CODES, pan_code), _direction(_TILT_CODES, tilt_code)
        pan_level, tilt_level = _levels(pan_level, tilt_level)
        return DriveLevels(pan * pan_level, tilt * tilt_level)
    if head == b"\x01\x06\x02" and len(rest) == 10:
        pan_speed, tilt_speed = _levels(rest[0], rest[1])
        return MoveToUnits(_signed(rest[2:6]), _signed(rest[6:]), pan_speed, tilt_speed)
    if head == b"\x01\x04\x47" and len(rest) == 4:
        return ZoomTo(_zoom(_unsigned(rest)))
    alone: dict[bytes, Request] = {
        b"\x01\x06\x04": MoveHome(),
        b"\x09\x06\x12": AskPanTilt(),
        b"\x09\x04\x47": AskZoom(),
    }
    if body in alone:
        return alone[body]
    raise ViscaError(f"no request that is known: {message.hex(' ')}")


def reply_bytes(reply: Reply) -> bytes:
    """A reply's message. Raises ViscaError for numbers that it cannot hold."""
    match reply:
        case Acknowledged():
            body = b"\x41"
        case Completed():
            body = b"\x51"
        case PanTiltIs(pan, tilt):
            body = bytes([0x50, *_nibbles(pan), *_nibbles(tilt)])
        case ZoomIs(position):
            body = bytes([0x50, *_nibbles(_zoom(position))])
        case Refused(why):
            body = bytes([0x60, why])
    return bytes([_FROM_HEAD]) + body + bytes([_END])


def read_reply(message: bytes) -> Reply:
    """The reply of a message. Raises ViscaError."""
    body = _body(message, _FROM_HEAD)
    first, rest = body[:1], body[1:]
    if not first:
        raise ViscaError("a reply without content")
    kind = first[0] & 0xF0
    if kind == 0x40 and not rest:
        return Acknowledged()
    if kind == 0x50 and not rest:
        return Completed()
    if first == b"\x50" and len(rest) == 8:
        return PanTiltIs(_signed(rest[:4]), _signed(rest[4:]))
    if first == b"\x50" and len(rest) == 4:
        return ZoomIs(_zoom(_unsigned(rest)))
    if kind == 0x60 and len(rest) == 1 and rest[0] in set(Refusal):
        return Refused(Refusal(rest[0]))
    raise ViscaError(f"no reply that is known: {message.hex(' ')}")


def _body(message: bytes, first: int) -> bytes:
    """What is between a message's address and its end."""
    if len(message) < 3 or message[0] != first or message[-1] != _END:
        raise ViscaError(
            f"no message from {first:02x} to its end at ff: {message[:32].hex(' ') or 'nothing'}"
        )
    return message[1:-1]


def _levels(pan: int, tilt: int) -> tuple[int, int]:
    """The levels of two speeds. Raises ViscaError where there is no such one."""
    for what, level, most in (("pan", pan, MOST_PAN), ("tilt", tilt, MOST_TILT)):
        if not 0 <= level <= most:
            raise ViscaError(f"a speed of {level} for {what}, which is not from 0 to {most}")
    return pan, tilt


def _zoom(position: int) -> int:
    if not 0 <= position <= MOST_ZOOM:
        raise ViscaError(f"a zoom of {position}, which is not from 0 to {MOST_ZOOM}")
    return position


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _direction(codes: dict[int, int], code: int) -> int:
    for sign, each in codes.items():
        if each == code:
            return sign
    raise ViscaError(f"a direction of {code}, which is not 1, 2 or 3")


def _nibbles(number: int) -> bytes:
    """A number of 16 bits as four bytes of 4 bits."""
    if not -0x8000 <= number <= 0x7FFF:
        raise ViscaError(f"a position of {number}, which has more than 16 bits")
    return bytes(number >> shift & 0xF for shift in (12, 8, 4, 0))


def _unsigned(nibbles: bytes) -> int:
    if any(each > 0xF for each in nibbles):
        raise ViscaError(f"a number with more than 4 bits in a byte: {nibbles.hex(' ')}")
    number = 0
    for each in nibbles:
        number = number << 4 | each
    return number


def _signed(nibbles: bytes) -> int:
    number = _unsigned(nibbles)
    return number - 0x10000 if number & 0x8000 else number
