"""A program that knows nothing of the stack: echoes, or calls one that does, in several ways.

Both ends say the digest of what the caller has sent.
"""

import asyncio
import hashlib
import random
import select
import socket
import sys
import threading

COUNT = 400
MANY = 12


def messages():
    """The messages of the caller, the same each time."""
    source = random.Random(7)
    return [source.randbytes(source.choice([1, 64, 1500, 40_000])) for _ in range(COUNT)]


EPOLLS = {}


def wait_by_epoll(connection, way, event):
    """Waits for an event, as the way asks for."""
    if way == "edges":
        if connection not in EPOLLS:
            EPOLLS[connection] = select.epoll()
            EPOLLS[connection].register(
                connection, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET
            )
        # Only after a call that did not find anything.
        EPOLLS[connection].poll(20)
        return
    flags = event | (select.EPOLLONESHOT if way == "oneshot" else 0)
    if connection not in EPOLLS:
        EPOLLS[connection] = select.epoll()
        EPOLLS[connection].register(connection, flags)
    else:
        EPOLLS[connection].modify(connection, flags)
    assert EPOLLS[connection].poll(20) == [(connection.fileno(), event)]
    if way == "oneshot":
        assert EPOLLS[connection].poll(0) == []


BY_EPOLL = ("epoll", "oneshot")
NONBLOCKING = ("select", "poll", "edges", *BY_EPOLL)


def receive(connection, way, size):
    """Up to so many bytes; empty at the end."""
    while True:
        if way in BY_EPOLL:
            wait_by_epoll(connection, way, select.EPOLLIN)
        if way == "select":
            assert select.select([connection], [], [], 20)[0]
        if way == "poll":
            poller = select.poll()
            poller.register(connection, select.POLLIN)
            assert poller.poll(20_000)
        try:
            return connection.recv(size)
        except BlockingIOError:
            if way == "edges":
                wait_by_epoll(connection, way, select.EPOLLIN)


def send(connection, way, data):
    """All of it."""
    while data:
        if way == "select":
            assert select.select([], [connection], [], 20)[1]
        if way == "poll":
            poller = select.poll()
            poller.register(connection, select.POLLOUT)
            assert poller.poll(20_000)
        if way in BY_EPOLL:
            wait_by_epoll(connection, way, select.EPOLLOUT)
        if way in NONBLOCKING:
            try:
                data = data[connection.send(data) :]
            except BlockingIOError:
                if way == "edges":
                    wait_by_epoll(connection, way, select.EPOLLOUT)
        else:
            connection.sendall(data)
            data = b""


def prepare(connection, way):
    """Has the socket be as the way asks for."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if way in NONBLOCKING:
        connection.setblocking(False)
    if way == "timeouts":
        connection.settimeout(20)


def answer(way, address):
    """Echoes until the end."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.create_server(address, family=family)
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
    connection.setblocking(True)
    assert receive(connection, "blocking", 1) == b""
    print(digest.hexdigest())


def serve_many(address):
    """Answers many connections, each in a thread of its own, until all have ended."""
    listener = socket.create_server(address)
    print("ready", flush=True)
    threads, digests = [], []

    def serve(connection):
        digest = hashlib.sha256()
        while data := connection.recv(65_536):
            digest.update(data)
            connection.sendall(data)
        connection.close()
        digests.append(digest.hexdigest())

    for _ in range(MANY):
        threads.append(threading.Thread(target=serve, args=listener.accept()[:1]))
        threads[-1].start()
    for thread in threads:
        thread.join()
    print(*sorted(digests))


def call_many(address):
    """Calls by many threads, each of which has a connection."""
    digests = []

    def talk(number):
        source = random.Random(number)
        connection = socket.create_connection(address)
        digest = hashlib.sha256()
        for _ in range(COUNT // 2):
            message = source.randbytes(source.choice([1, 64, 1500, 20_000]))
            digest.update(message)
            connection.sendall(message)
            assert receive_all(connection, len(message)) == message
        connection.close()
        digests.append(digest.hexdigest())

    threads = [threading.Thread(target=talk, args=[number]) for number in range(MANY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(*sorted(digests))


def receive_all(connection, size):
    """So many bytes."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more
        data += more
    return data


async def echo(reader, writer, digest, done):
    """Echoes until the end."""
    while data := await reader.read(65_536):
        digest.update(data)
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()
    done.set()


async def answer_by_asyncio(host, port):
    """Answers one connection."""
    digest, done = hashlib.sha256(), asyncio.Event()
    server = await asyncio.start_server(lambda r, w: echo(r, w, digest, done), host, port)
    print("ready", flush=True)
    await done.wait()
    server.close()
    print(digest.hexdigest())


async def call_by_asyncio(host, port):
    """Sends all while it reads."""
    reader, writer = await asyncio.open_connection(host, port)
    whole = b"".join(messages())

    async def write():
        for message in messages():
            writer.write(message)
            await writer.drain()

    task = asyncio.create_task(write())
    assert await reader.readexactly(len(whole)) == whole
    await task
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    print(hashlib.sha256(whole).hexdigest())


def main():
    """The words: what to do, which way, and the address."""
    act, way, host, port = sys.argv[1:]
    if way == "asyncio":
        acts = {"answer": answer_by_asyncio, "call": call_by_asyncio}
        asyncio.run(acts[act](host, int(port)))
        return
    if way == "many":
        {"answer": serve_many, "call": call_many}[act]((host, int(port)))
        return
    {"answer": answer, "call": call}[act](way, (host, int(port)))


main()
