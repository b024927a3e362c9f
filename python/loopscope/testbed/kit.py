"""The host side's programs of this installation, as they are sent to other machines."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import platform
import sys
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from loopscope import __version__
from loopscope.provider import TestbedError
from loopscope.testbed.program import PRELOAD, host_binary

BINARY = "bin/loopscope-host"
LIBRARIES = "lib"
# Kinds of processors that loopscope runs on, as ``uname -m`` has them.
MACHINES = ("x86_64", "aarch64")
PACKAGES = "python"


@dataclass(frozen=True)
class Kit:
    """Programs and libraries for the hosts.

    ``files`` are their places by their names in the kit, ``hash`` is that of all of them, and
    ``binary_hash`` the SHA-256 of the host binary.
    """

    files: dict[str, Path]
    hash: str
    binary_hash: str

    def archive(self) -> bytes:
        """A tar archive of the files."""
        return archive(self.files)


@cache
def for_machine(machine: str) -> Kit:
    """The kit for a kind of processor, as ``uname -m`` has it.

    For this machine's it is this installation's host binary, C library and Python trace package;
    the last two are left out where they are not installed. For another one it is the host binary
    and the C library of `unpacked`. Raises TestbedError where there is no binary.
    """
    if machine not in MACHINES:
        raise TestbedError(
            f"it is a machine of kind {machine!r}; loopscope runs on {' and '.join(MACHINES)}"
        )
    if machine == platform.machine():
        binary = host_binary()
        files = _python_package()
    else:
        binary = unpacked(machine) / BINARY
        files = {}
        if not binary.is_file():
            tarball = f"loopscope-{__version__}-linux-{machine}.tar.gz"
            raise TestbedError(
                f"it is a machine of kind {machine}, and this installation has no programs for it: "
                f"unpack {tarball} (made by: make dist MACHINE={machine}) into {unpacked(machine)}"
            )
    files[BINARY] = binary
    library = binary.parent.parent / "lib" / "libloopscope.so.0"
    if library.is_file():
        # One for programs at work, one for what is linked on the host.
        files |= {f"{LIBRARIES}/{name}": library for name in (library.name, "libloopscope.so")}
    accelerator = binary.parent.parent / PRELOAD
    if accelerator.is_file():
        files[PRELOAD] = accelerator
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    digest = hashlib.sha256()
    for name, content in sorted(hashes.items()):
        digest.update(f"{name}\0{content}\n".encode())
    return Kit(files, digest.hexdigest()[:16], hashes[BINARY])


def unpacked(machine: str) -> Path:
    """Where the tarball for another kind of processor is unpacked: its bin and lib are here."""
    return Path(sys.prefix) / "share" / "loopscope" / "hosts" / machine


def _python_package() -> dict[str, Path]:
    """The Python trace package's files by their names in the kit; empty if it is not installed."""
    package = importlib.util.find_spec("loopscope_trace")
    if package is None or package.origin is None:
        return {}
    folder = Path(package.origin).parent
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        f"{PACKAGES}/{folder.name}/{path.relative_to(folder)}": path
        for path in found
        if path.suffix != ".pyc"
    }


def archive(files: dict[str, Path]) -> bytes:
    """A tar archive of files by their names in it, without their owners and times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in files.items():
            content = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
