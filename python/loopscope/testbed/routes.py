"""The ways of packets between machines of testbed ssh, where one of the machines is the router."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence

from loopscope.provider import TestbedError
from loopscope.testbed.ssh_machine import SshMachine

ANSWER = "way:"
ASK = f"printf '{ANSWER} %s\\n' \"$(ip -o route get \"$to\" 2>&1 | tr '\\n' ' ')\""
_VIA = re.compile(r"via (?:inet6 )?(\S+)")
_DEVICE = re.compile(r"dev (\S+)")


async def check(
    router: str,
    routed: Sequence[tuple[str, str]],
    addresses: Mapping[str, str],
    machines: Mapping[str, SshMachine],
) -> None:
    """Raises TestbedError where what a host sends to another one does not come to the router first.

    ``routed`` are pairs of sender and receiver, ``addresses`` the hosts' data addresses.
    """
    lines = await machines[router].ask("ip -o address show")
    own = set(re.findall(r"inet6? ([^/\s]+)", "\n".join(lines)))
    targets = defaultdict(list)
    for source, target in routed:
        targets[source].append(target)

    async def one(source: str, to: Sequence[str]) -> list[str]:
        # A line for each, also where there is no way and only an error, or nothing, is printed.
        # Addresses are quoted, because the other hosts may have told them.
        quoted = shlex.join(addresses[target] for target in to)
        answers = await machines[source].ask(f"for to in {quoted} ; do {ASK}; done")
        ways = [answer.removeprefix(ANSWER).strip() for answer in answers]
        return [
            f"host {source}: what it sends to {target} ({addresses[target]}) does not come to the "
            f"router {router} first, but goes {_told(way)}; on {source}: ip route replace "
            f"{addresses[target]} via {addresses[router]}"
            for target, way in zip(to, ways + [""] * len(to), strict=False)
            if not own.intersection(_VIA.findall(way))
        ]

    wrong = await asyncio.gather(*(one(*each) for each in targets.items()))
    if problems := [problem for of_host in wrong for problem in of_host]:
        raise TestbedError("\n".join(problems))


def _told(way: str) -> str:
    device, via = _DEVICE.search(way), _VIA.search(way)
    if device is None:
        return f"nowhere: {way[:200]}" if way else "nowhere"
    return f"to {via[1]} by {device[1]}" if via else f"there directly by {device[1]}"
