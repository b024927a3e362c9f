"""VISCA messages of loopscope_video against those of a second implementation, visca_peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import visca_peer as peer
from effort import cases
from hypothesis import example, given, settings
from hypothesis import strategies as st
from loopscope_video.visca import (
    MOST_PAN,
    MOST_TILT,
    MOST_ZOOM,
    PORT,
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

pytestmark = pytest.mark.full

# To the right and up.
SIGNS = {
    "up": (0, 1),
    "down": (0, -1),
    "left": (-1, 0),
    "right": (1, 0),
    "upleft": (-1, 1),
    "upright": (1, 1),
    "downleft": (-1, -1),
    "downright": (1, -1),
    "stop": (0, 0),
}
KINDS = {
    Kind.COMMAND: peer.COMMAND,
    Kind.INQUIRY: peer.INQUIRY,
    Kind.REPLY: peer.REPLY,
    Kind.CONTROL: peer.CONTROL,
    Kind.CONTROL_REPLY: peer.CONTROL_REPLY,
}
REFUSALS = {
    Refusal.LENGTH: 0x01,
    Refusal.SYNTAX: 0x02,
    Refusal.FULL: 0x03,
    Refusal.CANCELLED: 0x04,
    Refusal.NO_SOCKET: 0x05,
    Refusal.NOT_NOW: 0x41,
}
# The type of device settings, which the manual has and loopscope_video does without.
SETTINGS = bytes.fromhex("01 20")

REQUESTS = [
    *(peer.drive_message(each, 7, 9) for each in SIGNS),
    peer.move_message(-8704, 1234, 1, 23),
    peer.home_message(),
    peer.zoom_message(0x1234),
    peer.pan_tilt_question(),
    peer.zoom_question(),
]
REPLIES = [
    peer.ack_message(1),
    peer.ack_message(2),
    peer.completion_message(1),
    peer.completion_message(2),
    *(peer.error_message(each) for each in REFUSALS.values()),
    peer.pan_tilt_answer(-8704, 1234),
    peer.zoom_answer(0x1234),
]

directions = st.sampled_from(sorted(SIGNS))
pan_speeds, tilt_speeds = st.integers(1, 24), st.integers(1, 23)
positions = st.integers(-32768, 32767)
zooms = st.integers(0, 0x4000)
no_positions = st.one_of(st.integers(max_value=-32769), st.integers(min_value=32768))
no_speeds = st.one_of(st.integers(max_value=-1), st.integers(min_value=25))
sequences = st.integers(0, 0xFFFFFFFF)
payloads = st.binary(min_size=1, max_size=16)

Message = TypeVar("Message", Request, Reply)


@st.composite
def almost(draw: st.DrawFn, messages: list[bytes]) -> bytes:
    """A right message with a few bytes that are replaced, put in or left out."""
    message = bytearray(draw(st.sampled_from(messages)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(message)))
        new = draw(st.binary(max_size=2))
        message[place : place + draw(st.integers(0, 2))] = new
    return bytes(message)


@st.composite
def framed(draw: st.DrawFn, first: int) -> bytes:
    """Any content between an address and an end."""
    small = st.sampled_from(b"\x00\x01\x02\x03\x04\x06\x09\x0f\x10\x12\x18\x19\x41\x47\x50\x60")
    content = draw(st.lists(st.one_of(small, st.integers(0, 255)), max_size=16))
    return bytes([first, *content, 0xFF])


any_request = st.one_of(st.binary(max_size=40), almost(REQUESTS), framed(0x81))
any_reply = st.one_of(st.binary(max_size=40), almost(REPLIES), framed(0x90))


def no_request(message: bytes) -> None:
    with pytest.raises(ViscaError):
        read_request(message)


def no_reply(message: bytes) -> None:
    with pytest.raises(ViscaError):
        read_reply(message)


def reads_its_own(
    message: bytes, read: Callable[[bytes], Message], write: Callable[[Message], bytes]
) -> None:
    """Bytes are no message, or a message that is the same after it was written and read."""
    try:
        found = read(message)
    except ViscaError:
        return
    assert read(write(found)) == found


# The peer itself: a few messages as the manuals print their examples.


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        (peer.drive_message("up", 0x18, 0x14), "81 01 06 01 18 14 03 01 ff"),
        (peer.drive_message("downleft", 1, 2), "81 01 06 01 01 02 01 02 ff"),
        (
            peer.move_message(-8704, 0x1200, 0x18, 0x17),
            "81 01 06 02 18 17 0d 0e 00 00 01 02 00 00 ff",
        ),
        (peer.zoom_message(0x4000), "81 01 04 47 04 00 00 00 ff"),
        (peer.ack_message(2), "90 42 ff"),
        (peer.completion_message(), "90 51 ff"),
        (peer.error_message(0x02), "90 60 02 ff"),
        (peer.error_message(0x41, 1), "90 61 41 ff"),
        (peer.pan_tilt_answer(-1, 0x05A0), "90 50 0f 0f 0f 0f 00 05 0a 00 ff"),
        (peer.zoom_answer(0x1ABC), "90 50 01 0a 0b 0c ff"),
        (peer.packet(peer.INQUIRY, 258, b"\x09"), "01 10 00 01 00 00 01 02 09"),
        (peer.packet(peer.CONTROL, 0, peer.RESET), "02 00 00 01 00 00 00 00 01"),
    ],
)
def test_the_peer_writes_what_the_manual_prints(message: bytes, printed: str) -> None:
    assert message.hex(" ") == printed


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_peers_understand_each_other(address: str) -> None:
    done = (peer.PeerReply("ack", 1), peer.PeerReply("completion", 1))
    with (
        peer.PeerHead(-100, 200, 0x4000, address) as head,
        peer.PeerController(address, head.port) as controller,
    ):
        assert controller.drive("upleft", 1, 2) == done
        assert controller.move_to(-1, 1) == done
        assert controller.home() == done
        assert controller.zoom_to(16) == done
        assert controller.pan_tilt() == (-100, 200)
        assert controller.zoom() == 0x4000
        controller.reset_sequence()
        controller.sequence = 0xFFFFFFFF
        assert controller.home() == done
        assert controller.pan_tilt() == (-100, 200)
        with pytest.raises(peer.PeerError, match="instead of an ACK"):
            controller.command(bytes.fromhex("81 01 06 05 FF"))
        # The head takes no command in an inquiry's datagram, and no datagram without a message.
        sequence = controller.send(peer.INQUIRY, peer.home_message())
        refused = peer.parse_reply(controller.receive(peer.REPLY, sequence))
        assert refused == peer.PeerReply("error", 0, (peer.SYNTAX_ERROR,))
        controller.send_bytes(bytes(8))
        controller.send(peer.INQUIRY, peer.zoom_question())
        with pytest.raises(peer.PeerError, match="instead of type"):
            controller.receive(peer.REPLY, 7)
    numbers = [number for number, _payload in head.received]
    assert numbers == [0, 1, 2, 3, 4, 5, 0, 0xFFFFFFFF, 0, 1, 2, 3]
    assert head.received[0][1] == peer.drive_message("upleft", 1, 2)
    assert head.received[6][1] == peer.RESET
    assert head.rejected == [bytes.fromhex("81 01 06 05 FF"), peer.home_message(), bytes(8)]


# Requests, both ways.


def test_numbers_of_the_protocol_are_those_of_the_manual() -> None:
    assert (PORT, MOST_PAN, MOST_TILT, MOST_ZOOM) == (52381, 0x18, 0x17, 0x4000)


@given(direction=directions, pan_speed=pan_speeds, tilt_speed=tilt_speeds)
@example(direction="upleft", pan_speed=1, tilt_speed=23)
@example(direction="downright", pan_speed=24, tilt_speed=1)
def test_a_drive_is_read_as_the_peer_writes_it(
    direction: str, pan_speed: int, tilt_speed: int
) -> None:
    pan, tilt = SIGNS[direction]
    message = peer.drive_message(direction, pan_speed, tilt_speed)
    assert read_request(message) == DriveLevels(pan * pan_speed, tilt * tilt_speed)


@given(direction=directions, pan_speed=pan_speeds, tilt_speed=tilt_speeds)
@example(direction="upleft", pan_speed=1, tilt_speed=23)
@example(direction="downright", pan_speed=24, tilt_speed=1)
def test_a_drive_is_written_as_the_peer_writes_it(
    direction: str, pan_speed: int, tilt_speed: int
) -> None:
    pan, tilt = SIGNS[direction]
    written = request_bytes(DriveLevels(pan * pan_speed, tilt * tilt_speed))
    # The object does not say how fast a motor would turn that stands still: the lowest speed.
    shown = (pan_speed if pan else 1, tilt_speed if tilt else 1)
    assert written == peer.drive_message(direction, *shown)


@given(pan=positions, tilt=positions, pan_speed=pan_speeds, tilt_speed=tilt_speeds)
@example(pan=-32768, tilt=32767, pan_speed=1, tilt_speed=23)
@example(pan=32767, tilt=-32768, pan_speed=24, tilt_speed=1)
@example(pan=-1, tilt=0, pan_speed=2, tilt_speed=3)
def test_a_move_is_read_and_written_as_the_peer_writes_it(
    pan: int, tilt: int, pan_speed: int, tilt_speed: int
) -> None:
    request = MoveToUnits(pan, tilt, pan_speed, tilt_speed)
    message = peer.move_message(pan, tilt, pan_speed, tilt_speed)
    assert read_request(message) == request
    assert request_bytes(request) == message


def test_a_move_is_at_the_highest_speed_unless_told_otherwise() -> None:
    assert request_bytes(MoveToUnits(5, -6)) == peer.move_message(5, -6, 0x18, 0x17)


@given(position=zooms)
@example(position=0)
@example(position=0x4000)
def test_a_zoom_is_read_and_written_as_the_peer_writes_it(position: int) -> None:
    message = peer.zoom_message(position)
    assert read_request(message) == ZoomTo(position)
    assert request_bytes(ZoomTo(position)) == message


@given(position=st.integers(0x4001, 0xFFFF))
def test_a_zoom_beyond_the_lens_is_refused(position: int) -> None:
    with pytest.raises(ViscaError):
        read_request(peer.zoom_message(position))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (MoveHome(), peer.home_message()),
        (AskPanTilt(), peer.pan_tilt_question()),
        (AskZoom(), peer.zoom_question()),
    ],
)
def test_requests_without_numbers_are_read_and_written_as_the_peer_writes_them(
    request_: Request, message: bytes
) -> None:
    assert read_request(message) == request_
    assert request_bytes(request_) == message


# Replies, both ways.


@pytest.mark.parametrize("number", [1, 2])
def test_acknowledgement_and_completion_of_a_socket_are_read(number: int) -> None:
    assert read_reply(peer.ack_message(number)) == Acknowledged()
    assert read_reply(peer.completion_message(number)) == Completed()


def test_acknowledgement_and_completion_are_of_the_same_socket_for_the_peer() -> None:
    ack = peer.parse_reply(reply_bytes(Acknowledged()))
    completion = peer.parse_reply(reply_bytes(Completed()))
    assert (ack.kind, completion.kind) == ("ack", "completion")
    assert ack.socket == completion.socket in (1, 2)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("why", list(Refusal))
def test_a_refusal_is_read_as_the_peer_writes_it(why: Refusal, number: int) -> None:
    assert read_reply(peer.error_message(REFUSALS[why], number)) == Refused(why)


@pytest.mark.parametrize("why", list(Refusal))
def test_a_refusal_is_read_by_the_peer(why: Refusal) -> None:
    found = peer.parse_reply(reply_bytes(Refused(why)))
    assert (found.kind, found.numbers) == ("error", (REFUSALS[why],))


@pytest.mark.parametrize("why", [Refusal.LENGTH, Refusal.SYNTAX, Refusal.FULL])
def test_a_message_that_never_had_a_socket_is_refused_with_socket_0(why: Refusal) -> None:
    assert reply_bytes(Refused(why)) == peer.error_message(REFUSALS[why], 0)


@given(pan=positions, tilt=positions)
@example(pan=-32768, tilt=32767)
@example(pan=-1, tilt=0)
def test_an_answer_of_positions_is_read_and_written_as_the_peer_writes_it(
    pan: int, tilt: int
) -> None:
    message = peer.pan_tilt_answer(pan, tilt)
    assert read_reply(message) == PanTiltIs(pan, tilt)
    assert reply_bytes(PanTiltIs(pan, tilt)) == message
    assert peer.parse_reply(message) == peer.PeerReply("pan-tilt", 0, (pan, tilt))


@given(position=zooms)
@example(position=0)
@example(position=0x4000)
def test_an_answer_of_a_zoom_is_read_and_written_as_the_peer_writes_it(position: int) -> None:
    message = peer.zoom_answer(position)
    assert read_reply(message) == ZoomIs(position)
    assert reply_bytes(ZoomIs(position)) == message
    assert peer.parse_reply(message) == peer.PeerReply("zoom", 0, (position,))


# Headers, both ways.


def test_the_types_of_datagrams_are_those_of_the_manual() -> None:
    assert {kind: kind.to_bytes(2, "big") for kind in Kind} == KINDS


@given(kind=st.sampled_from(list(KINDS)), sequence=sequences, payload=payloads)
@example(kind=Kind.COMMAND, sequence=0, payload=b"\x01")
@example(kind=Kind.CONTROL_REPLY, sequence=0xFFFFFFFF, payload=bytes(range(16)))
@example(kind=Kind.REPLY, sequence=0x01020304, payload=peer.ack_message())
def test_a_datagram_is_unpacked_and_packed_as_the_peer_packs_it(
    kind: Kind, sequence: int, payload: bytes
) -> None:
    data = peer.packet(KINDS[kind], sequence, payload)
    found = Datagram.unpack(data)
    assert found == Datagram(kind, sequence, payload)
    assert isinstance(found.kind, Kind)
    assert found.pack() == data
    assert peer.parse_packet(found.pack()) == (KINDS[kind], sequence, payload)


def test_after_the_last_sequence_number_comes_0() -> None:
    following = Datagram(Kind.COMMAND, 0xFFFFFFFF + 1, peer.home_message())
    assert following.pack() == peer.packet(peer.COMMAND, 0, peer.home_message())


# Numbers that messages cannot hold.


@given(level=st.integers(25, 0xFF), other=tilt_speeds, direction=directions)
def test_a_drive_at_a_speed_out_of_range_is_no_request(
    level: int, other: int, direction: str
) -> None:
    no_request(peer.drive_message(direction, level, other))
    no_request(peer.drive_message(direction, other, level))


@given(level=st.integers(25, 0xFF), other=tilt_speeds, position=positions)
def test_a_move_at_a_speed_out_of_range_is_no_request(
    level: int, other: int, position: int
) -> None:
    no_request(peer.move_message(position, 0, level, other))
    no_request(peer.move_message(0, position, other, level))


@given(level=st.integers(min_value=25), sign=st.sampled_from([-1, 1]))
def test_a_drive_at_a_speed_out_of_range_is_not_written(level: int, sign: int) -> None:
    for request in (DriveLevels(sign * level, 0), DriveLevels(0, sign * level)):
        with pytest.raises(ViscaError):
            request_bytes(request)


@given(level=no_speeds)
def test_a_move_at_a_speed_out_of_range_is_not_written(level: int) -> None:
    for request in (MoveToUnits(0, 0, level, 1), MoveToUnits(0, 0, 1, level)):
        with pytest.raises(ViscaError):
            request_bytes(request)


@given(position=no_positions)
def test_positions_out_of_range_are_not_written(position: int) -> None:
    for request in (MoveToUnits(position, 0), MoveToUnits(0, position)):
        with pytest.raises(ViscaError):
            request_bytes(request)
    for reply in (PanTiltIs(position, 0), PanTiltIs(0, position)):
        with pytest.raises(ViscaError):
            reply_bytes(reply)


@given(position=st.one_of(st.integers(max_value=-1), st.integers(min_value=0x4001)))
def test_a_zoom_out_of_range_is_not_written(position: int) -> None:
    with pytest.raises(ViscaError):
        request_bytes(ZoomTo(position))


@given(position=st.one_of(st.integers(max_value=-1), st.integers(min_value=0x10000)))
@example(position=-1)
def test_an_answer_of_a_zoom_out_of_range_is_not_written(position: int) -> None:
    with pytest.raises(ViscaError):
        reply_bytes(ZoomIs(position))


# Bytes that are no messages.


@pytest.mark.parametrize("message", REQUESTS)
def test_a_request_cut_short_is_none(message: bytes) -> None:
    for end in range(len(message)):
        no_request(message[:end])
        no_request(message[: max(0, end - 1)] + b"\xff")
    for start in range(1, len(message)):
        no_request(message[start:])
    for place in range(len(message)):
        no_request(message[:place] + message[place + 1 :])


@pytest.mark.parametrize("message", REPLIES)
def test_a_reply_cut_short_is_none(message: bytes) -> None:
    for end in range(len(message)):
        no_reply(message[:end])
    for start in range(1, len(message)):
        no_reply(message[start:])
    # Without the first byte of its content, a refusal may be an acknowledgement: 90 60 41 ff.
    for place in range(2, len(message)):
        no_reply(message[:place] + message[place + 1 :])


@pytest.mark.parametrize("message", REQUESTS)
def test_a_request_with_one_byte_more_is_none(message: bytes) -> None:
    for more in (bytes([each]) for each in range(0x100)):
        no_request(message + more)
        no_request(message[:-1] + more + message[-1:])
        no_request(more + message)
    no_request(message + message)


@pytest.mark.parametrize("message", REPLIES)
def test_a_reply_with_one_byte_more_is_none(message: bytes) -> None:
    for more in (bytes([each]) for each in range(0x100)):
        no_reply(message + more)
        no_reply(message[:-1] + more + message[-1:])
        no_reply(more + message)
    no_reply(message + message)


@given(
    message=st.sampled_from(REQUESTS),
    address=st.integers(0, 0xFF).filter(lambda each: each != 0x81),
)
@example(message=peer.home_message(), address=0x88)
@example(message=peer.home_message(), address=0x90)
def test_a_request_for_another_address_is_none(message: bytes, address: int) -> None:
    no_request(bytes([address]) + message[1:])


@given(
    message=st.sampled_from(REPLIES), address=st.integers(0, 0xFF).filter(lambda each: each != 0x90)
)
@example(message=peer.ack_message(), address=0x81)
@example(message=peer.ack_message(), address=0xA0)
def test_a_reply_from_another_address_is_none(message: bytes, address: int) -> None:
    no_reply(bytes([address]) + message[1:])


def test_requests_are_no_replies_and_the_other_way_round() -> None:
    for each in REQUESTS:
        no_reply(each)
    for each in REPLIES:
        no_request(each)


@given(code=st.integers(0, 0xFF).filter(lambda code: code not in (1, 2, 3)))
@example(code=0)
@example(code=4)
@example(code=0xFF)
def test_a_drive_to_an_unknown_direction_is_no_request(code: int) -> None:
    for direction in SIGNS:
        message = peer.drive_message(direction, 5, 6)
        no_request(message[:6] + bytes([code]) + message[7:])
        no_request(message[:7] + bytes([code]) + message[8:])


@given(nibble=st.integers(0x10, 0xFF))
@example(nibble=0x10)
@example(nibble=0xF0)
@example(nibble=0xFF)
def test_more_than_four_bits_in_a_place_for_four_are_no_message(nibble: int) -> None:
    move, zoom = peer.move_message(1, 2, 3, 4), peer.zoom_message(5)
    for message, first in ((move, 6), (zoom, 4)):
        for place in range(first, len(message) - 1):
            no_request(message[:place] + bytes([nibble]) + message[place + 1 :])
    for message in (peer.pan_tilt_answer(1, 2), peer.zoom_answer(3)):
        for place in range(2, len(message) - 1):
            no_reply(message[:place] + bytes([nibble]) + message[place + 1 :])


@given(code=st.integers(0, 0xFF).filter(lambda code: code not in REFUSALS.values()))
def test_an_error_with_an_unknown_code_is_no_reply(code: int) -> None:
    no_reply(peer.error_message(code))


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_datagram_without_a_message_is_no_request_and_no_reply(kind: Kind) -> None:
    data = peer.packet(KINDS[kind], 1, b"")
    with pytest.raises(ViscaError):
        read_request(Datagram.unpack(data).payload)
    with pytest.raises(ViscaError):
        read_reply(Datagram.unpack(data).payload)


@given(payload=payloads, length=st.integers(0, 0xFFFF))
@example(payload=peer.home_message(), length=4)
@example(payload=peer.home_message(), length=6)
@example(payload=peer.home_message(), length=0x0500)
def test_a_datagram_of_another_length_than_its_header_says_is_refused(
    payload: bytes, length: int
) -> None:
    data = peer.packet(peer.COMMAND, 1, payload)
    if length == len(payload):
        assert Datagram.unpack(data).payload == payload
    else:
        with pytest.raises(ViscaError):
            Datagram.unpack(data[:2] + length.to_bytes(2, "big") + data[4:])


def test_a_datagram_cut_short_is_refused() -> None:
    data = peer.packet(peer.COMMAND, 1, peer.home_message())
    for end in range(len(data)):
        with pytest.raises(ViscaError):
            Datagram.unpack(data[:end])


@given(
    kind=st.binary(min_size=2, max_size=2).filter(
        lambda kind: kind not in (*KINDS.values(), SETTINGS)
    ),
    payload=payloads,
)
@example(kind=b"\x00\x01", payload=b"\x01")
@example(kind=b"\x00\x00", payload=b"\x01")
@example(kind=b"\x01\x01", payload=b"\x01")
@example(kind=b"\xff\xff", payload=b"\x01")
def test_a_datagram_of_an_unknown_type_is_refused(kind: bytes, payload: bytes) -> None:
    with pytest.raises(ViscaError):
        Datagram.unpack(peer.packet(kind, 1, payload))


# Any bytes.


@settings(max_examples=cases(500, 20_000))
@given(message=any_request)
def test_any_bytes_are_no_request_or_one_that_is_written_and_read_as_the_same(
    message: bytes,
) -> None:
    reads_its_own(message, read_request, request_bytes)


@settings(max_examples=cases(500, 20_000))
@given(message=any_reply)
@example(message=peer.zoom_answer(0x7FFF))
@example(message=peer.zoom_answer(0x8000))
def test_any_bytes_are_no_reply_or_one_that_is_written_and_read_as_the_same(
    message: bytes,
) -> None:
    reads_its_own(message, read_reply, reply_bytes)


@settings(max_examples=cases(500, 20_000))
@given(
    data=st.one_of(
        st.binary(max_size=40),
        almost([peer.packet(kind, 1, peer.home_message()) for kind in KINDS.values()]),
    )
)
def test_any_bytes_are_no_datagram_or_one_that_packs_to_them(data: bytes) -> None:
    try:
        found = Datagram.unpack(data)
    except ViscaError:
        return
    assert found.pack() == data


@settings(max_examples=cases(500, 20_000))
@given(message=any_reply)
def test_what_the_peer_reads_as_a_reply_is_read_as_the_same(message: bytes) -> None:
    try:
        found = peer.parse_reply(message)
    except peer.PeerError:
        return
    match found.kind, found.numbers:
        case "ack", _:
            assert read_reply(message) == Acknowledged()
        case "completion", _:
            assert read_reply(message) == Completed()
        case "error", (code,) if code in REFUSALS.values():
            assert read_reply(message) == Refused(Refusal(code))
        case "error", _:
            no_reply(message)
        case "pan-tilt", (pan, tilt):
            assert read_reply(message) == PanTiltIs(pan, tilt)
        case _, (position,) if position <= 0x4000:
            assert read_reply(message) == ZoomIs(position)
