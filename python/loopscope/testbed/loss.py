"""Why the agent of a host over ssh was lost, as far as a new connection tells."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from loopscope.provider import TestbedError
from loopscope.provider.patience import within
from loopscope.testbed.reach import Reached
from loopscope.testbed.spools import at_rest
from loopscope.testbed.ssh_machine import SshMachine

# For a new connection, for its answer, and for an agent that lost its controller to end.
LOSS_S = 4.0


@dataclass(frozen=True)
class Loss:
    """What was found out."""

    text: str
    """For people."""
    reached: Reached | None
    """The machine over the new connection; None: it cannot be reached, or its agent still runs."""


async def find_out(before: Reached, spool: str, fresh: SshMachine) -> Loss:
    """What became of a machine whose agent was lost, asked over ``fresh``.

    That is closed unless the result has it.
    """
    kept = False
    try:
        loss = await _ask(replace(before, machine=fresh), before.boot, spool)
        kept = loss.reached is not None
        return loss
    finally:
        if not kept:
            await fresh.close()


async def _ask(again: Reached, boot: str, spool: str) -> Loss:
    machine = again.machine
    try:
        await within(LOSS_S, machine.connect())
        now = (await machine.ask("cat /proc/sys/kernel/random/boot_id", LOSS_S))[-1:]
    except (TestbedError, asyncio.TimeoutError) as error:
        why = str(error) or f"host {machine.host}: there is no connection within {LOSS_S:g} s"
        return Loss(f"{why}: it cannot be reached any more", None)
    if now != [boot]:
        text = (
            f"host {machine.host}: it can be reached again and was rebooted: it has a new boot id"
        )
        return Loss(text, again)
    up = f"host {machine.host}: it can be reached and was not rebooted"
    try:
        await at_rest(again, spool, LOSS_S, lambda _: None)
    except TestbedError:
        return Loss(f"{up}; its agent still runs there, or what it started does", None)
    remedy = f"loopscope reset --hosts {machine.address}"
    return Loss(f"{up}: its agent has ended or was killed; what it may have left: {remedy}", again)
