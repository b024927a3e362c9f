"""Handlers of a channel: values that are not bytes, and items that were collected."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from loopscope import stm


@pytest.fixture
def service(socket: Path) -> stm.Service:
    return stm.Service(socket)


VALUES: list[Any] = [None, "März", [1, 2.5], {"pose": [0, 0, 1]}]


@pytest.mark.parametrize("serializer", [json, pickle])
def test_values_are_put_and_got(service: stm.Service, serializer: stm.Serializer) -> None:
    poses = service.create("poses", item_bytes=200, serializer=serializer)
    out, into = poses.output(), service.open("poses", serializer=serializer).input()
    for time, value in enumerate(VALUES):
        out.put_object(time, value, half_width=1)
    assert [item.object() for item in into.range(0, 10)] == VALUES
    with into.newest() as item:
        assert item.half_width == 1
        # It is the serializer's text of bytes.
        assert serializer.loads(bytes(item)) == VALUES[-1]


def test_what_cannot_be_made_is_said_and_changes_nothing(service: stm.Service) -> None:
    poses = service.create("poses", item_bytes=64, serializer=json)
    out, into = poses.output(), poses.input()
    with pytest.raises(TypeError, match="not JSON serializable"):
        out.put_object(1, Fraction(1, 3))
    with pytest.raises(ValueError, match="at most 64 bytes"):
        out.put_object(1, "x" * 100)
    out.put(1, b"{")
    with into.get(1) as item, pytest.raises(json.JSONDecodeError):
        item.object()
    plain = service.open("poses", puts=True)
    with pytest.raises(ValueError, match="without a serializer"):
        plain.output().put_object(2, 1)
    with plain.input().get(1) as item, pytest.raises(ValueError, match="without a serializer"):
        item.object()
    assert poses.counts().put == 1


def test_a_handler_is_told_of_each_item_that_was_collected(service: stm.Service) -> None:
    frames = service.create("frames", item_bytes=64, capacity=4)
    told: list[int] = []
    out, other, into = frames.output(on_collected=told.append), frames.output(), frames.input()
    for time in range(4):
        (out if time % 2 == 0 else other).put(time, b"x")
    held = into.get(0)
    into.consume_until(3)
    # Nobody calls it yet, and what is held is in use.
    assert told == []
    assert out.collected() == [2] and told == [2]
    held.release()
    out.put(4, b"x")
    assert told == [2, 0]
    into.consume(4)
    with out.loan(1):
        assert told == [2, 0, 4]
    assert out.collected() == [] and told == [2, 0, 4]
    with pytest.raises(ValueError, match="without a handler"):
        other.collected()


def test_a_dropped_item_is_collected(service: stm.Service) -> None:
    frames = service.create("frames", item_bytes=64, capacity=2, full="drop")
    told: list[int] = []
    out, into = frames.output(on_collected=told.append), frames.input()
    for time in range(5):
        out.put(time, b"")
    assert out.collected() == [2] and told == [0, 1, 2]
    assert into.counts().lost == 3


def test_what_a_handler_raises_ends_the_call(service: stm.Service) -> None:
    told: list[int] = []

    def fails(time: int) -> None:
        told.append(time)
        if time == 1:
            raise RuntimeError(f"no buffer {time}")

    frames = service.create("frames", item_bytes=64)
    out, into = frames.output(on_collected=fails), frames.input()
    for time in (0, 1, 2, 3):
        out.put(time, b"")
    into.consume_until(3)
    with pytest.raises(RuntimeError, match="no buffer 1"):
        out.put(4, b"")
    # Nothing was put by that call, and the next one tells of those after it.
    assert told == [0, 1] and frames.counts().put == 4
    out.put(4, b"")
    assert told == [0, 1, 2, 3] and frames.counts().put == 5
