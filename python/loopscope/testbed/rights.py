"""Rights on a machine that its user does not have: ``become: sudo``.

sudo starts a copy of the host binary that only root can change, never the one in the user's cache.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from loopscope.provider import Lack, TestbedError
from loopscope.provider.printable import printable
from loopscope.strict_json import to_json
from loopscope.testbed.reach import Reached

# For root's shell: the words are the program that was sent, its hash, and the arguments with which
# a copy of it is run. The user may change the program at any time, so the copy is what is compared.
INSTALL = """set -eu
umask 077
draft=$(mktemp -d /usr/local/lib/.loopscope.XXXXXX)
trap 'rm -rf "$draft"' EXIT
cp "$1" "$draft/loopscope-host"
found=$(sha256sum <"$draft/loopscope-host")
[ "${found%% *}" = "$2" ] || {
    echo "what is in ${1%/bin/*} is not what was sent; remove this folder, and it is sent again" >&2
    exit 1
}
shift 2
"$draft/loopscope-host" "$@"
"""
INSTALL_S = 60.0
# Characters of what a host says.
LONGEST_REASON = 200
# What an agent may lack.
NETWORK, REALTIME, CGROUPS = "rights over their network", "real-time priorities", "cgroups"
NAMES = (NETWORK, REALTIME, CGROUPS)
NO_CGROUP = (
    "what a component starts with an empty environment ends with the run only, and there is no "
    "account of CPU time"
)


@dataclass(frozen=True)
class Rights:
    """What the agent of a machine may do that an ordinary user's may not."""

    network: bool
    """Change network settings and devices."""
    tun: bool
    """Open /dev/net/tun, by which links are emulated."""
    realtime: bool
    """Let components take real-time priorities."""
    no_cgroup: str
    """Why components have no cgroups there; empty: they have."""
    command: str | None
    """What starts the agent by sudo, for a shell; None: it is started as the user."""


def first_line(arguments: Sequence[str], **user_side: str) -> str:
    """What ``Rights.command`` reads first from its input (crates/host/src/limited.rs)."""
    return to_json({"arguments": list(arguments), **user_side}) + "\n"


def installing(reached: Reached, *arguments: str) -> str:
    """The words, for root's shell there, that run a copy of the sent program with arguments."""
    words = ["sh", reached.program, reached.binary_hash, *arguments]
    return f"sh -c {shlex.quote(INSTALL)} {shlex.join(words)}"


async def test(reached: Reached) -> Rights:
    """What the machine's agent will be allowed to do, tried out.

    Where sudo is to start it, its copy is installed, unless it is there. Raises TestbedError where
    that does not work.
    """
    await installed(reached)
    found = await tried(reached)
    if found is None:
        host = reached.machine.host
        raise TestbedError(f"host {host}: what sudo starts was installed and is not there")
    return found


async def tried(reached: Reached) -> Rights | None:
    """What the machine's agent will be allowed to do, tried out; nothing is installed.

    None: what sudo is to start is not there, and sudo lets it be installed. Raises TestbedError
    where that does not work.
    """
    if not by_sudo(reached):
        return await _try(reached, None, f"{reached.binary} rights")
    host, refusal = reached.machine.host, None
    for allowed in await commands(reached):
        # sudo stays in the cgroup of who calls it.
        command = f"{reached.binary} scoped {allowed}"
        try:
            line = shlex.quote(first_line(["rights"]).strip())
            rights = await _try(reached, command, f"printf '%s\\n' {line} | {command}")
        except TestbedError as error:
            # A copy for another group of the user's, which sudo may allow.
            refusal = refusal or error
            continue
        if rights.network:
            return rights
        raise TestbedError(
            f"host {host}: sudo works there, but root has no rights over the network "
            "(CAP_NET_ADMIN, CAP_NET_RAW), as in a container"
        )
    if refusal is not None:
        raise refusal
    await _succeed(reached, "sudo -n sh -c :")
    return None


