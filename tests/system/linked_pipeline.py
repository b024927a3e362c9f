"""An experiment of three hosts in a row, a message every 5 ms."""

from __future__ import annotations

_EXPERIMENT = """\
name: links
hosts: [h1, h2, h3]
params: {count: COUNT}
network:
  NETWORK
clocks: CLOCKS
components:
  source: {host: h1, run: loopscope-host pipe source, with: {to: node, count: $count, period: 5ms}}
  node: {host: h2, run: loopscope-host pipe node, with: {to: sink}}
  sink: {host: h3, run: loopscope-host pipe sink}
phases:
  - {name: listen, timeout: 10s}
  - {name: connect, timeout: 10s}
  - {name: run, measured: true, timeout: 120s}
trace: {user: ["pipe:*"], kernel: off}
measure:
  paths:
    loop: {events: [source/pipe:sent, node/pipe:received, node/pipe:sent, sink/pipe:received]}
expect: [loop.lost == 0]
"""


def linked_pipeline(*network: str, clocks: str = "plain", count: int = 100) -> str:
    """Its file, with these lines of `network`."""
    text = _EXPERIMENT.replace("NETWORK", "\n  ".join(network))
    return text.replace("CLOCKS", clocks).replace("COUNT", str(count))
