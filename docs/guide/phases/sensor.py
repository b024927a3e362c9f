"""A sensor of the guide to phases: it listens, then it sends numbers to who has connected."""

import socket

from loopscope.phase import Session

server = socket.create_server(("", 0))

with Session(["connect", "run"]) as session:
    for phase in session:
        if phase.name == "connect":
            phase.publish(port=server.getsockname()[1])
        else:
            connection, _ = server.accept()
            for number in range(10):
                connection.sendall(f"{session.component} {number}\n".encode())
            connection.close()
