"""By which source a machine's kernel can be recorded, and what of it is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loopscope.experiment.kernel_events import CLASSES
from loopscope.testbed.examination.facts import Facts
from loopscope.testbed.examination.finding import Finding, either

# By programs in the kernel, not by tracefs.
BY_PROGRAMS = "bpf/"
TRACED = {name: each for name, each in CLASSES.items() if not each[0].startswith(BY_PROGRAMS)}
PROGRAMMED = tuple(name for name in CLASSES if name not in TRACED)
# Few kernels have it, so that it is none of what is missed.
THROTTLED = "sleep:throttled"
NOT_OBSERVABLE = (
    "what they tell is not observable here; results of runs name what was asked for and is missing"
)
CPU = "/sys/devices/system/cpu/cpu0"
# capabilities(7): to mount tracefs takes it.
CAP_SYS_ADMIN = 1 << 21


def tracepoints() -> list[str]:
    """The tracepoints that are looked for, in folders of tracefs."""
    return [event for events in TRACED.values() for event in events]


def events(facts: Facts, to_be_root: str = "", if_asked: str = "") -> Iterator[Finding]:
    """Whether the kernel's events can be recorded, by the local testbed or an agent.

    ``to_be_root``: how an agent becomes root, for a user who is not. ``if_asked``: what has to ask
    for the events.
    """
    found, missing = "yes, through tracefs", ""
    if facts.text("tracefs"):
        offered = {clock.strip("[]") for clock in facts.text("trace_clock").split()}
        if "x86-tsc" not in offered:
            found = "of hosts whose counter is monotonic-raw alone: tracing has no x86-tsc clock"
    elif not facts.is_there("tracefs"):
        missing = "this kernel has no tracefs"
    elif not facts.is_root:
        missing = "takes root" + to_be_root
    elif not facts.capabilities & CAP_SYS_ADMIN:
        missing = "tracefs is not mounted, and root may not mount it, as in a container"
    else:
        found = "yes, tracefs is mounted for each run"
    *others, last = TRACED
    yield either(
        f"kernel events of classes {', '.join(others)} and {last}",
        not missing,
        found + if_asked,
        missing,
        "what a program waited for is not known: `loopscope why` has only for how long threads ran "
        "and waited for a processor, and when TCP's counts changed",
    )
    if facts.text("tracefs"):
        yield from _unobservable(facts)


def _unobservable(facts: Facts) -> Iterator[Finding]:
    """The events of classes that this kernel or machine does not have."""
    missing = set(facts.all("absent"))
    absent = [
        f"{name}:{event.rpartition('/')[2]}"
        for name, each in TRACED.items()
        for event in each
        if event in missing
    ]
    if not facts.is_there(f"{CPU}/cpufreq"):
        absent.append("idle:cpu_frequency (the machine shows no frequencies)")
    if not facts.is_there(f"{CPU}/cpuidle"):
        absent.append("idle:cpu_idle (the machine shows no idle states)")
    if absent:
        yield Finding(
            "some of these events",
            False,
            f"there are no {', '.join(absent)}",
            NOT_OBSERVABLE,
        )


def counts(facts: Facts) -> Finding:
    """Whether there are counts of threads, which take the place of events."""
    return either(
        "counts of threads (schedstat), where kernel events cannot be recorded",
        facts.is_there("/proc/self/schedstat"),
        "yes, for ordinary users too, with TCP_INFO of their connections",
        "this kernel has no /proc/PID/schedstat",
        "without root nothing is known of what a program waited for",
    )


def programs(facts: Facts) -> Iterator[Finding]:
    """Whether the kernel's events that programs record can be recorded."""
    answer = facts.answer("programs")
    if answer is None:
        # Another finding says why.
        return
    if answer.failure:
        yield _recorded(PROGRAMMED, answer.failure)
        return
    refused: dict[str, list[str]] = {}
    absent: dict[str, str] = {}
    classes = answer.read()
    for name in PROGRAMMED:
        told = classes[name]
        lacking = {f"{name}:{event}": str(why) for event, why in dict(told["absent"]).items()}
        why = str(told["why"])
        if not why and len(lacking) == len(CLASSES[name]):
            why = f"there is none of its events here: {_each(lacking)}"
        if why:
            refused.setdefault(why, []).append(name)
        else:
            absent |= lacking
    untold = ""
    if absent.pop(THROTTLED, None):
        untold = "; this kernel does not tell when a cgroup has used up its processor time"
    unusable = {name for names in refused.values() for name in names}
    if works := [name for name in PROGRAMMED if name not in unusable]:
        yield _recorded(works, untold=untold)
    for why, names in refused.items():
        yield _recorded(names, why)
    if absent:
        yield Finding(
            "all events of these classes",
            False,
            f"there are no {_each(absent)}",
            NOT_OBSERVABLE,
        )


def _each(lacking: Mapping[str, str]) -> str:
    """Events that a kernel does not have, each with why."""
    return ", ".join(f"{event} ({why})" for event, why in lacking.items())


def _recorded(classes: Sequence[str], why: str = "", untold: str = "") -> Finding:
    """Whether classes that programs record can be: yes, where there is no reason why not."""
    *others, last = classes
    named = f"classes {', '.join(others)} and {last}" if others else f"class {last}"
    return either(
        f"kernel events of {named}",
        not why,
        f"yes, by programs in the kernel (BPF){untold}",
        why,
        "on what a thread slept, why TCP kept a message and what dropped one is not known: "
        "`loopscope why` says only that they did",
    )
