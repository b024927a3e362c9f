"""The fusion of the guide to phases: it connects to both sensors and prints what they send."""

import socket

from loopscope.phase import Session

connections = []

with Session(["connect", "run"]) as session:
    for phase in session:
        if phase.name == "connect":
            for name in ("left", "right"):
                peer = phase.peers[name]
                connections.append(socket.create_connection((peer.address, peer.values["port"])))
        else:
            for connection in connections:
                for line in connection.makefile():
                    print(line, end="", flush=True)
