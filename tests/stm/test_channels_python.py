"""`loopscope.stm`: channels, connections, and views of items."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from loopscope import stm


@pytest.fixture
def service(socket: Path) -> stm.Service:
    return stm.Service(socket)


@pytest.fixture
def channel(service: stm.Service) -> stm.Channel:
    return service.create("frames", item_bytes=64, capacity=4)


@contextmanager
def interrupted(*, after_s: float) -> Iterator[None]:
    """Whether what is done is interrupted by a signal's handler."""

    def alarm(number: int, frame: object) -> None:
        raise InterruptedError("the signal")

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        with pytest.raises(InterruptedError, match="the signal"):
            yield
    finally:
        signal.signal(signal.SIGALRM, before)


def numbers(items: list[stm.Item]) -> list[int]:
    return [item.time for item in items]


def test_items_are_got_by_their_times(channel: stm.Channel) -> None:
    out, into = channel.output(), channel.input()
    for time_ in (10, 20, 40):
        out.put(time_, b"%d" % time_, half_width=2)
    assert bytes(into.get(20)) == b"20"
    assert (into.oldest().time, into.newest().time) == (10, 40)
    assert numbers(into.range(10, 39)) == [10, 20]
    near = into.nearest(19, 5, half_width=1)
    assert (near.time, near.half_width, len(near)) == (20, 2, 2)
    with pytest.raises(stm.Ambiguous, match="several items"):
        into.nearest(30, 50)
    with pytest.raises(stm.NotYet):
        into.nearest(60, 5, timeout=0)
    into.consume(20)
    with pytest.raises(stm.Gone, match="consumed"):
        into.get(20, timeout=0)
    with pytest.raises(stm.NotYet):
        into.unseen(timeout=0)
    other = channel.input()
    assert other.unseen(timeout=0).time == 40
    assert other.counts() == stm.InputCounts(floor=40, held=0, lost=0, skipped=1)
    other.close()
    del near
    into.consume_until(40)
    gc.collect()
    assert channel.counts() == stm.Counts(put=3, collected=3, dropped=0, present=0, free=8)
    out.bound(100)
    with pytest.raises(stm.Never):
        into.get(99)
    with pytest.raises(stm.Late, match="promised"):
        out.put(99, b"")
    assert out.bound(50) == 100


def test_puts_and_connections_that_cannot_be(service: stm.Service, channel: stm.Channel) -> None:
    out, into = channel.output(), channel.input(holds=1)
    out.put(1, b"x" * 64)
    with pytest.raises(stm.Exists):
        out.put(1, b"")
    with pytest.raises(ValueError, match="at most 64 bytes"):
        out.put(2, b"x" * 65)
    with pytest.raises(ValueError, match="greater than"):
        out.put(2**63 - 1, b"")
    for time_ in (2, 3, 4):
        out.put(time_, b"")
    began = time.monotonic()
    with pytest.raises(stm.Full, match="full"):
        out.put(5, b"", timeout=0.2)
    assert time.monotonic() - began >= 0.2
    kept = into.get(1)
    with pytest.raises(stm.TooMany):
        into.get(2, timeout=0)
    kept.release()
    assert bytes(into.get(2)) == b""
    loan = out.loan(timeout=0)
    with pytest.raises(stm.TooMany):
        out.loan(timeout=0)
    assert repr(loan) == "<Loan of 64 bytes>"
    with pytest.raises(ValueError, match="timeout"):
        into.get(9, timeout=-1)
    with pytest.raises(stm.StmError, match="read here"):
        service.open("frames").output()
    into.close()
    with pytest.raises(stm.NotConnected):
        into.newest()
    into.close()
    outputs = [channel.output() for _ in range(3)]
    with pytest.raises(stm.TooMany):
        channel.output()
    del outputs
    with pytest.raises(ValueError, match="'keep' or 'discard'"):
        service.create("other", item_bytes=1, orphans="lose")  # type: ignore[arg-type]


def test_the_service_says_why_not(service: stm.Service, socket: Path, tmp_path: Path) -> None:
    with pytest.raises(stm.StmError, match=r"start one by `loopscope stm serve`"):
        stm.Service(tmp_path / "nobody")
    with pytest.raises(stm.StmError, match="there is no channel frames"):
        service.open("frames")
    service.create("frames", item_bytes=64)
    service.create("frames", item_bytes=64)
    with pytest.raises(stm.StmError, match="with other options: .*item_bytes 64"):
        service.create("frames", item_bytes=65)
    with pytest.raises(stm.StmError, match="no room for so many"):
        service.create("none", item_bytes=0)
    with pytest.raises(stm.StmError, match=r"takes \d+ bytes of memory, and \d+ are available"):
        service.create("vast", item_bytes=2**31, capacity=10_000)
    with stm.Service(socket) as other:
        (listed,) = other.list()
    assert (listed["name"], listed["processes"].count(os.getpid())) == ("frames", 0)
    with pytest.raises(stm.NotConnected):
        other.list()
    service.remove("frames")
    assert service.list() == []


