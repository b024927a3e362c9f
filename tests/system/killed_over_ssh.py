"""``loopscope run`` of an experiment over SSH, killed at one of the controller's points.

The program of test_killed_over_ssh.py: ``EXPERIMENT LOG OUTPUT``, on the desk. For each line of
standard input, the number of a point, it runs the experiment and prints the wait status. A run is a
fork, so that imports are done once. It appends its points to the log, as killed_anywhere.py does,
and ends when its testbed is removed.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from killed_anywhere import command, count_calls, end_with_testbed, forked

from loopscope.testbed.ssh import SshTestbed


def run(file: str, log: Path, kill_at: int) -> None:
    """Runs the experiment in this process."""
    count_calls(log, kill_at)
    end_with_testbed(SshTestbed)
    command("run", file)


def main(file: str, log: str, output: str) -> None:
    """Runs the experiment for each line of standard input."""
    for line in sys.stdin:
        print(forked(Path(output), partial(run, file, Path(log), int(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
