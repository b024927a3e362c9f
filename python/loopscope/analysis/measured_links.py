"""Settings of emulated links and what was achieved, from `links.json` of what emulated them.

A share of packets is compared by its 99 % interval (Wilson 1927): what was asked lies in it, or
this run did not do what was asked, but for one run in a hundred. Losses that come in bursts tell
less than as many independent ones; the interval allows for it by the chain's autocorrelation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopscope.analysis.results import LinkResult, Share
from loopscope.strict_json import from_json
from loopscope.timeline import Run, RunError

ROUTER = "_router"
PROCESS = "_links"
"""Process name of the router; of a host that impairs what it sends it goes on with the host."""
_FILE = "files/links.json"
_Z99 = 2.5758293035489


def read_links(run: Run) -> tuple[tuple[LinkResult, ...], list[str]]:
    """Every link's settings and what came of them, in every repeat; and what is wrong with them.

    Raises `RunError` where a `links.json` cannot be read.
    """
    found: list[LinkResult] = []
    problems: list[str] = []
    for repeat, directory in run.repeats.items():
        for host, file in _accounts(directory):
            if not file.exists():
                problems.append(
                    f"{host}, repeat {repeat}: the links left no account "
                    f"({file.relative_to(directory)}); what they did to packets is not known"
                )
                continue
            try:
                account = from_json(file.read_text(encoding="utf-8"))
                links, doubts = _of_repeat(account, repeat, host)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise RunError(f"{file}: not an account of links: {error}") from error
            found += links
            problems += doubts
    return tuple(found), problems


def routers(run: Run) -> dict[int, str]:
    """The host that emulated all links, by repeat; else each host did for what it sent."""
    accounts = {repeat: _accounts(directory) for repeat, directory in run.repeats.items()}
    return {repeat: each[0][0] for repeat, each in accounts.items() if len(each) == 1}


def is_links(process: str) -> bool:
    """Whether a process emulated links, and is none of the experiment's."""
    return process == PROCESS or process.startswith(f"{PROCESS}-")


def _accounts(directory: Path) -> list[tuple[str, Path]]:
    """The hosts of a repeat that emulated links, and where each has its account."""
    hosts = sorted(each for each in directory.glob("hosts/*") if each.is_dir())
    found = []
    for host in hosts:
        name = PROCESS if host.name == ROUTER else f"{PROCESS}-{host.name}"
        component = host / "components" / name
        if host.name == ROUTER or component.exists():
            found.append((host.name, component / _FILE))
    return found


def ports(run: Run) -> Mapping[int, list[str]]:
    """The hosts in the order in which link events number them, by repeat."""
    found = {}
    for repeat, directory in run.repeats.items():
        # All accounts of a repeat number them alike.
        files = [file for _, file in _accounts(directory) if file.exists()]
        if files:
            found[repeat] = _hosts(files[0])
    return found


def share(found: int, of: int, asked: float | None, spread: float = 1.0) -> Share:
    """`spread` is by how much the variance of the number is that of independent packets'."""
    if of == 0 or math.isinf(spread):
        return Share(found, of, None, None, asked, None)
    n, k = of / spread, found / spread
    middle = (k + _Z99**2 / 2) / (n + _Z99**2)
    half = _Z99 / (n + _Z99**2) * math.sqrt(k * (n - k) / n + _Z99**2 / 4)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    # Rounding must not exclude the ends.
    low, high = (0.0 if found == 0 else low), (1.0 if found == of else high)
    inside = None if asked is None else low <= asked <= high
    return Share(found, of, low, high, asked, inside)


def _hosts(file: Path) -> list[str]:
    try:
        return [str(host) for host in from_json(file.read_text(encoding="utf-8"))["hosts"]]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{file}: not an account of links: {error}") from error


def _of_repeat(
    account: Mapping[str, Any], repeat: int, host: str
) -> tuple[list[LinkResult], list[str]]:
    if account["version"] != 1:
        raise ValueError(f"version {account['version']} is not known")
    found = []
    problems = [f"{host}, repeat {repeat}: {each}" for each in account.get("problems", ())]
    for link in account["links"]:
        segments = [_segment(account, repeat, link, each) for each in link["segments"]]
        found += segments
        where = f"link {link['from']} → {link['to']}, repeat {repeat}"
        if moving := sum(each.dropped.get("moving", 0) for each in segments):
            problems.append(
                f"{where}: the mover itself lost {moving} packets, which nobody asked for; it "
                "cannot keep up with them: take load off this machine, or send less"
            )
        came = sum(each.packets for each in segments)
        went = sum(each.departed - each.duplicated.found + each.queued for each in segments)
        dropped = sum(sum(each.dropped.values()) for each in segments)
        if came != went + dropped:
            problems.append(
                f"{where}: its account does not balance: {came} packets came, {went} went on or "
                f"are waiting, {dropped} were dropped"
            )
    return found, problems