def test_views_outlive_what_they_came_from(channel: stm.Channel) -> None:
    out, into = channel.output(), channel.input()
    out.put(1, np.arange(8, dtype="f4"))
    item = into.get(1)
    array = item.array("f4", (2, 4))
    assert array.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert not array.flags.writeable and array.ctypes.data == item.array().ctypes.data
    with pytest.raises(BufferError, match="there are views"):
        item.release()
    into.consume_until(1)
    into.close()
    del item, into
    gc.collect()
    # All others have consumed it, and it is there for the view.
    assert channel.counts()[:4] == (1, 0, 0, 1)
    assert array[1, 3] == 7
    shared = np.from_dlpack(array)
    del array
    assert shared[0, 1] == 1 and channel.counts().present == 1
    del shared
    gc.collect()
    assert channel.counts()[:4] == (1, 1, 0, 0)


def test_a_view_that_goes_last_releases_the_item(channel: stm.Channel) -> None:
    out, into = channel.output(), channel.input()
    out.put(1, b"abc")
    with into.get(1) as item:
        view = item.view
    assert view.readonly and bytes(view[1:]) == b"bc"
    with pytest.raises(ValueError, match="the item has been released"):
        bytes(item)
    assert into.counts().held == 1
    view.release()
    del view
    assert into.counts().held == 0
    with into.get(1) as item:
        assert bytes(item) == b"abc"
    assert into.counts().held == 0 and "released" in repr(item)
    item.release()
    first, second = into.get(1), into.get(1)
    first.release()
    assert into.counts().held == 1 and bytes(second) == b"abc"


def test_a_loan_is_filled_in_place_and_cannot_be_changed_then(channel: stm.Channel) -> None:
    out, into = channel.output(), channel.input()
    with out.loan(8) as loan:
        array = loan.array("<u2")
        assert array.shape == (4,)
        array[:] = range(4)
        with pytest.raises(BufferError, match="could change the item"):
            loan.put(1)
        del array
        with pytest.raises(ValueError, match="9 bytes of a loan of 8"):
            loan.put(1, 9)
        loan.put(1, 6)
    assert into.get(1).array("<u2").tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="6 bytes, which is no number of elements of 4"):
        into.get(1).array("f4")
    with pytest.raises(ValueError, match="the loan has been released"):
        loan.put(2)
    with out.loan() as loan:
        view = loan.view
    # It is not given back while somebody could write to it.
    assert channel.counts().free == 6
    view[0] = 1
    del view
    assert channel.counts().free == 7
    with pytest.raises(ValueError, match="at most 64 bytes"):
        out.loan(65)


def test_a_look_copies_the_newest_item(channel: stm.Channel) -> None:
    out, into = channel.output(), channel.input()
    with pytest.raises(stm.NotYet):
        into.look()
    out.put(3, b"three", half_width=4)
    item = into.get(3)
    assert into.look() == (3, 4, item.put_ns, 0, b"three", 5)
    assert into.look(2, most=2) == (3, 4, item.put_ns, 0, b"th", 5)
    with pytest.raises(stm.NotYet):
        into.look(after=3)
    item.release()
    assert into.counts().held == 0
    out.put(5, b"x" * 64)
    assert into.look().data == b"x" * 64
    into.consume_until(5)
    with pytest.raises(stm.NotYet):
        into.look()


def test_what_has_a_buffer_is_put(channel: stm.Channel) -> None:
    out, into = channel.output(), channel.input()
    whole = np.arange(12, dtype="<u2").reshape(3, 4)
    sources = [
        b"bytes",
        bytearray(b"more"),
        whole[:, 1:3],
        np.zeros((0, 3)),
        np.array([(1, 2.5)], dtype=[("a", "<u2"), ("b", "<f8")]),
    ]
    for number, source in enumerate(sources):
        out.put(number, source)
        with into.get(number) as item:
            assert bytes(item) == bytes(memoryview(source).tobytes())
        into.consume_until(number)
    with pytest.raises(TypeError):
        out.put(9, "text")


def test_a_wait_ends_when_the_item_comes_and_by_a_signal(channel: stm.Channel) -> None:
    out, into = channel.output(), channel.input()
    later = threading.Timer(0.3, out.put, (7, b"later"))
    began = time.monotonic()
    later.start()
    item = into.get(7)
    assert time.monotonic() - began > 0.29 and bytes(item) == b"later"
    assert item.age_ns < (time.monotonic() - began) * 1e9
    later.join()

    with interrupted(after_s=0.2):
        into.get(8)
    # A thread waits, and another one uses the same connection.
    waits = threading.Thread(target=lambda: pytest.raises(stm.NotYet, into.get, 8, 0.5))
    waits.start()
    assert into.counts().held == 1
    waits.join()


