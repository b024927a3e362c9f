"""A machine over the system's ssh: one connection for a shell, files there and back, an agent."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shlex
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import IO, Any

from loopscope.experiment import Machine
from loopscope.provider import TestbedError
from loopscope.provider.patience import within
from loopscope.testbed import packing
from loopscope.testbed.program import dormant
from loopscope.testbed.unpack import Unpacked, UnpackError, unpack

# A line after which output is that of our command: a shell's start files may print before it.
MARK = "loopscope-begins-here"
# For the connection and the login, between looks whether that is done, and for a short command.
LOGIN_S = 30.0
LOOK_S = 0.01
SHORT_S = 10.0
# What a short command may print, in bytes; its lines have to be shorter than asyncio's limit.
LONGEST_ANSWER = 1 << 20
# A copy of files goes on for as long as it gets so many bytes in so long.
SLOWEST = 1 << 15
SLOWEST_S = 30.0
# Exit status of ssh where it has failed itself.
LOST = 255
# For a process to end whose input is closed.
END_S = 2.0
# No question can be answered, nothing is forwarded, only known hosts are trusted. A connection on
# which nothing arrives is closed after 15 s.
OPTIONS = [
    *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes"),
    *("-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none", "-o", "RequestTTY=no"),
    *("-o", "ControlPersist=no", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
]
# A connection has no input by which it would see that this process was killed. The kernel tells it
# (PR_SET_PDEATHSIG(2const)), unless that was so before it was asked: then it has another parent.
DIES_WITH = ("setpriv", "--pdeathsig", "TERM", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')
# What ssh prints, and what to do about it.
REMEDIES = {
    "IDENTIFICATION HAS CHANGED": "its host key is not the one that is known. If the machine was "
    "set up anew, remove the old key with ssh-keygen -R, then connect once by hand: {by_hand}",
    "Host key verification failed": "its host key is not known. Connect once by hand, to compare "
    "and accept it: {by_hand}",
    "Permission denied (": "it refuses the login, which has to work without a question: give a key "
    "(`key:` in `machines`, ~/.ssh/config), and a key with a passphrase to ssh-agent. By hand: "
    "{by_hand}",
}

# What programs on a machine print where they may not write.
NO_RIGHT = ("Permission denied", "Read-only file system")


def check_programs() -> None:
    """Raises TestbedError where this machine lacks a program that connections need."""
    for program, package in (("ssh", "openssh-client"), ("setpriv", "util-linux")):
        if shutil.which(program) is None:
            raise TestbedError(f"testbed ssh needs the program {program}: install {package}")


def by_hand(machine: Machine) -> str:
    """The command by which a person logs in to a machine."""
    jump = ["-J", machine.jump] if machine.jump is not None else []
    return shlex.join(["ssh", *jump, *_destination(machine)])


def _through(jumps: list[str]) -> list[str]:
    """The option by which ssh comes through other machines, each with the options of our own.

    ssh(1) does not pass them on to machines that ``-J`` names.
    """
    if not jumps:
        return []
    *before, last = jumps
    to = last if last.startswith("ssh://") else f"ssh://{last}"
    # Each ssh takes one of the two percent signs.
    inner = [word.replace("%", "%%") for word in _through(before)]
    words = shlex.join(["ssh", *OPTIONS, *inner, "-W", "[%h]:%p", to])
    return ["-o", f"ProxyCommand={words}"]


def _destination(machine: Machine) -> list[str]:
    to = []
    for option, value in (("-l", machine.user), ("-p", machine.port)):
        to += [option, str(value)] if value is not None else []
    if machine.key is not None:
        to += ["-i", os.path.expanduser(machine.key), "-o", "IdentitiesOnly=yes"]
    return [*to, machine.address]


class SshMachine:
    """A machine, not yet connected to. Every method raises TestbedError."""

    def __init__(self, host: str, machine: Machine, control: Path) -> None:
        """``control``: where the socket is made that the sessions share."""
        self.host = host
        self.address = machine.address
        self.become = machine.become
        self._by_hand = by_hand(machine)
        self._control = control
        jumps = machine.jump.split(",") if machine.jump is not None else []
        self._to = [*_through(jumps), *_destination(machine)]
        # A session has the connection that is there or none at all.
        self._over = ["-o", "ProxyCommand=exec false", machine.address]
        self._messages: IO[bytes] = tempfile.TemporaryFile()
        self._connection: Process | None = None

    @property
    def _printed(self) -> str:
        # Not by the file's position, which those that write have too.
        return os.pread(self._messages.fileno(), 1 << 16, 0).decode(errors="replace")

    @property
    def last_words(self) -> str:
        """The end of what ssh, and programs over it, printed as errors."""
        return "; ".join(printable_lines(self._printed)[-3:])

    def error(self, what: str) -> TestbedError:
        """An error of this machine, with what was printed as errors."""
        because = f": {self.last_words}" if self.last_words else ""
        return TestbedError(f"host {self.host}: {what}{because}")

    async def _start(
        self, *words: str, stdin: int = PIPE, stdout: int = PIPE, stderr: int | None = None
    ) -> Process:
        # In a session of its own: Ctrl-C is for the run, which ends it in order.
        return await asyncio.create_subprocess_exec(
            *DIES_WITH,
            str(os.getpid()),
            "ssh",
            *OPTIONS,
            "-S",
            self._control,
            *words,
            stdin=stdin,
            stdout=stdout,
            stderr=self._messages if stderr is None else stderr,
            env=dormant(),
            start_new_session=True,
        )

    async def connect(self) -> None:
        """Logs in. The connection lasts until it is closed, or this process is gone.

        Nothing runs on the machine for it, which would stay there where the network is cut.
        """
        connection = self._connection = await self._start("-M", "-N", *self._to)
        end = asyncio.get_running_loop().time() + LOGIN_S
        while not self._control.exists():
            if connection.returncode is not None:
                raise self._refused(connection.returncode)
            if asyncio.get_running_loop().time() > end:
                raise self.error(f"there is no connection within {LOGIN_S:.0f} s")
            await asyncio.sleep(LOOK_S)

    def _refused(self, code: int) -> TestbedError:
        """The error of a login, with the remedy where ssh says something that is known.

        Nothing but ssh has printed anything then.
        """
        for known, remedy in REMEDIES.items() if code == LOST else ():
            if known in self._printed:
                remedy = remedy.format(by_hand=self._by_hand)
                return TestbedError(f"host {self.host}: {remedy} (ssh says: {self.last_words})")
        return self.error("there is no connection")

    async def ask(self, script: str, timeout_s: float = SHORT_S) -> list[str]:
        """Runs a script in the machine's shell; the lines that it prints, without empty ones."""
        process = await self._session(f"( {script} ) 2>&1", stdin=DEVNULL)
        try:
            printed = await within(timeout_s, _read_all(process))
            await within(timeout_s, process.wait())
        except asyncio.TimeoutError:
            raise self.error(f"it does not answer within {timeout_s:.0f} s") from None
        except _TooLongError:
            raise TestbedError(f"host {self.host}: its answer has no end") from None
        finally:
            await end(process)
        _, mark, text = printed.decode(errors="replace").partition(f"{MARK}\n")
        if not mark:
            raise self.error("the connection is lost")
        lines = printable_lines(text)
        if process.returncode == LOST:
            raise self.error("the connection is lost")
        if process.returncode != 0:
            said = "; ".join(lines[-3:])
            raise TestbedError(f"host {self.host}: {script.split(' ')[0]} failed: {said}")
        return lines

    async def _gone(self, process: Process) -> None:
        """Waits until a process has ended that is about to, so that its last words are there."""
        try:
            await within(END_S, process.wait())
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()

    async def run(self, script: str, stdin: bytes, purpose: str, remedy: str) -> None:
        """Runs a script over a session of its own, with that as its standard input.

        ``purpose``, such as "send files", and ``remedy``, where a right is missing, are for the
        message of its error.
        """
        process = await self._session(f"( {script} ) 2>&1")
        try:
            printed, _ = await asyncio.gather(_read_all(process), _write(process, stdin))
            await process.wait()
        except _TooLongError:
            raise TestbedError(f"host {self.host}: its answer has no end") from None
        finally:
            await end(process)
        if process.returncode == LOST:
            raise self.error("the connection is lost")
        if process.returncode != 0:
            said = printable_lines(printed.decode(errors="replace").partition(f"{MARK}\n")[2])
            why = "; ".join(line[-200:] for line in said[:2])
            why = why or f"exit status {process.returncode}"
            if any(known in why for known in NO_RIGHT):
                why = f"{why}; {remedy}"
            raise TestbedError(f"host {self.host}: cannot {purpose}: {why}")

    async def start(self, script: str) -> Process:
        """Starts a script over a session of its own, which prints MARK before anything else."""
        return await self._session(script)

    async def attend(self, script: str) -> int:
        """Runs a script on this process's terminal, where it may ask; its exit status."""
        terminal = "force" if sys.stdin.isatty() else "no"
        process = await asyncio.create_subprocess_exec(
            "ssh",
            *("-o", f"RequestTTY={terminal}", *OPTIONS),
            "-S",
            self._control,
            *self._over,
            f"exec sh -c {shlex.quote(script)}",
            env=dormant(),
        )
        return await process.wait()

    async def _session(
        self, script: str, stdin: int = PIPE, stdout: int = PIPE, stderr: int | None = None
    ) -> Process:
        # As `dormant` has it here.
        script = f"echo; echo {MARK}; export LOOPSCOPE_RUNTIME_DIR=; {script}"
        command = f"exec sh -c {shlex.quote(script)}"
        return await self._start(*self._over, command, stdin=stdin, stdout=stdout, stderr=stderr)

    async def fetch(self, folder: str, name: str, into: Path, quota_bytes: int) -> Unpacked:
        """Copies ``folder/name`` to ``into/name``.

        Entries that cannot be kept, or that the user there cannot read, are left out. Raises
        UnpackError and OSError besides.
        """
        readable, writable = os.pipe()
        try:
            process = await self._session(packing.command(folder, name), DEVNULL, writable, PIPE)
        except BaseException:
            os.close(readable)
            raise
        finally:
            os.close(writable)
        # A thread, because tarfile reads as a file does. It ends when the process does.
        stream = _Counted(readable)
        work = asyncio.to_thread(_unpack, stream, into, name, quota_bytes)
        reading = asyncio.ensure_future(work)
        unpacked: Unpacked | UnpackError
        messages = packing.Messages(name)
        assert process.stderr is not None
        printed = asyncio.ensure_future(messages.read(process.stderr))
        try:
            unpacked = await _while_it_comes(reading, stream)
        except UnpackError as error:
            unpacked = error
        except asyncio.TimeoutError:
            raise self.error(
                f"fewer than {SLOWEST} bytes of its files came in {SLOWEST_S:g} s"
            ) from None
        except EOFError:
            await self._gone(process)
            raise self.error("the connection is lost") from None
        finally:
            if not reading.done():
                process.kill()
            await asyncio.wait({reading})
            await end(process)
            await asyncio.wait({printed}, timeout=END_S)
            printed.cancel()
        code = process.returncode
        lost = code is None or code < 0 or code == LOST
        tar_failed = not lost and code != 0 and not messages.explain_failure
        if isinstance(unpacked, UnpackError) and not tar_failed:
            raise unpacked
        if tar_failed:
            said = "; ".join(messages.others) or "it does not say why"
            raise TestbedError(f"host {self.host}: cannot pack {folder}/{name}: {said}")
        if lost:
            raise self.error("the connection is lost")
        if messages.unread.count:
            raise TestbedError(f"host {self.host}: {messages.unread_text(folder)}")
        assert isinstance(unpacked, Unpacked)
        unpacked.left_out.add_all(messages.left_out)
        return unpacked

    async def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            # It has no input that could end it.
            if self._connection.returncode is None:
                self._connection.terminate()
            await end(self._connection)
            self._connection = None