def _segment(
    account: Mapping[str, Any], repeat: int, link: Mapping[str, Any], segment: Mapping[str, Any]
) -> LinkResult:
    asked, dropped = segment["asked"], dict(segment["dropped"])
    came, went = segment["in"], segment["out"]
    fitting = came["packets"] - dropped.get("mtu", 0)
    lost = dropped.get("loss", 0)
    probability, spread = _loss(asked.get("loss"))
    kernels = account["mover"] == "netem"
    first, last = segment["first_ns"], segment["last_ns"]
    rate = None
    if first is not None and last > first:
        rate = went["bytes"] * 8e9 / (last - first)
    duplicated = segment["duplicated"]
    # What waits has shown nothing of its fate.
    carried = fitting - lost - segment["queued"]
    if kernels:
        # All that is known of it is seen as it leaves.
        fitting -= segment["queued"]
        carried = went["packets"] - duplicated
    both = asked.get("loss") is not None and asked.get("rate_bps") is not None
    told = not (kernels and (both or dropped.get("kernel", 0)))
    jitter = asked.get("jitter")
    mean, asked_delay = segment["delay_ns"]["mean"], _delay(asked)
    return LinkResult(
        repeat=repeat,
        sender=link["from"],
        receiver=link["to"],
        since_ns=segment["since_ns"],
        mover=account["mover"],
        wait=account["wait"],
        asked=asked,
        packets=came["packets"],
        departed=went["packets"],
        queued=segment["queued"],
        dropped=dropped,
        delay=segment["delay_ns"],
        late=segment["late_ns"],
        asked_delay_ns=asked_delay,
        delay_error_ns=None if mean is None or asked_delay is None else mean - asked_delay,
        asked_deviation_ns=None if jitter is None else _deviation(jitter),
        # It may be that only the sum of a full queue's drops and the requested ones is known.
        lost=share(lost, fitting if told else 0, probability, spread),
        duplicated=share(duplicated, carried, asked.get("duplicate", 0.0)),
        corrupted=share(segment["corrupted"], carried + duplicated, asked.get("corrupt", 0.0)),
        reordered=segment["reordered"],
        rate_bps=rate,
        asked_rate_bps=asked.get("rate_bps"),
    )


def _delay(asked: Mapping[str, Any]) -> int | None:
    """The mean that was asked for; None where a queue or a file of delays adds to it."""
    if any(asked.get(key) is not None for key in ("rate_bps", "opportunities", "delays")):
        return None
    delay = asked.get("delay_ns", 0)
    return int(delay)


def _deviation(jitter: Mapping[str, Any]) -> float:
    # The settings of a uniform distribution give half its width.
    ns = float(jitter["ns"])
    return ns / math.sqrt(3) if jitter["distribution"] == "uniform" else ns


def _loss(loss: Mapping[str, Any] | None) -> tuple[float | None, float]:
    """The share asked for, None where only a file knows it, and the spread of `share`."""
    if loss is None:
        return 0.0, 1.0
    if loss["kind"] == "independent":
        correlation = loss.get("correlation", 0.0)
        return loss["probability"], _clustering(correlation, 1.0)
    if loss["kind"] == "gilbert-elliott":
        p, r = loss["p"], loss["r"]
        good, bad = loss.get("good", 0.0), loss.get("bad", 1.0)
        if p + r == 0:
            return good, 1.0
        in_bad = p / (p + r)
        mean = in_bad * bad + (1 - in_bad) * good
        of_states = (bad - good) ** 2 * in_bad * (1 - in_bad)
        total = mean * (1 - mean)
        return mean, _clustering(1 - p - r, of_states / total if total else 0.0)
    if loss["kind"] == "periodic":
        return 1 / loss["every"], 1.0
    return None, 1.0


def _clustering(memory: float, part: float) -> float:
    """Variance of a sum against that of independent terms.

    The correlation over k packets is part · memory^k: 1 + 2 · part · memory / (1 − memory). Not
    below 1: no interval is narrower.
    """
    return max(1.0, 1 + 2 * part * memory / (1 - memory)) if memory < 1 else math.inf
