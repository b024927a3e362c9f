"""What one shell script finds out about a machine, by the machine's own files and programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What an answer raises that has not the form it has to have.
UNUSABLE = (ValueError, TypeError, KeyError, RecursionError)
# Lines of why a program failed: the last ones.
REASON_LINES = 3
# Asks for SO_TIMESTAMPING by software, of what is sent and of what is received.
STAMPS = (
    "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
    ".setsockopt(socket.SOL_SOCKET, 37, 1 << 4 | 1 << 3 | 1 << 1)"
)

# Each line is the name of a fact and its value. Of tracefs it is that which an agent takes
# (crates/kernel/src/tracefs.rs). proc(5): the mount point is the fifth field of mountinfo, and the
# type comes after the dash.
FILES = """run() {
    name=$1
    shift
    {
        {
            { "$@" </dev/null; printf '\\nexit %s\\n' "$?"; } | sed "s/^/said $name /" >&3
        } 2>&1 | sed "s/^/erred $name /"
    } 3>&1
}
echo "release $(uname -r)"
echo "kind $(uname -m)"
echo "processors $(grep -c ^processor /proc/cpuinfo)"
echo "uid $(id -u)"
echo "user $(id -un 2>/dev/null || id -u)"
echo "capabilities $(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)"
echo "ip $(command -v ip)"
grep -m1 ^flags /proc/cpuinfo | grep -qw hypervisor && echo "there hypervisor"
grep -qw tracefs /proc/filesystems && echo "there tracefs"
cpu=/sys/devices/system/cpu/cpu0
for path in /proc/self/schedstat /dev/net/tun $cpu/cpufreq $cpu/cpuidle /dev/vmclock0 /dev/ptp*; do
    [ -e "$path" ] && echo "there $path"
    [ -r "$path" ] && echo "readable $path"
done
[ -w /dev/shm ] && echo "writable /dev/shm"
[ -r $cpu/cpufreq/scaling_governor ] && echo "governor $(cat $cpu/cpufreq/scaling_governor)"
while read -r _ _ _ _ point rest; do
    case "$rest" in *" - tracefs "*) ;; *) continue ;; esac
    case "$point" in */ls-* | *\\\\*) continue ;; esac
    [ -w "$point/instances" ] || continue
    echo "tracefs $point"
    echo "trace_clock $(cat "$point/trace_clock")"
    for event in TRACEPOINTS; do
        [ -e "$point/events/$event" ] || echo "absent $event"
    done
    break
done </proc/self/mountinfo
"""


@dataclass(frozen=True)
class Answer:
    """A program's exit status, and the lines of its output and of its standard error."""

    status: int
    output: Sequence[str]
    errors: Sequence[str]

    @property
    def failure(self) -> str:
        """Why it failed; empty: it did not."""
        said = "; ".join((*self.output, *self.errors)[-REASON_LINES:])
        return (said or f"exit status {self.status}") if self.status else ""

    def read(self) -> Any:
        """The JSON that it printed. Raises one of UNUSABLE."""
        return json.loads("\n".join(self.output))


class Facts:
    """What a machine answered."""

    def __init__(self, lines: Iterable[str]) -> None:
        """``lines`` are those that the script printed. Raises one of UNUSABLE."""
        self._values: dict[str, list[str]] = {}
        printed: dict[str, dict[str, list[str]]] = {"said": {}, "erred": {}}
        for line in lines:
            kind, _, value = line.strip().partition(" ")
            if kind in printed:
                program, _, text = value.partition(" ")
                printed[kind].setdefault(program, []).extend([text] if text else [])
            else:
                self._values.setdefault(kind, []).append(value)
        self._answers = {}
        for program, (*output, end) in printed["said"].items():
            errors = printed["erred"].get(program, [])
            self._answers[program] = Answer(int(end.removeprefix("exit ")), output, errors)

    def all(self, name: str) -> list[str]:
        """The values of a fact."""
        return self._values.get(name, [])

    def text(self, name: str) -> str:
        """The value of a fact; empty: there is none."""
        return next(iter(self.all(name)), "")

    def is_there(self, what: str) -> bool:
        """Whether a file or a feature of the kernel is there."""
        return what in self.all("there")

    @property
    def is_root(self) -> bool:
        """Whether the examined user is root."""
        return self.text("uid") == "0"

    @property
    def capabilities(self) -> int:
        """The examined user's effective capabilities, a bit each."""
        return int(self.text("capabilities"), 16)

    def answer(self, program: str) -> Answer | None:
        """What a program printed; None: it was not asked."""
        return self._answers.get(program)


def script(tracepoints: Iterable[str], programs: Mapping[str, Sequence[str]]) -> str:
    """The shell script that prints the facts.

    ``programs`` are commands by the names of their answers.
    """
    asked = "".join(f"run {name} {shlex.join(words)}\n" for name, words in programs.items())
    return FILES.replace("TRACEPOINTS", shlex.join(tracepoints)) + asked + ":\n"
