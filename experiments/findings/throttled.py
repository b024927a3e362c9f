"""Runs COMMAND in a cgroup that may use QUOTA of every PERIOD ms of a processor."""

import os
import subprocess
import sys
from pathlib import Path


def cgroup_v1() -> Path:
    """Where the controller `cpu` of cgroups is mounted."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        place, kind = line.split()[4], line.partition(" - ")[2].split()
        if kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            return Path(place)
    raise SystemExit("this machine has no controller `cpu` of cgroups, of version 1 or 2")


quota, period = (str(round(float(each) * 1000)) for each in sys.argv[1:3])
own = [line[3:] for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines()]
limit = Path("/sys/fs/cgroup", own[-1].lstrip(":/"), "cpu.max")
if limit.exists():
    limit.write_text(f"{quota} {period}", "utf-8")
    os.execvp(sys.argv[3], sys.argv[3:])
made = cgroup_v1() / f"throttled-{os.getpid()}"
made.mkdir()
try:
    (made / "cpu.cfs_period_us").write_text(period, "utf-8")
    (made / "cpu.cfs_quota_us").write_text(quota, "utf-8")

    def enter() -> None:
        (made / "cgroup.procs").write_text("0", "utf-8")

    raise SystemExit(subprocess.run(sys.argv[3:], preexec_fn=enter, check=False).returncode)
finally:
    made.rmdir()