def check_links(host: str, rights: Rights) -> None:
    """Raises TestbedError where the host cannot emulate links."""
    if not rights.network:
        raise TestbedError(
            f"host {host}: an emulated link needs rights over the network there: give "
            "`become: sudo` or `user: root` in `machines`"
        )
    if not rights.tun:
        raise TestbedError(
            f"host {host}: its user may not open /dev/net/tun, by which a link is emulated: "
            "chmod 666 /dev/net/tun there, as udev has it"
        )


async def commands(reached: Reached) -> list[str]:
    """The commands that sudo may start there. Raises TestbedError where one is not safe."""
    if not by_sudo(reached):
        return []
    check = f"{reached.binary} setup --check {reached.binary_hash}"
    found = _object(reached, await _succeed(reached, check))
    if found.get("unsafe"):
        raise TestbedError(
            f"host {reached.machine.host}: sudo is not used for a program that others than root "
            f"can change: {found['unsafe']}; remove it there as root, or correct it"
        )
    copies = found.get("copies")
    return [f"sudo -n {shlex.quote(str(copy))} limited" for copy in copies or ()]  # type: ignore[attr-defined]


async def installed(reached: Reached) -> list[str]:
    """The commands that sudo may start there, of which one is installed if there is none.

    Raises TestbedError where that does not work.
    """
    found = await commands(reached)
    if by_sudo(reached) and not found:
        await _succeed(reached, f"sudo -n {installing(reached, 'setup', '--no-rule')}")
        found = await commands(reached)
    return found


def by_line(command: str, arguments: Sequence[str]) -> str:
    """A script that runs a command of sudo's with arguments, and with the user's variables."""
    line = shlex.quote(first_line(arguments, environment="ENVIRONMENT").strip())
    return (
        'file=$(mktemp) && cat /proc/self/environ >"$file" && '
        f'printf "%s\\n" {line} | sed "s:ENVIRONMENT:$file:" | {command}; rm -f "$file"'
    )


def lacking(rights: Rights) -> list[Lack]:
    """What a machine's agent cannot do."""
    remedy = "`become: sudo` in `machines` gives them"
    if rights.command is not None:
        remedy = "root itself cannot give them there, as in a container"
    found = []
    if not rights.network:
        cost = "packets of clock probes are stamped by the kernel also where an interface could"
        found.append(Lack(NETWORK, remedy, cost))
    if not rights.realtime:
        found.append(Lack(REALTIME, remedy, "components can take none"))
    if rights.no_cgroup:
        found.append(Lack(CGROUPS, rights.no_cgroup, NO_CGROUP))
    return found


def by_sudo(reached: Reached) -> bool:
    """Whether sudo is to start the machine's agent."""
    return reached.machine.become == "sudo" and not reached.is_root


async def _try(reached: Reached, command: str | None, script: str) -> Rights:
    found = _object(reached, await _succeed(reached, script))
    network, tun, realtime = (found.get(key) is True for key in ("network", "tun", "realtime"))
    no_cgroup = found.get("no_cgroup")
    if not isinstance(no_cgroup, str):
        no_cgroup = ""
    return Rights(network, tun, realtime, printable(no_cgroup[:LONGEST_REASON]), command)


def _object(reached: Reached, line: str) -> dict[str, object]:
    try:
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    except (ValueError, RecursionError):
        pass
    raise TestbedError(f"host {reached.machine.host}: its answer cannot be used: {line[:80]!r}")


async def _succeed(reached: Reached, script: str) -> str:
    """The last line that a script prints. Raises TestbedError, with what to do, if it fails."""
    machine = reached.machine
    *lines, status = await machine.ask(f"{{ {script}; }}; echo $?", INSTALL_S) or [""]
    if status == "0":
        return lines[-1] if lines else ""
    said = "; ".join(lines[-3:]) or f"exit status {status}"
    if not by_sudo(reached):
        raise TestbedError(f"host {machine.host}: its rights cannot be told: {said}")
    remedy = f"to have it allowed, once: loopscope host setup {machine.address}"
    if status == "127":
        remedy = "install sudo there, or log in as root: `user: root` in `machines`"
    raise TestbedError(f"host {machine.host}: become: sudo does not work there: {said}; {remedy}")
