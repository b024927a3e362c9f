"""Channels that a service has from another one: how it is told of it, and kills of any party."""

from __future__ import annotations

import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loopscope import stm
from loopscope.testbed import host_binary

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
KILLS = 20
READER = """
import sys

from loopscope import stm

into = stm.Service(sys.argv[1]).open("frames").input("next")
print("reads", flush=True)
while True:
    with into.oldest() as item:
        into.consume_until(item.time)
"""
PRODUCER = """
import itertools, sys

from loopscope import stm

out = stm.Service(sys.argv[1]).open("frames", puts=True).output()
for number in itertools.count(int(sys.argv[2])):
    out.put(number, number.to_bytes(8, "little") * (number % 12_500))
"""

# Puts the numbers from one to another, of which some may be there.
RETAINING = """
import sys, time

from loopscope import stm

frames = stm.Service(sys.argv[1]).create("frames", item_bytes=8)
out = frames.output()
for number in range(int(sys.argv[2]), int(sys.argv[3]) + 1):
    out.put(number, b"%d" % number)
print("done", flush=True)
time.sleep(60)
"""
CREATES = """
import sys

from loopscope import stm

frames = stm.Service(sys.argv[1]).create("frames", item_bytes=int(sys.argv[2]))
frames.output().put(1, sys.argv[2].encode())
"""


