"""The host side's programs of this installation, as they are sent to other machines."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import platform
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from loopscope.testbed.program import host_binary

BINARY = "bin/loopscope-host"
LIBRARIES = "lib"
PACKAGES = "python"


@dataclass(frozen=True)
class Kit:
    """Programs and libraries for the hosts.

    ``files`` are their places by their names in the kit, ``hash`` is that of all of them,
    ``binary_hash`` the SHA-256 of the host binary, and ``machine`` the kind of processor that they
    are for, as ``uname -m`` has it.
    """

    files: dict[str, Path]
    hash: str
    binary_hash: str
    machine: str

    def archive(self) -> bytes:
        """A tar archive of the files."""
        return archive(self.files)


@cache
def installed() -> Kit:
    """The kit of this installation: the host binary, the C library and the Python trace package.

    The last two are left out where they are not installed. Raises TestbedError without the binary.
    """
    binary = host_binary()
    files = {BINARY: binary}
    library = binary.parent.parent / "lib" / "libloopscope.so.0"
    if library.is_file():
        # One for programs at work, one for what is linked on the host.
        files |= {f"{LIBRARIES}/{name}": library for name in (library.name, "libloopscope.so")}
    package = importlib.util.find_spec("loopscope_trace")
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        files |= {
            f"{PACKAGES}/{folder.name}/{path.relative_to(folder)}": path
            for path in found
            if path.suffix != ".pyc"
        }
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    digest = hashlib.sha256()
    for name, content in sorted(hashes.items()):
        digest.update(f"{name}\0{content}\n".encode())
    return Kit(files, digest.hexdigest()[:16], hashes[BINARY], platform.machine())


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
