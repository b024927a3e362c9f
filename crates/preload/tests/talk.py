"""A program that knows nothing of the stack: echoes, or calls one that does, in one of several ways.

Both ends say the digest of what the caller has sent.
"""

import hashlib
import random
import select
import socket
import sys
import threading

COUNT = 400


def messages():
    """The messages of the caller, the same each time."""
    source = random.Random(7)
    return [source.randbytes(source.choice([1, 64, 1500, 40_000])) for _ in range(COUNT)]


def receive(connection, way, size):
    """Up to so many bytes; empty at the end."""
    while True:
        if way == "select":
            assert select.select([connection], [], [], 20)[0]
        if way == "poll":
            poller = select.poll()
            poller.register(connection, select.POLLIN)
            assert poller.poll(20_000)
        try:
            return connection.recv(size)
        except BlockingIOError:
            continue


def send(connection, way, data):
    """All of it."""
    while data:
        if way == "select":
            assert select.select([], [connection], [], 20)[1]
        if way == "poll":
            poller = select.poll()
            poller.register(connection, select.POLLOUT)
            assert poller.poll(20_000)
        if way in ("select", "poll"):
            try:
                data = data[connection.send(data) :]
            except BlockingIOError:
                continue
        else:
            connection.sendall(data)
            data = b""


def prepare(connection, way):
    """Has the socket be as the way asks for."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if way in ("select", "poll"):
        connection.setblocking(False)
    if way == "timeouts":
        connection.settimeout(20)


def answer(way, address):
    """Echoes until the end."""
    listener = socket.create_server(address)
    print("ready", flush=True)
    connection, _ = listener.accept()
    prepare(connection, way)
    digest = hashlib.sha256()
    if way == "file":
        with connection.makefile("rb") as source:
            for _ in range(COUNT):
                size = int(source.readline())
                data = source.read(size)
                digest.update(data)
                connection.sendall(data)
    else:
        while data := receive(connection, way, 65_536):
            digest.update(data)
            send(connection, way, data)
    connection.close()
    print(digest.hexdigest())


def call(way, address):
    """Sends messages and compares the echoes."""
    connection = socket.create_connection(address)
    prepare(connection, way)
    digest = hashlib.sha256()
    whole = b"".join(messages())

    def write_all():
        for message in messages():
            connection.sendall(message)

    if way == "threads":
        writer = threading.Thread(target=write_all)
        writer.start()
        got = b""
        while len(got) < len(whole):
            data = receive(connection, way, 65_536)
            assert data
            got += data
        writer.join()
        assert got == whole
        digest.update(got)
    else:
        for message in messages():
            digest.update(message)
            if way == "file":
                send(connection, way, b"%d\n" % len(message))
            send(connection, way, message)
            left = message
            while left:
                data = receive(connection, way, len(left))
                assert left.startswith(data) and data
                left = left[len(data) :]
    connection.shutdown(socket.SHUT_WR)
    assert receive(connection, "blocking" if way == "timeouts" else way, 1) == b""
    print(digest.hexdigest())


def main():
    """The words: what to do, which way, and the address."""
    act, way, host, port = sys.argv[1:]
    {"answer": answer, "call": call}[act](way, (host, int(port)))


main()
