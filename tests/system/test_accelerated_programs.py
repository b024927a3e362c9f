"""`loopscope accelerate` with the machine's service, over a link to another machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ordinary_user import OrdinaryUser
from stack_machines import HERE, THERE, Namespace, service, two_machines

pytestmark = pytest.mark.usefixtures("root")

LOOPSCOPE = Path(sys.executable).parent / "loopscope"
PORT = 7000
TRIPS = 500
ECHO = f"""
import socket
listener = socket.create_server(({THERE!r}, {PORT}))
print("ready", flush=True)
while True:
    stream, _ = listener.accept()
    while said := stream.recv(1000):
        stream.sendall(said)
    stream.close()
"""
# Its last connection is over loopback, and it ends with an exit code of its own.
CALL = f"""
import socket, sys
def talk(stream, other, trips):
    for number in range(trips):
        stream.sendall(b"%06d" % number)
        assert other.recv(6, socket.MSG_WAITALL) == b"%06d" % number
with socket.create_connection(({THERE!r}, {PORT})) as stream:
    talk(stream, stream, {TRIPS})
with socket.create_server(("127.0.0.1", 0)) as listener:
    with socket.create_connection(listener.getsockname()) as stream:
        with listener.accept()[0] as other:
            talk(stream, other, 5)
print("talked")
sys.exit(4)
"""


@contextmanager
def served(path: Path) -> Iterator[Namespace]:
    """A machine with a service at this path, whose neighbour sends back what it gets."""
    with two_machines() as (here, there), service(here, path):
        command = there.words(sys.executable, "-c", ECHO)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as echo:
            assert echo.stdout is not None and echo.stdout.readline() == "ready\n"
            yield here
            echo.kill()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Namespace, Path]]:
    """Such a machine, and its service's socket."""
    path = tmp_path_factory.mktemp("service") / "stack.sock"
    with served(path) as here:
        yield here, path


def call(machine: tuple[Namespace, Path], *options: str) -> subprocess.CompletedProcess[str]:
    """A program that knows nothing of the stack, run with these options."""
    namespace, path = machine
    words = [LOOPSCOPE, "accelerate", *options, "--service", path, "--"]
    return subprocess.run(
        namespace.words(*words, sys.executable, "-c", CALL),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def explained(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    """The lines of the program's sockets, but of those that accept connections."""
    said, document = done.stdout.splitlines()
    assert said == "talked" and done.returncode == 4, done.stderr
    found = json.loads(document)
    assert found["exit"] == 4 and found["unreadable_lines"] == 0
    return [each for each in found["sockets"] if each["peer"] is not None]


def test_a_program_is_accelerated(machine: tuple[Namespace, Path]) -> None:
    done = call(machine)
    assert (done.returncode, done.stdout, done.stderr) == (4, "talked\n", "")


@pytest.mark.full
def test_a_user_without_rights_has_a_program_accelerated(user: OrdinaryUser) -> None:
    path = user.place / "stack.sock"
    words = ("accelerate", "--explain", "--json", "--service", path, "--", "python", "-c", CALL)
    with served(path) as here:
        remote, *_ = explained(user.run(here.words(*user.words(*words))))
    assert remote["accelerated"] is True
    assert int(str(remote["received_by_stack"])) >= 6 * TRIPS - 12


def test_each_socket_is_explained(machine: tuple[Namespace, Path]) -> None:
    remote, *local = explained(call(machine, "--explain", "--json"))
    assert remote["peer"] == f"{THERE}:{PORT}" and str(remote["local"]).startswith(f"{HERE}:")
    assert remote["accelerated"] is True
    size = 6 * TRIPS
    # The kernel counts the SYN of the end that has connected.
    assert (remote["received"], remote["written"]) == (size, size + 1)
    # The kernel has counted the packets that were diverted.
    for key in ("received_by_stack", "read_from_stack", "written_to_stack"):
        assert size - 12 <= int(str(remote[key])) <= size, remote
    assert len(local) == 2
    for each in local:
        assert each["accelerated"] is False and "on this machine" in str(each["why"])


def test_the_table_is_on_standard_error(machine: tuple[Namespace, Path]) -> None:
    done = call(machine, "--explain")
    assert (done.returncode, done.stdout) == (4, "talked\n")
    head, names, _, *rows = done.stderr.splitlines()
    assert head == "accelerated: 1 of 4 sockets" and "why the kernel has it" in names
    (row,) = (row for row in rows if f"{THERE}:{PORT}" in row)
    shares = r" yes +(3|2\.\d+) kB of 3 kB +2\.\d+ kB of 3\.001 kB  the program has closed it$"
    assert re.search(shares, row), row


def test_only_connections_of_the_ports_are_accelerated(machine: tuple[Namespace, Path]) -> None:
    remote, *_ = explained(call(machine, "--explain", "--json", "--only", f"80,{PORT}"))
    assert remote["accelerated"] is True
    remote, *_ = explained(call(machine, "--explain", "--json", "--only", f"80,{PORT + 1}-8000"))
    assert remote["accelerated"] is False
    assert remote["why"] == "neither of its ports is in LOOPSCOPE_STACK_ONLY"
