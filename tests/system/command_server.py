"""Commands of loopscope as forks of a process that has imported it.

What a command imports takes longer than most commands do. The programs here do it once:
``server SOCKET`` forks a process for each request, ``client SOCKET WORDS`` asks for ``loopscope
WORDS`` with its own environment, folder, files 0 to 2, network and mounts, and ends as that ends.
Signals go on to it; where the client is killed it is killed, too. How the program itself starts is
tested by README.md's commands, most guides, and all that `Machine.start` starts.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

_LONGEST = 1 << 17
_NAMESPACES = ("net", "mnt")


def client(path: str, words: list[str]) -> int:
    """The exit code of a command."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    request = {"words": words, "directory": os.getcwd(), "environment": dict(os.environ)}
    spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in _NAMESPACES]
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2, *spaces])
    pid = int(connection.recv(_LONGEST))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(connection.recv(_LONGEST))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def server(path: str) -> None:
    """Serves until its standard input ends, and removes the socket and its folder.

    Returns in each process that is to be a command.
    """
    import gc
    from select import select

    _import()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    print("serves", flush=True)
    while True:
        if sys.stdin in select([listener, sys.stdin], [], [])[0]:
            os.unlink(path)
            os.rmdir(os.path.dirname(path))
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _attend(connection)
        connection.close()


def _import() -> None:
    """Imports what most commands do, and has made what they make of grammars and templates.

    Not pandas, which they avoid, and not DuckDB, which starts a thread that no fork has.
    """
    from loopscope.pandas_import import avoid_pandas

    avoid_pandas()
    import ibis.backends.sql.compilers  # noqa: F401
    import matplotlib.figure  # noqa: F401

    import loopscope.analysis.why
    import loopscope.api.checking
    import loopscope.cli.results
    import loopscope.control.execution
    import loopscope.graph.execution
    import loopscope.pipeline
    import loopscope.provider.agent
    import loopscope.report.catalogue
    import loopscope.report.chart_file
    import loopscope.report.page
    import loopscope.report.sweep_page
    import loopscope.testbed  # noqa: F401
    from loopscope.cli import app  # noqa: F401
    from loopscope.experiment import grammar
    from loopscope.report import html

    grammar.parse("expectation", "loop.p99 < 5ms", "expectation")
    for page in ("run.html", "sweep.html"):
        html._templates().get_template(page)


def _attend(connection: socket.socket) -> None:
    """Returns in a process that is as the client is, and ends when that has."""
    import gc
    from select import select

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, files, _, _ = socket.recv_fds(connection, _LONGEST, 3 + len(_NAMESPACES))
    if (command := os.fork()) == 0:
        connection.close()
        _become(json.loads(content), files)
        gc.enable()
        return
    for file in files:
        os.close(file)
    for file in range(3):
        os.close(file)
    ended = os.pidfd_open(command)
    connection.send(str(command).encode())
    if connection in select([ended, connection], [], [])[0]:
        os.kill(command, signal.SIGKILL)
    _, status = os.waitpid(command, 0)
    try:
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    except BrokenPipeError:
        pass  # The client was killed.
    os._exit(0)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Takes over the client's files 0 to 2, namespaces, folder, environment and words."""
    import ctypes
    import tempfile
    from pathlib import Path

    *standard, _, _ = files
    for number, file in enumerate(standard):
        os.dup2(file, number)
    libc = ctypes.CDLL(None, use_errno=True)
    for name, file in zip(_NAMESPACES, files[3:], strict=True):
        other = os.fstat(file).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino
        if other and libc.setns(file, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the client's namespace {name}")
    for file in files:
        os.close(file)
    os.chdir(str(request["directory"]))
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    Path("/proc/self/comm").write_text("loopscope")
    sys.argv = ["loopscope", *request["words"]]


if __name__ == "__main__":
    # Nothing here is to be taken for a module of the same name.
    if not sys.flags.isolated:
        sys.path.pop(0)
    if sys.argv[1] == "client":
        sys.exit(client(sys.argv[2], sys.argv[3:]))
    server(sys.argv[2])
    from loopscope.cli import main

    main()