def printable_lines(text: str) -> list[str]:
    """The lines of a text that are not empty, without characters that cannot be printed."""
    lines = ["".join(c for c in line if c.isprintable()) for line in text.split("\n")]
    return [line for line in map(str.strip, lines) if line]


async def skip_to_mark(stream: asyncio.StreamReader) -> None:
    """Reads up to MARK. Raises EOFError where it does not come."""
    read = 0
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # a line longer than the stream's limit
            raise EOFError from None
        read += len(line)
        if line.strip() == MARK.encode():
            return
        if not line or read > LONGEST_ANSWER:
            raise EOFError


class _Counted(io.FileIO):
    """What comes from a machine; ``count`` is its bytes so far."""

    count = 0

    def readinto(self, buffer: Any) -> int | None:
        size = super().readinto(buffer)
        self.count += size or 0
        return size


async def _while_it_comes(reading: asyncio.Future[Unpacked], stream: _Counted) -> Unpacked:
    """The result of ``reading``. Raises asyncio.TimeoutError where too little comes."""
    while True:
        before = stream.count
        done, _ = await asyncio.wait({reading}, timeout=SLOWEST_S)
        if done:
            return reading.result()
        if stream.count - before < SLOWEST:
            raise asyncio.TimeoutError


def _unpack(raw: _Counted, into: Path, name: str, quota_bytes: int) -> Unpacked:
    with io.BufferedReader(raw, 1 << 16) as stream:
        while (line := stream.readline(1 << 16)).strip() != MARK.encode():
            if not line:
                raise EOFError
            if stream.raw.count > LONGEST_ANSWER:
                raise UnpackError("it prints without an end before the archive")
        return unpack(stream, into, name, quota_bytes)


