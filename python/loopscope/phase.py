"""Take part in the phases of an experiment.

A program names its phases and goes through them. The loopscope agent that started it says when
each begins; started by hand, the program runs them in the order named, with the configuration from
its command line::

    from loopscope.phase import Session

    with Session(["listen", "run"]) as session:
        for phase in session:
            if phase.name == "listen":
                phase.publish(port=listen_somewhere())
            else:
                work(session.config["count"])

A phase is done when the loop asks for the next one; what it published then goes to every program
that starts a phase later. An exception that leaves the ``with`` block fails the phase, and with it
the run; ``sys.exit("reason")`` does so without a traceback.

A program can also name a function for each phase, and one for its configuration::

    from loopscope.phase import Program

    program = Program()

    @program.configure
    def configure(session):
        open_device(session.config["device"])

    @program.phase("run")
    def run(session, phase):
        work(session.config["count"])

    program.run()

This file stands alone: Python 3.8, standard library only. Protocol: schema/phase-protocol.md.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Peer", "Phase", "PhaseError", "Program", "Session"]

# The longest line that a program may send, in bytes with its newline.
_LINE_LIMIT = 64 * 1024
# The longest line from the agent: a phase message names every component.
_AGENT_LINE_LIMIT = 16 << 20
# Longest text of a `failed` message, in bytes: even escaped it fits into a line.
_ERROR_LIMIT = 8 * 1024
_VERSION = 1

# Whether this process has taken its socket.
_taken = False


class PhaseError(Exception):
    """The dialogue with the agent failed, or the program used it in the wrong way."""


class Peer(NamedTuple):
    """A component of the experiment."""

    host: str
    #: The host's address on the data network.
    address: str
    #: Published so far.
    values: dict[str, Any]
    #: All addresses of the host on the data network, IPv4 and IPv6, ``address`` first.
    addresses: tuple[str, ...] = ()


class Phase:
    """A phase that has been started."""

    def __init__(self, name: str, measured: bool, peers: dict[str, Peer]) -> None:
        self.name = name
        #: Whether the experiment is measured in this phase.
        self.measured = measured
        #: Every component of the experiment by name; empty without an agent.
        self.peers = peers
        self._values: dict[str, Any] = {}

    def publish(self, **values: Any) -> None:
        """Keep strings or finite numbers that the end of this phase publishes; each name once."""
        for name, value in values.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (isinstance(value, str) or (number and math.isfinite(value))):
                raise PhaseError(
                    f"cannot publish `{name}`: {value!r} is neither a string nor a finite number"
                )
            if name in self._values:
                raise PhaseError(f"cannot publish `{name}` twice in a phase")
            self._values[name] = value


class Session:
    """A program's part in an experiment's phases; one per process.

    `arguments` (default: the program's own command line) holds ``--key value`` and ``--key=value``;
    a value that is a JSON number, ``true`` or ``false`` becomes that, any other a string. With an
    agent its configuration wins, key by key. `configure` is called with the session once that has
    its configuration, before the agent knows the program's phases; what it raises fails the run.
    Raises PhaseError.
    """

    def __init__(
        self,
        phases: Sequence[str],
        arguments: Sequence[str] | None = None,
        configure: Callable[[Session], object] | None = None,
    ) -> None:
        self._phases: list[str] = list(phases)
        if "" in self._phases or len(set(self._phases)) < len(self._phases):
            raise PhaseError("a phase is empty or named twice")
        #: Keys and values that the program was configured with.
        self.config: dict[str, Any] = _read_arguments(
            sys.argv[1:] if arguments is None else arguments
        )
        #: This component's name in the experiment, and its host's; None without an agent.
        self.component: str | None = None
        self.host: str | None = None
        self._current: Phase | None = None
        self._socket = _take_socket()
        if self._socket is None:
            if configure is not None:
                configure(self)
            return
        self._lines = self._socket.makefile("rb")
        message = self._read()
        if message["type"] != "configure":
            raise PhaseError("the loopscope agent sent something else before `configure`")
        version = message.get("version")
        if type(version) is not int or version != _VERSION:
            raise _wrong(
                f"a `configure` that is not of version {_VERSION}, the one this program speaks",
                message,
            )
        self.component = _member(message, "component", str)
        self.host = _member(message, "host", str)
        self.config.update(_member(message, "config", dict))
        if configure is not None:
            self._current = Phase("configure", False, {})
            try:
                configure(self)
            except BaseException as error:
                self.__exit__(type(error), error, None)
                raise
            self._current = None
        self._send({"type": "hello", "version": _VERSION, "phases": self._phases})

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if self._current is not None:
                failed = {"type": "failed", "phase": self._current.name, "error": _reason(error)}
                self._current = None
                self._send(failed)
        except PhaseError:
            # The program's own error is the cause; that the agent could not be told as well would
            # hide it.
            if error is None:
                raise
        finally:
            if self._socket is not None:
                self._lines.close()
                self._socket.close()

    def __iter__(self) -> Iterator[Phase]:
        for phase in self._alone() if self._socket is None else self._from_agent():
            self._current = phase
            yield phase
            done: dict[str, Any] = {"type": "done", "phase": phase.name}
            if phase._values:
                done["values"] = phase._values
            self._send(done)
            self._current = None

    def _alone(self) -> Iterator[Phase]:
        for name in self._phases:
            yield Phase(name, False, {})

    def _from_agent(self) -> Iterator[Phase]:
        while True:
            message = self._read()
            if message["type"] == "end":
                return
            if message["type"] == "configure":
                raise _wrong("a second `configure`", message)
            if message["type"] != "phase":
                raise _wrong("a message of an unknown type", message)
            name = _member(message, "phase", str)
            measured = _member(message, "measured", bool)
            peers: dict[str, Peer] = {}
            for peer, about in _member(message, "peers", dict).items():
                if not isinstance(about, dict):
                    raise _wrong("a peer that is no object", message)
                address = _member(about, "address", str)
                addresses = about.get("addresses", [address])
                if not isinstance(addresses, list) or not all(
                    isinstance(each, str) for each in addresses
                ):
                    raise _wrong("`addresses` that are no list of strings", message)
                peers[peer] = Peer(
                    _member(about, "host", str),
                    address,
                    _member(about, "values", dict),
                    tuple(addresses),
                )
            if name not in self._phases:
                raise PhaseError(
                    f"the loopscope agent sent phase `{name}`, "
                    "which this program does not take part in"
                )
            if "start_ns" in message:
                at_ns = _wait_until(_member(message, "start_ns", int))
                self._send({"type": "begun", "phase": name, "at_ns": at_ns})
            yield Phase(name, measured, peers)

    def _read(self) -> dict[str, Any]:
        try:
            line = self._lines.readline(_AGENT_LINE_LIMIT)
        except OSError as error:
            raise PhaseError(f"cannot talk to the loopscope agent: {error.strerror}") from None
        if not line:
            raise PhaseError("the loopscope agent closed the connection without ending the run")
        if not line.endswith(b"\n"):
            raise PhaseError(
                f"the loopscope agent sent a line of more than {_AGENT_LINE_LIMIT} bytes"
                if len(line) == _AGENT_LINE_LIMIT
                else "the loopscope agent sent a line without its end, and closed the connection"
            )
        try:
            message = _parse(line.decode("utf-8"))
            # Lone surrogates, which the json module lets through, cannot be encoded.
            json.dumps(message, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise _wrong(f"a line that is not a JSON object ({error})", line) from None
        if not isinstance(message, dict):
            raise _wrong("a line that is not a JSON object", line)
        _member(message, "type", str)
        return message

    def _send(self, message: dict[str, Any]) -> None:
        try:
            text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            line = text.encode("utf-8") + b"\n"
        except UnicodeEncodeError as error:
            raise PhaseError(f"a message to the agent is not valid text: {error}") from None
        if len(line) > _LINE_LIMIT:
            raise PhaseError(
                f"a message to the agent may have {_LINE_LIMIT} bytes, this one has {len(line)}"
            )
        if self._socket is None:
            return
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise PhaseError(f"cannot talk to the loopscope agent: {error.strerror}") from None


class Program:
    """A program as a table of functions, one for each phase.

    A function is called when its phase begins; the phase is done when it returns.
    """

    def __init__(self) -> None:
        self._configure: Callable[[Session], object] | None = None
        self._functions: dict[str, Callable[[Session, Phase], object]] = {}

    def configure(self, function: Callable[[Session], object]) -> Callable[[Session], object]:
        """Decorate the function that is called once, when the program has its configuration."""
        self._configure = function
        return function

    def phase(
        self, name: str
    ) -> Callable[[Callable[[Session, Phase], object]], Callable[[Session, Phase], object]]:
        """Decorate the function of a phase; each phase once. Raises PhaseError."""
        if name in self._functions:
            raise PhaseError(f"phase `{name}` has a function already")

        def take(
            function: Callable[[Session, Phase], object],
        ) -> Callable[[Session, Phase], object]:
            self._functions[name] = function
            return function

        return take

    def run(self, arguments: Sequence[str] | None = None) -> None:
        """Take part in the run until its end. Raises PhaseError."""
        with Session(list(self._functions), arguments, self._configure) as session:
            for phase in session:
                self._functions[phase.name](session, phase)


def _take_socket() -> socket.socket | None:
    global _taken
    value = os.environ.get("LOOPSCOPE_PHASE_FD")
    if value is None:
        return None
    problem = f"LOOPSCOPE_PHASE_FD is `{value}`, %s; unset it to run the phases without an agent"
    if not (value.isascii() and value.isdigit()):
        raise PhaseError(problem % "which is not a number")
    if _taken:
        raise PhaseError(problem % "whose socket this program has already taken")
    try:
        stream = socket.socket(fileno=int(value))
    except (OSError, OverflowError):
        raise PhaseError(problem % "which is not an open stream socket") from None
    if stream.type != socket.SOCK_STREAM:
        stream.detach()
        raise PhaseError(problem % "which is not an open stream socket")
    stream.set_inheritable(False)
    _taken = True
    return stream


def _read_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        key, equals, value = word[2:].partition("=")
        if not word.startswith("--") or not key:
            raise PhaseError(f"`{word}` on the command line is not --key value or --key=value")
        if not equals:
            following = next(words, None)
            if following is None:
                raise PhaseError(f"`{word}` on the command line is not --key value or --key=value")
            value = following
        config[key] = _scalar(value)
    return config


def _scalar(value: str) -> Any:
    try:
        parsed = _parse(value)
    except (ValueError, RecursionError):
        return value
    # Blanks around a number are JSON but nobody's intention.
    return parsed if isinstance(parsed, (int, float)) and value == value.strip() else value


def _parse(text: str) -> Any:
    return json.loads(text, parse_float=_finite, parse_constant=_no_constant)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"number out of range: {text}")
    return number


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _wait_until(start_ns: int) -> int:
    """Wait until CLOCK_MONOTONIC has this value; its value afterwards, both in nanoseconds."""
    # A sleep may take longer by some 100 µs.
    while True:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if now >= start_ns:
            return now
        if start_ns - now > 500_000:
            time.sleep((start_ns - now - 400_000) / 1e9)


def _member(message: dict[str, Any], key: str, kind: type) -> Any:
    value = message.get(key)
    if not isinstance(value, kind):
        names = {str: "string", dict: "object", bool: "true or false", int: "whole number"}
        raise _wrong(f"no {names[kind]} as `{key}`", message)
    return value


def _wrong(what: str, message: Any) -> PhaseError:
    is_line = isinstance(message, bytes)
    text = message.decode("utf-8", "replace") if is_line else json.dumps(message, allow_nan=False)
    return PhaseError(f"the loopscope agent sent {what}: {text.rstrip()[:120]}")


def _reason(error: BaseException | None) -> str:
    if error is None or (isinstance(error, SystemExit) and not isinstance(error.code, str)):
        text = "the program ended inside the phase"
    elif isinstance(error, (SystemExit, PhaseError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    cut = text.encode("utf-8", "replace")[:_ERROR_LIMIT]
    return cut.decode("utf-8", "ignore")
