"""The simulated head against the tests' controller, and the controller against the tests' head."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
import visca_peer as peer
from loopscope_video.head import STAND, Drive, Head, Order
from loopscope_video.heads import Controller, HeadServer

SPEEDS = (60.0, 60.0)
PATIENCE_S = 5.0


class Served:
    """A head with a clock that the test moves, and what it was ordered."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ordered: list[tuple[int, Order]] = []
        self.server = HeadServer(
            Head(), lambda: self.now_s, ordered=lambda *order: self.ordered.append(order)
        )


@pytest.fixture
def served() -> Iterator[Served]:
    head = Served()
    with head.server:
        yield head


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_peer_turns_the_head_and_asks_where_it_looks(served: Served, address: str) -> None:
    with peer.PeerController(address, served.server.port) as controller:
        assert controller.pan_tilt() == (0, 0)
        controller.drive("upright", 24, 23)
        served.now_s = 2.0
        pan, tilt = controller.pan_tilt()
        # Two seconds at 60 degrees per second, less the latency and the lag; tilt is at its stop.
        assert pan == pytest.approx((2 - 0.02 - 0.05) * 60 * 51.2, abs=2)
        assert tilt == 90 * 51.2
        controller.drive("stop", 1, 1)
        served.now_s = 4.0
        stands = controller.pan_tilt()
        served.now_s = 5.0
        assert controller.pan_tilt() == stands
        controller.move_to(-512, 256, 24, 20)
        served.now_s = 15.0
        assert controller.pan_tilt() == (-512, 256)
        controller.zoom_to(0x2000)
        controller.home()
        served.now_s = 30.0
        assert controller.pan_tilt() == (0, 0)
        assert controller.zoom() == 0x2000
        controller.reset_sequence()
    assert len(served.ordered) == 5
    assert served.server.refused == 0


def test_datagrams_that_are_no_request_are_counted_and_the_head_goes_on(served: Served) -> None:
    nothing = [b"", b"\xff", bytes(64), bytes(1000), b"\x01\x00\x00\x01\x00\x00\x00\x07\x81"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for data in nothing:
            sender.sendto(data, ("127.0.0.1", served.server.port))
        until(lambda: served.server.refused == len(nothing))
        # What has a header gets an answer, with its sequence number.
        sender.settimeout(PATIENCE_S)
        answer = sender.recv(64)
    assert answer[4:8] == b"\x00\x00\x00\x07"
    assert peer.parse_reply(answer[8:]).kind == "error"
    with peer.PeerController("127.0.0.1", served.server.port) as controller:
        assert controller.pan_tilt() == (0, 0)
    assert not served.ordered


def test_the_controller_turns_a_peer_s_head_and_counts_its_answers() -> None:
    with peer.PeerHead(0, 0, 0) as head, Controller("127.0.0.1", head.port, SPEEDS) as controller:
        assert controller.is_obeyed
        controller.drive(Drive(60.0, -60.0))
        controller.drive(Drive(-1000.0, 1.0))
        controller.drive(STAND)
        until(lambda: controller.collect() is None and controller.is_obeyed)
        assert [(sequence, message.hex(" ")) for sequence, message in head.received] == [
            (0, "81 01 06 01 18 17 02 02 ff"),
            (1, "81 01 06 01 18 01 01 03 ff"),
            (2, "81 01 06 01 01 01 03 03 ff"),
        ]
        answers = controller.answers
        assert (answers.sent, answers.acknowledged, answers.completed) == (3, 3, 3)
        assert (answers.refused, answers.not_understood, answers.undeliverable) == (0, 0, 0)


def test_a_head_that_is_not_there_keeps_nobody_waiting() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Controller("127.0.0.1", port, SPEEDS) as controller:
        for _ in range(10):
            controller.drive(STAND)
            time.sleep(0.01)
        assert not controller.is_obeyed
        assert controller.answers.undeliverable > 0
        assert controller.answers.completed == 0


def test_a_head_that_answers_nonsense_is_counted() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as head:
        head.bind(("127.0.0.1", 0))
        with Controller("127.0.0.1", head.getsockname()[1], SPEEDS) as controller:
            controller.drive(Drive(10, 0))
            _, sender = head.recvfrom(64)
            for answer in (b"", b"nonsense", bytes(60)):
                head.sendto(answer, sender)
            # A refusal of a command, as of a head that is switched off.
            head.sendto(bytes.fromhex("0111 0004 00000000 90 60 41 ff"), sender)
            until(lambda: controller.collect() is None and controller.answers.refused == 1)
            assert controller.answers.not_understood == 3
            assert not controller.is_obeyed


def test_a_port_that_is_taken_is_an_error() -> None:
    with HeadServer(Head(), lambda: 0.0) as server, pytest.raises(OSError, match="in use"):
        HeadServer(Head(), lambda: 0.0, port=server.port)