class _TooLongError(Exception):
    """A command printed more than it may."""


async def _read_all(process: Process) -> bytes:
    """All that a process prints. Raises _TooLongError for more than LONGEST_ANSWER."""
    assert process.stdout is not None
    printed = bytearray()
    while data := await process.stdout.read(1 << 16):
        printed += data
        if len(printed) > LONGEST_ANSWER:
            raise _TooLongError
    return bytes(printed)


async def _write(process: Process, content: bytes) -> None:
    """Gives a process its input; one that does not read it ends by itself."""
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(content)
        await process.stdin.drain()
    process.stdin.close()


async def end(process: Process) -> None:
    """Ends a process: its input closes; if that does not do, it is killed.

    Nobody else may read what it prints.
    """
    if process.stdin is not None:
        process.stdin.close()
    try:
        await within(END_S, _ended(process))
    except asyncio.TimeoutError:
        if process.returncode is None:
            process.kill()
        try:
            await within(END_S, _ended(process))
        except asyncio.TimeoutError:
            # What else has its output open is not waited for. asyncio has no public way to give a
            # process up, and complains of one that it still has when its loop is closed.
            process._transport.close()  # type: ignore[attr-defined]


async def _ended(process: Process) -> None:
    # asyncio tells that a process has ended only when all that it printed was read.
    if process.stdout is not None:
        while await process.stdout.read(1 << 16):
            pass
    await process.wait()