class Serving:
    """A service, and where it says that it serves other hosts."""

    def __init__(self, path: Path, *options: str | Path) -> None:
        command = [host_binary(), "stm", "serve", "--socket", path, *options]
        self.path = path
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.lines = [self.process.stdout.readline()]
        if "--listen" in options:
            self.lines.append(self.process.stdout.readline())

    @property
    def address(self) -> str:
        return self.lines[1].rpartition(" ")[2].strip()

    def said(self, words: str) -> str:
        """The first line with some words that it says on its standard error."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if words in line)

    def end(self, sent: signal.Signals = signal.SIGTERM) -> str:
        """Ends it; what it has said on its standard error."""
        self.process.send_signal(sent)
        _, errors = self.process.communicate(timeout=30)
        return str(errors)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_bytes(secrets.token_bytes(32))
    return file


@contextmanager
def serving(path: Path, *options: str | Path) -> Iterator[Serving]:
    service = Serving(path, *options)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.end()
        service.process.stdout and service.process.stdout.close()
        service.process.stderr and service.process.stderr.close()


def wait_until(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def is_past(puts: list[float], goal: float) -> bool:
    return puts[1] > goal


def listed(path: Path) -> dict[str, Any]:
    with stm.Service(path) as service:
        (channel,) = service.list()
    return dict(channel)


def test_a_program_gets_what_another_services_program_puts(tmp_path: Path, key: Path) -> None:
    """The one that opens a channel first makes it at home, wherever it is."""
    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--key", key) as home:
        at = f"frames={home.address}"
        with serving(tmp_path / "away", "--home", at, "--key", key) as away:
            into = stm.Service(away.path).create("frames", item_bytes=100, capacity=9).input()
            frames = stm.Service(home.path).create("frames", item_bytes=100, capacity=9)
            out = frames.output()
            out.put(5, b"five", half_width=2)
            with into.oldest(timeout=10) as item:
                assert (item.time, item.half_width, bytes(item.view)) == (5, 2, b"five")
                # One clock has told both, so that what is known of its error is so.
                assert item.age_error_ns > 0 and item.age_ns >= -item.age_error_ns
            look = into.look()
            assert (look.time, look.data) == (5, b"five") and look.age_error_ns > 0
            (mirror,) = stm.Service(away.path).list()
            assert mirror["home"] == home.address and mirror["items"] == 1
            command = [LOOPSCOPE, "stm", "list", "--socket", away.path]
            table = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
            assert f"frames (home {home.address})" in table
            into.consume_until(5)
            wait_until("the home frees it", lambda: listed(home.path)["items"] == 0)
            # Programs of both hosts put.
            elsewhere = stm.Service(away.path).open("frames", puts=True).output()
            elsewhere.put(6, array("H", [1, 2, 3]))
            with elsewhere.loan(3) as loan:
                loan.view[:] = b"six"
                with pytest.raises(stm.Exists):
                    loan.put(6)
                loan.view[:] = b"7th"
                loan.put(7)
            assert elsewhere.bound(7) == 7
            with pytest.raises(stm.Late):
                elsewhere.put(6, b"")
            with into.get(6, timeout=10) as item:
                assert item.view.cast("H").tolist() == [1, 2, 3]
            with into.get(7, timeout=10) as item:
                assert bytes(item.view) == b"7th" and item.age_ns >= -item.age_error_ns
            with pytest.raises(stm.StmError, match="was not opened to put items"):
                stm.Service(away.path).open("frames").output()


@pytest.mark.full
def test_a_put_elsewhere_waits_and_can_be_ended(tmp_path: Path, key: Path) -> None:
    """Where the channel is full; a signal ends the wait, and so does the end of the home."""
    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--key", key) as home:
        frames = stm.Service(home.path).create("frames", item_bytes=1000, capacity=1)
        into = frames.input()
        at = f"frames={home.address}"
        with serving(tmp_path / "away", "--home", at, "--key", key) as away:
            out = stm.Service(away.path).open("frames", puts=True).output()
            out.put(1, bytes(1000))
            begun = time.monotonic()
            with pytest.raises(stm.Full):
                out.put(2, b"", timeout=0.3)
            assert time.monotonic() - begun >= 0.3
            # A loan that is put in parts of a wait, and written to between two waits.
            loan = out.loan(3)
            for text in (b"old", b"new"):
                loan.view[:] = text
                with pytest.raises(stm.Full):
                    loan.put(2, timeout=0.2)
            threading.Timer(0.2, into.consume_until, [1]).start()
            loan.put(2, timeout=30)
            with into.get(2, timeout=0) as item:
                assert bytes(item.view) == b"new"

            def interrupts(_: int, __: Any) -> None:
                raise InterruptedError

            earlier = signal.signal(signal.SIGALRM, interrupts)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            begun = time.monotonic()
            with pytest.raises(InterruptedError):
                out.put(3, bytes(1000))
            signal.signal(signal.SIGALRM, earlier)
            assert time.monotonic() - begun < 10
            threading.Timer(0.2, home.end, [signal.SIGKILL]).start()
            with pytest.raises(stm.StmError, match="the channel's home is away"):
                out.put(3, bytes(1000))
            with pytest.raises(stm.StmError, match="the channel's home is away"):
                out.bound(9)
            with pytest.raises(stm.StmError, match="does not answer"):
                stm.Service(away.path).open("frames", puts=True).output()


@pytest.mark.full
def test_a_reader_joins_where_its_service_was_killed(tmp_path: Path, key: Path) -> None:
    """Nobody tells the home of it, and it does not wait for that."""
    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--key", key) as home:
        stm.Service(home.path).create("frames", item_bytes=8)
        at = f"frames={home.address}"
        with serving(tmp_path / "away", "--home", at, "--key", key) as away:
            frames = stm.Service(away.path).open("frames")
            frames.input().close()
            wait_until("the home knows", lambda: listed(home.path)["inputs"] == [])
            away.end(signal.SIGKILL)
            begun = time.monotonic()
            with pytest.raises(stm.NotYet):
                frames.input().oldest(timeout=0)
            assert time.monotonic() - begun < 4


@pytest.mark.full
def test_a_killed_producer_elsewhere_leaves_nothing_at_home(tmp_path: Path, key: Path) -> None:
    """It is killed at a random instant of its puts, many times."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    program = tmp_path / "producer.py"
    program.write_text(PRODUCER)
    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--key", key) as home:
        frames = stm.Service(home.path).create("frames", item_bytes=100_000, capacity=4, outputs=2)
        into = frames.input()
        at, last = f"frames={home.address}", 0
        with serving(tmp_path / "away", "--home", at, "--key", key) as away:
            for _ in range(KILLS):
                command = [sys.executable, program, away.path, str(last + 1)]
                with subprocess.Popen(command) as producer:
                    last += 1
                    into.get(last, timeout=30).release()
                    end = time.monotonic() + draw.random() * 0.05
                    while time.monotonic() < end:
                        into.consume_until(last)
                        with into.oldest(timeout=30) as item:
                            last = item.time
                            assert bytes(item.view) == last.to_bytes(8, "little") * (last % 12_500)
                    producer.kill()
                wait_until("its connection has ended", lambda: listed(home.path)["outputs"] == [])
                # A put that it had sent may be there.
                with suppress(stm.NotYet):
                    with into.newest(timeout=0) as item:
                        last = item.time
                into.consume_until(last)
                counts = frames.counts()
                assert (counts.present, counts.free) == (0, 6)
                assert counts.put == counts.collected


