"""``loopscope run`` of an experiment over SSH, killed at one of the controller's points.

The program of test_killed_over_ssh.py: ``EXPERIMENT LOG KILL_AT``, on the desk. It appends its
points to the log, as killed_anywhere.py does, and ends when its testbed is removed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from killed_anywhere import command, count_calls, end_with_testbed

from loopscope.testbed.ssh import SshTestbed

if __name__ == "__main__":
    file, log, kill_at = sys.argv[1:]
    count_calls(Path(log), int(kill_at))
    end_with_testbed(SshTestbed)
    command("run", file)
