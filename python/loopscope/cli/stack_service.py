"""Whether the machine's service of the user-mode TCP stack answers."""

from __future__ import annotations

import json
import shlex
import socket
from pathlib import Path

DEFAULT = Path("/run/loopscope/stack.sock")

_PATIENCE_S = 10.0
"""Time for its answer."""
_LINE = 1 << 16
"""Bytes of its answer, at most."""


class ServiceError(Exception):
    """The service is not there or does not serve. The text says what to do."""


def ask(path: Path) -> None:
    """Looks whether the service accepts programs, and takes nothing from it.

    Raises:
        ServiceError: no service serves there.
    """
    serve = f"start it by: {_command(path)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.settimeout(_PATIENCE_S)
        try:
            stream.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            raise ServiceError(f"no service of the stack is at {path}; {serve}") from None
        except PermissionError:
            raise ServiceError(f"{path}: this user may not use the service there") from None
        except OSError as error:
            raise ServiceError(f"{path}: {error.strerror or error}; {serve}") from None
        line = _line(stream, path, serve)
    if not line:
        return
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    match answer:
        case {"refused": str(why)}:
            raise ServiceError(f"the service of the stack at {path} refuses: {why}")
    raise ServiceError(f"what serves at {path} is not loopscope's service of the stack; {serve}")


def _command(path: Path) -> str:
    """What starts a service at a path. sudo does not look where virtual environments are."""
    from loopscope.testbed import TestbedError, host_binary

    try:
        program = str(host_binary())
    except TestbedError:
        program = "loopscope-host"
    option = [] if path == DEFAULT else ["--socket", str(path)]
    return shlex.join(["sudo", program, "stack", "serve", *option])


def _line(stream: socket.socket, path: Path, serve: str) -> bytes:
    """The line that it answers. It is empty where a program may go on.

    A program that asks for nothing gets no devices (crates/stack-service/src/service.rs, `begins`).
    """
    line = b""
    try:
        stream.shutdown(socket.SHUT_WR)
        while not line.endswith(b"\n") and len(line) < _LINE:
            part = stream.recv(_LINE)
            if not part:
                break
            line += part
    except TimeoutError:
        why = f"does not answer within {_PATIENCE_S:g} s; end it, and {serve}"
        raise ServiceError(f"the service of the stack at {path} {why}") from None
    except OSError as error:
        raise ServiceError(f"the service of the stack at {path}: {error.strerror}") from None
    return line
