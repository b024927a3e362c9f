"""Files of a host that is not trusted, out of a tar stream."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

DEEPEST = 32
LONGEST_NAME = 255
# What a file or folder takes besides its content.
EACH = 4096
# The longest header that belongs to a member: it is held in memory.
LONGEST_HEADER = 1 << 16
_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class UnpackError(Exception):
    """The stream has what no host of loopscope writes; the text says what."""


class _Member(tarfile.TarInfo):
    """A member that can be looked at before it is acted on, as the class's comments provide."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in _HEADERS and self.size > LONGEST_HEADER):
            raise UnpackError(f"a header of its archive is {self.size} bytes long")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise UnpackError("its archive has a sparse file")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


def unpack(stream: BinaryIO, folder: Path, name: str, quota_bytes: int) -> int:
    """Writes the files of a stream below ``folder/name``, which need not be there; their bytes.

    Raises UnpackError for what is no whole archive, for anything in it but plain files and folders
    below ``name``, and for more than the quota, in which each file or folder takes EACH bytes more;
    and OSError. It reads no further than the quota.
    """
    size = taken = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
            for member in archive:
                taken += EACH + max(member.size, 0)
                if taken > quota_bytes:
                    raise UnpackError(
                        f"its files are more than {quota_bytes} bytes, with {EACH} for each of "
                        "them: `quota` of its machine allows more"
                    )
                size += _write(archive, member, folder / _within(member.name, name))
                # The archive's list of members, which would grow with it.
                archive.members.clear()  # type: ignore[attr-defined]
    except (tarfile.TarError, EOFError) as error:
        raise UnpackError(f"its archive cannot be read: {error}") from None
    except (ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise UnpackError(f"its archive cannot be read: {type(error).__name__}") from None
    return size


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> int:
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return 0
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise UnpackError(f"{member.name!r} is neither a file nor a folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    # Whatever is in its place already is an error: a file comes once.
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    return member.size


def _within(member: str, name: str) -> PurePosixPath:
    if not member.isprintable():
        raise UnpackError(f"{member[:80]!r} has characters that cannot be printed")
    path = PurePosixPath(member)
    parts = path.parts
    if path.is_absolute() or not parts or parts[0] != name or ".." in parts:
        raise UnpackError(f"{member[:80]!r} is not in {name!r}")
    if len(parts) > DEEPEST or any(len(part.encode()) > LONGEST_NAME for part in parts):
        raise UnpackError(f"{member[:80]!r} is too long a path")
    return path
