"""What a repeat left on its hosts: noted in its directory before it begins, and collected.

The note is the repeat's ``spools.json``, which is there for as long as something may be on a host.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from loopscope.experiment import Machine
from loopscope.files import write_whole
from loopscope.provider import TestbedError
from loopscope.strict_json import from_json, to_json
from loopscope.testbed.reach import Reached
from loopscope.testbed.ssh_machine import SshMachine
from loopscope.testbed.unpack import Unpacked, UnpackError

SPOOLS = "spools.json"
VERSION = 1
# Between looks whether an agent still writes.
LOOK_S = 0.3


class FetchError(Exception):
    """A spool could not be collected; the text says why and where what was measured is."""


@dataclass(frozen=True)
class Spool:
    """A host's spool: its name there, and how its machine is reached."""

    name: str
    machine: Machine


class Spools:
    """The note of a repeat's spools."""

    def __init__(self, repeat: Path, spools: dict[str, Spool]) -> None:
        self._file = repeat / SPOOLS
        self.by_host = dict(spools)

    @classmethod
    def read(cls, repeat: Path) -> Spools:
        """The note of a repeat; raises ValueError where it is none that loopscope wrote."""
        file = repeat / SPOOLS
        if not file.exists():
            return cls(repeat, {})
        found = from_json(file.read_text(encoding="utf-8"))
        keys = {field.name for field in fields(Machine)}
        spools = {}
        try:
            if found["version"] != VERSION:
                raise ValueError
            for host, spool in found["hosts"].items():
                name = spool["spool"]
                # A part of a path on the host that is removed at the end.
                if not re.fullmatch(r"[\w-][\w.-]*", name, re.ASCII) or not re.fullmatch(
                    r"[\w-][\w.-]*", host, re.ASCII
                ):
                    raise ValueError
                machine = Machine(**{k: v for k, v in spool["machine"].items() if k in keys})
                if machine.address.startswith("-"):
                    raise ValueError
                spools[host] = Spool(name, machine)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ValueError(f"{file} is not what this version of loopscope writes") from None
        return cls(repeat, spools)

    def write(self) -> None:
        """Writes the note, or removes it where nothing is noted. Raises OSError."""
        if not self.by_host:
            self._file.unlink(missing_ok=True)
            return
        hosts = {
            host: {"spool": spool.name, "machine": asdict(spool.machine)}
            for host, spool in self.by_host.items()
        }
        write_whole(self._file, to_json({"version": VERSION, "hosts": hosts}, indent=2) + "\n")

    def done(self, host: str) -> None:
        """Takes a host out of the note, because nothing is on it any more. Raises OSError."""
        self.by_host.pop(host, None)
        self.write()


async def collect(
    machine: SshMachine,
    folder: str,
    host: str,
    repeat: Path,
    quota_bytes: int,
) -> Unpacked:
    """Copies what is in a spool to ``repeat/hosts/host``.

    What was there is replaced, except for files that the spool does not have. Of a copy that breaks
    off as much is kept as came, unless there was something. Raises FetchError.
    """
    draft = repeat / f".fetched-{host}"
    there, place = draft / host, repeat / "hosts" / host
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        try:
            await machine.ask("true")
            unpacked = await machine.fetch(f"{folder}/hosts", host, draft, quota_bytes)
        except (TestbedError, asyncio.CancelledError):
            if there.is_dir() and not place.exists():
                _replace(there, place)
            raise
        if there.is_dir():
            _replace(there, place)
        return unpacked
    except (TestbedError, UnpackError, OSError) as error:
        what = str(error) if isinstance(error, TestbedError) else f"host {host}: {error}"
        raise FetchError(f"{what}; what it measured stays there, in {folder}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replace(new: Path, old: Path) -> None:
    """Moves a folder into the place of another one, of which files stay that the new one lacks."""
    old.parent.mkdir(exist_ok=True)
    if old.is_dir():
        for above, _, names in os.walk(old):
            for name in names:
                file = Path(above) / name
                to = new / file.relative_to(old)
                if not to.exists() and not any(each.is_file() for each in to.parents):
                    to.parent.mkdir(parents=True, exist_ok=True)
                    file.replace(to)
        shutil.rmtree(old)
    new.replace(old)


async def remove(reached: SshMachine, folder: str) -> None:
    """Removes a spool. Raises TestbedError."""
    await reached.ask(f"rm -rf {shlex.quote(folder)}")


async def sizes(reached: Reached) -> dict[str, tuple[int, bool]]:
    """The spools on a machine: bytes, and whether an agent still writes. Raises TestbedError."""
    said = "".join(await reached.machine.ask(f"{reached.binary} spools"))
    try:
        return {str(e["name"]): (int(e["bytes"]), bool(e["in_use"])) for e in from_json(said)}
    except (ValueError, TypeError, KeyError):
        raise TestbedError(
            f"host {reached.machine.host}: its answer about spools cannot be used: {said[:80]!r}"
        ) from None


async def at_rest(
    reached: Reached, name: str, patience_s: float, progress: Callable[[str], None]
) -> int | None:
    """The bytes of a spool once no agent writes to it any more; None: there is no such spool.

    Raises TestbedError.
    """
    end = asyncio.get_running_loop().time() + patience_s
    host, waiting = reached.machine.host, False
    while True:
        found = (await sizes(reached)).get(name)
        if found is None:
            return None
        size, in_use = found
        if not in_use:
            return size
        if asyncio.get_running_loop().time() > end:
            raise TestbedError(
                f"host {host}: an agent still writes to {reached.spool(name)}, {patience_s:g} s "
                "later"
            )
        if not waiting:
            progress(f"host {host}: its agent still ends the run")
            waiting = True
        await asyncio.sleep(LOOK_S)
