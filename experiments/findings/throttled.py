"""Runs COMMAND in a cgroup that may use QUOTA of every PERIOD ms of a processor.

At its end it prints how often that was not enough.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path


def controller() -> Path:
    """Where the controller `cpu` of cgroups of version 1 is mounted."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        place, kind = line.split()[4], line.partition(" - ")[2].split()
        if kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            return Path(place)
    raise SystemExit("no cgroup here can have a limit: neither version 1 nor 2 has `cpu`")


quota, period = (str(round(float(each) * 1000)) for each in sys.argv[1:3])
own = Path("/proc/self/cgroup").read_text("utf-8").splitlines()[-1]
group = Path("/sys/fs/cgroup", own.partition("::/")[2])
made = None
if (group / "cpu.max").exists():
    (group / "cpu.max").write_text(f"{quota} {period}", "utf-8")
else:
    made = group = controller() / f"throttled-{os.getpid()}"
    made.mkdir()
    (made / "cpu.cfs_period_us").write_text(period, "utf-8")
    (made / "cpu.cfs_quota_us").write_text(quota, "utf-8")


def enter() -> None:
    """Has the process that is to become the command enter the cgroup."""
    if made:
        (made / "cgroup.procs").write_text("0", "utf-8")


command = subprocess.Popen(sys.argv[3:], preexec_fn=enter)
signal.signal(signal.SIGTERM, lambda *_: command.terminate())
command.wait()
print((group / "cpu.stat").read_text("utf-8"))
if made:
    made.rmdir()