def test_what_may_come_to_a_thread_is_promised_by_it(service: stm.Service) -> None:
    frames, poses = (service.create(name, item_bytes=8) for name in ("frames", "poses"))
    camera, tracker = frames.output(), poses.output()
    of_frames, of_poses = frames.input(), poses.input()
    tracker.derives(of_frames)
    with pytest.raises(stm.NotYet):
        of_poses.get(6, timeout=0)
    # A thread waits for a pose of a frame that it will not have.
    waits = threading.Thread(target=lambda: pytest.raises(stm.Never, of_poses.get, 6))
    waits.start()
    camera.put(7, b"")
    camera.bound(7)
    with of_frames.unseen() as frame:
        tracker.put(frame.time, b"pose")
    waits.join(timeout=30)
    assert not waits.is_alive() and bytes(of_poses.get(7)) == b"pose"
    of_frames.consume_until(7)
    with pytest.raises(stm.Late):
        tracker.put(7, b"again")
    of_frames.close()
    with pytest.raises(stm.NotConnected):
        tracker.derives(of_frames)


def test_several_times_are_consumed_one_after_the_other(service: stm.Service) -> None:
    channel = service.create("few", item_bytes=8, ahead=2)
    out, into = channel.output(), channel.input()
    for number in range(4):
        out.put(number, b"")
    into.consume_each(iter([3, 1]))
    assert numbers(into.range(0, 9)) == [0, 2]
    assert channel.counts().collected == 2
    # Two times may be consumed before there is an item.
    with pytest.raises(stm.TooMany):
        into.consume_each([11, 12, 13, 0])
    assert into.newest().time == 2 and into.oldest().time == 0
    for number in (11, 12):
        with pytest.raises(stm.Late):
            out.put(number, b"")
    out.put(13, b"")
    assert into.newest().time == 13
    into.consume_each([])


def test_turns_come_at_their_times_and_slips_are_told() -> None:
    slipped: list[stm.Turn] = []
    pace = stm.Pace(0.01, 0.002, slipped.append)
    turns = list(itertools.islice(pace, 10))
    now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    first = turns[0]
    assert first.number == 0
    for before, turn in itertools.pairwise(turns):
        assert turn.number == before.number + 1 + turn.skipped
        assert turn.due_ns == first.due_ns + turn.number * 10_000_000
        assert turn.slipped == (turn.late_ns > 2_000_000 or turn.skipped > 0)
    assert turns[-1].due_ns + turns[-1].late_ns <= now_ns
    time.sleep(0.035)
    late = next(pace)
    assert late.skipped >= 2 and late.slipped
    assert slipped == [turn for turn in (*turns, late) if turn.slipped]
    assert (pace.slips, pace.skipped) == (
        len(slipped),
        sum(turn.skipped for turn in (*turns, late)),
    )


@pytest.mark.parametrize(("period", "tolerance"), [(0, 1), (-1, 1), (1, -1), (1e30, 0)])
def test_a_period_that_cannot_be_is_refused(period: float, tolerance: float) -> None:
    with pytest.raises(ValueError, match="period|tolerance"):
        stm.Pace(period, tolerance)


def test_a_wait_for_a_turn_hears_signals() -> None:
    pace = stm.Pace(60, 0)
    next(pace)
    with interrupted(after_s=0.2):
        next(pace)


def test_full_channels_drop_what_lossy_inputs_want(service: stm.Service) -> None:
    channel = service.create("scans", item_bytes=8, capacity=2, full="drop")
    out, into = channel.output(), channel.input(lossy=True)
    for number in range(5):
        out.put(number, b"")
    assert into.counts().lost == 3 and channel.counts().dropped == 3
    assert numbers(into.range(0, 9)) == [3, 4]
    assert channel.input("next").floor == 5
    assert channel.input(4).oldest().time == 4
    assert channel.input("newest").oldest().time == 4


OTHER = """
import sys
from loopscope import stm

channel = stm.Service(sys.argv[1]).open("frames", puts=True)
out, into = channel.output(), channel.input()
out.put(2, b"from the other")
held = into.get(1)
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_had_is_free_again(
    service: stm.Service, channel: stm.Channel, socket: Path
) -> None:
    out, into = channel.output(), channel.input()
    out.put(1, b"from here")
    command = [sys.executable, "-c", OTHER, socket]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        assert bytes(into.get(2)) == b"from the other"
        into.consume_until(2)
        (listed,) = service.list()
        assert listed["oldest"]["held_by"] == [other.pid] == listed["oldest"]["wanted_by"]
        assert {of["process"] for of in listed["inputs"]} == {os.getpid(), other.pid}
        other.kill()
        other.wait()
    end = time.monotonic() + 10
    while channel.counts().present and time.monotonic() < end:
        time.sleep(0.01)
    assert channel.counts()[:4] == (2, 2, 0, 0)


def _use(channel: stm.Channel, answer: multiprocessing.SimpleQueue[str]) -> None:
    try:
        channel.counts()
    except stm.StmError as error:
        answer.put(str(error))


def test_a_forked_process_has_to_open_it_again(channel: stm.Channel) -> None:
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    process = context.Process(target=_use, args=(channel, answer))
    process.start()
    assert "forked this one; open it here, too" in answer.get()
    process.join()
    assert channel.counts().put == 0