def test_options_that_make_no_sense_are_told(tmp_path: Path, key: Path) -> None:
    def told(*options: str | Path) -> str:
        command = [host_binary(), "stm", "serve", "--socket", tmp_path / "socket", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode != 0 and not (tmp_path / "socket").exists()
        return done.stderr

    assert "--key" in told("--listen", "127.0.0.1:0")
    assert "CHANNEL=ADDRESS:PORT" in told("--home", "127.0.0.1:7421", "--key", key)
    assert "is no ADDRESS:PORT" in told("--home", "frames=nowhere", "--key", key)
    assert "is no ADDRESS:PORT" in told("--listen", "127.0.0.1", "--key", key)
    twice = ["--home", "f=127.0.0.1:1", "--home", "f=127.0.0.1:2"]
    assert "channel f has two homes" in told(*twice, "--key", key)
    short = tmp_path / "short"
    short.touch(mode=0o600)
    short.write_bytes(b"secret")
    assert "16 bytes or more" in told("--listen", "127.0.0.1:0", "--key", short)
    key.chmod(0o644)
    assert "chmod 600" in told("--listen", "127.0.0.1:0", "--key", key)
    assert "cannot use the key" in told("--listen", "127.0.0.1:0", "--key", tmp_path / "none")


@pytest.mark.full
def test_a_service_that_is_killed_is_followed_by_the_next_one(tmp_path: Path, key: Path) -> None:
    """The home's, and that of readers: both sides have their channels open all the time."""
    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--key", key) as home:
        address = home.address
        shared = ["--home", f"frames={address}", "--key", key]
        with serving(tmp_path / "away", *shared) as away:
            frames = stm.Service(home.path).create("frames", item_bytes=8)
            out = frames.output()
            there = stm.Service(away.path).open("frames", puts=True)
            into = there.input()
            for number in (1, 2):
                out.put(number, b"%d" % number)
            into.get(1, timeout=10).release()
            into.consume_until(1)
            home.end(signal.SIGKILL)
            out.put(3, b"3")
            with serving(home.path, "--listen", address, "--key", key) as home:
                out.put(4, b"4")
                for number in (2, 3, 4):
                    assert bytes(into.get(number, timeout=10).view) == b"%d" % number
                    into.consume_until(number)
                there.output().put(5, b"5")
                with frames.input() as near:
                    assert bytes(near.get(5, timeout=10).view) == b"5"
                into.get(5, timeout=10).release()
                into.consume_until(5)
                # Now that of the other host.
                away.end(signal.SIGKILL)
                out.put(6, b"6")
                with serving(away.path, *shared):
                    out.put(7, b"7")
                    for number in (6, 7):
                        assert bytes(into.get(number, timeout=10).view) == b"%d" % number
                        into.consume_until(number)
                    there.output().put(8, b"8")
                    assert bytes(into.get(8, timeout=10).view) == b"8"
                    into.consume_until(8)
                    counts = into.counts()
                    assert (counts.lost, counts.skipped, there.restarts) == (0, 0, 0)
                    wait_until("all is freed", lambda: frames.counts().present == 0)


@pytest.mark.full
def test_a_home_that_begins_anew_goes_on_with_its_readers(tmp_path: Path, key: Path) -> None:
    """All that used the channel there has ended, as after a crash of the host."""
    producer = tmp_path / "producer.py"
    producer.write_text(RETAINING)

    def produces(path: Path, first: int, last: int) -> subprocess.Popen[str]:
        words = [sys.executable, producer, path, str(first), str(last)]
        made = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert made.stdout is not None and made.stdout.readline() == "done\n"
        return made

    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--key", key) as home:
        address = home.address
        with serving(tmp_path / "away", "--home", f"frames={address}", "--key", key) as away:
            first = produces(home.path, 1, 4)
            there = stm.Service(away.path).open("frames", puts=True)
            into, other = there.input(), there.input()
            into.get(1, timeout=10).release()
            into.consume_until(1)
            into.get(4, timeout=10).release()
            home.end(signal.SIGKILL)
            first.kill()
            first.wait(10)
            with serving(home.path, "--listen", address, "--key", key):
                # It puts again what it has kept, and then what is new.
                second = produces(home.path, 2, 6)
                for number in range(2, 7):
                    with into.get(number, timeout=10) as item:
                        assert bytes(item.view) == b"%d" % number
                    into.consume_until(number)
                    with other.get(number, timeout=10) as item:
                        assert bytes(item.view) == b"%d" % number
                # What one had consumed does not come again.
                assert into.counts().lost == 0 and there.restarts == 1
                with pytest.raises(stm.Gone):
                    into.get(1, timeout=0)
                said = away.said("has begun anew")
                assert "is lost unless it is put again" in said
                there.output().put(7, b"7")
                with into.get(7, timeout=10) as item:
                    assert bytes(item.view) == b"7"
                second.kill()
                second.wait(10)


@pytest.mark.full
def test_a_channel_that_is_made_anew_with_other_options_is_told(tmp_path: Path, key: Path) -> None:
    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--key", key) as home:
        address = home.address
        with serving(tmp_path / "away", "--home", f"frames={address}", "--key", key) as away:
            producer = [sys.executable, "-c", CREATES, home.path]
            subprocess.run([*producer, "8"], check=True, timeout=60)
            into = stm.Service(away.path).open("frames").input()
            into.get(1, timeout=10).release()
            home.end(signal.SIGKILL)
            with serving(home.path, "--listen", address, "--key", key):
                subprocess.run([*producer, "16"], check=True, timeout=60)
                assert "programs have to open it anew" in away.said("another channel")
                # What was got before can be got still.
                assert bytes(into.get(1, timeout=0).view) == b"8"
                anew = stm.Service(away.path).open("frames").input()
                assert bytes(anew.get(1, timeout=10).view) == b"16"


@pytest.mark.full
def test_others_go_on_where_any_party_is_killed(tmp_path: Path, key: Path) -> None:
    """A reader or its service is killed at random, under load; the home's account balances."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    reader = tmp_path / "reader.py"
    reader.write_text(READER)
    with serving(tmp_path / "home", "--listen", "127.0.0.1:0", "--key", key) as home:
        frames = stm.Service(home.path).create("frames", item_bytes=4096, capacity=8)
        into = frames.input()
        ends, puts = threading.Event(), [0.0, 0]

        def produce() -> None:
            out = frames.output()
            while not ends.is_set():
                begun = time.monotonic()
                out.put(puts[1], bytes(draw.randrange(4096)), timeout=30)
                puts[0] = max(puts[0], time.monotonic() - begun)
                puts[1] += 1
                into.consume_until(int(puts[1]) - 2)

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            for _ in range(KILLS):
                at = f"frames={home.address}"
                with serving(tmp_path / "away", "--home", at, "--key", key) as away:
                    command = [sys.executable, reader, away.path]
                    with subprocess.Popen(command, stdout=subprocess.PIPE) as reads:
                        assert reads.stdout is not None and reads.stdout.readline() == b"reads\n"
                        time.sleep(draw.random() * 0.1)
                        draw.choice([reads, away.process]).kill()
                        goal = puts[1] + 20
                        wait_until("the producer goes on", partial(is_past, puts, goal))
                        reads.kill()
                    if away.process.poll() is None:
                        away.end()
        finally:
            ends.set()
            producer.join()
        print(f"{puts[1]} items; the longest put took {puts[0] * 1e3:.1f} ms")
        into.consume_until(int(puts[1]))
        wait_until("everything is freed", lambda: listed(home.path)["items"] == 0)
        account = listed(home.path)
        assert account["put"] == account["collected"] == puts[1] and account["dropped"] == 0
        assert len(account["inputs"]) == 1  # this process's
