"""One pipeline for every testbed and user, and the kind of a result without its numbers.

The kernel's events are left out: which there are is what the user may record, and none where hosts
of one kernel have hidden clocks.
"""

from __future__ import annotations

from typing import Any

_PIPELINE = """
name: pipeline
testbed: TESTBED
hosts: [h1, h2, h3]
clocks: synthetic
clock: {port: 1319}
params: {count: 300}
components:
  source: {host: h1, run: loopscope-host pipe source,
           with: {to: node1, count: $count, period: 2ms, size: 6B}}
  node1: {host: h2, run: loopscope-host pipe node, with: {to: node2}}
  node2: {host: h3, run: loopscope-host pipe node, with: {to: sink}}
  sink: {host: h1, run: loopscope-host pipe sink}
phases:
  - {name: listen, timeout: 5s}
  - {name: connect, timeout: 5s}
  - {name: run, measured: true, timeout: 60s}
trace: {user: ["pipe:*"], kernel: off}
measure:
  paths:
    loop: {key: id, events: [source/pipe:sent, node1/pipe:received, node2/pipe:received,
                            sink/pipe:received]}
expect: [loop.count == $count, loop.lost == 0, loop < 1s]
"""


def same_pipeline(testbed: str) -> str:
    """Its file, in which only the testbed differs."""
    return _PIPELINE.replace("TESTBED", testbed)


def kind(read: Any) -> Any:
    """What there is in results, without their numbers and texts."""
    if isinstance(read, dict):
        # The reason of a verdict, which hangs on what else the machine does.
        left_out = ("problems", "reason")
        return {key: kind(value) for key, value in read.items() if key not in left_out}
    if isinstance(read, list):
        return [kind(value) for value in read]
    return type(read).__name__ if isinstance(read, str | bool) else "number or null"
