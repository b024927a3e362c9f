"""Files of a host that is not trusted, out of a tar stream."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from loopscope.provider.left_out import (
    DEVICE,
    FIFO,
    LINK,
    OTHER,
    TOO_LONG,
    LeftOut,
    escaped,
    why_of_path,
)

# What a file or folder takes besides its content, unless its headers are longer.
EACH = 4096
# The longest header that belongs to a member: it is held in memory.
LONGEST_HEADER = 1 << 18
HARD_LINK = "a hard link"
_KINDS = {
    tarfile.SYMTYPE: LINK,
    tarfile.LNKTYPE: HARD_LINK,
    tarfile.FIFOTYPE: FIFO,
    tarfile.CHRTYPE: DEVICE,
    tarfile.BLKTYPE: DEVICE,
}
_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class UnpackError(Exception):
    """The stream has what no host of loopscope writes; the text says what."""


@dataclass
class Unpacked:
    """The bytes of the files that were written, and the entries that were not."""

    bytes: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)


class _Member(tarfile.TarInfo):
    """A member that can be looked at before it is acted on, as the class's comments provide."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0 or (self.type in _HEADERS and self.size > LONGEST_HEADER):
            raise UnpackError(f"a header of its archive is {self.size} bytes long")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise UnpackError("its archive has a sparse file")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


def unpack(stream: BinaryIO, folder: Path, name: str, quota_bytes: int) -> Unpacked:
    """Writes the files of a stream below ``folder/name``, which need not be there.

    Entries that cannot be kept (`loopscope.provider.left_out`) are left out. Raises UnpackError for
    what is no whole archive, for anything in it that is not below ``name`` or is below something
    that is no folder, and for more than the quota, in which each entry takes EACH bytes more, also
    one that is left out; and OSError. It reads no further than the quota.
    """
    unpacking, taken = _Unpacking(folder, name), 0
    try:
        with tarfile.open(
            fileobj=stream, mode="r|", tarinfo=_Member, encoding="utf-8", errors="surrogateescape"
        ) as archive:
            for member in archive:
                headers = member.offset_data - member.offset
                taken += max(EACH, headers) + max(member.size, 0)
                if taken > quota_bytes:
                    raise UnpackError(
                        f"its files are more than {quota_bytes} bytes, with {EACH} for each of "
                        "them: `quota` of its machine allows more"
                    )
                unpacking.take(archive, member)
                # The archive's list of members, which would grow with it.
                archive.members.clear()  # type: ignore[attr-defined]
    except (tarfile.TarError, EOFError) as error:
        raise UnpackError(f"its archive cannot be read: {error}") from None
    except (ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise UnpackError(f"its archive cannot be read: {type(error).__name__}") from None
    return unpacking.result


class _Unpacking:
    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.result = Unpacked()
        # The entry that was left out last: tar has all that is in a folder right after it.
        self._last: tuple[str, ...] = ()
        self._last_is_folder = False

    def take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = _within(member.name, self._name)
        if self._last and parts[: len(self._last)] == self._last:
            if not self._last_is_folder:
                what = escaped(member.name[:80])
                raise UnpackError(f"'{what}' comes after an entry that is no folder and has it")
            return
        why = why_of_path(parts) or _why_of_kind(member)
        if why is None:
            try:
                self._write(archive, member, self._folder.joinpath(*parts))
                return
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:
                    raise
                why = TOO_LONG
        if len(parts) == 1:
            raise UnpackError(f"'{self._name}' is not a folder")
        self._last, self._last_is_folder = parts, member.isdir()
        self.result.left_out.add("/".join(parts[1:]), why, member.isdir())

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
        if member.isdir():
            place.mkdir(parents=True, exist_ok=True)
            return
        content = archive.extractfile(member)
        if content is None or place == self._folder / self._name:
            raise UnpackError(f"'{escaped(member.name[:80])}' is not a folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        # Whatever is in its place already is an error: a file comes once.
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with open(descriptor, "wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        self.result.bytes += member.size


def _why_of_kind(member: tarfile.TarInfo) -> str | None:
    if member.isreg() or member.isdir():
        return None
    return _KINDS.get(member.type, OTHER)


def _within(member: str, name: str) -> tuple[str, ...]:
    """The parts of a member's path, which begins with ``name``. Raises UnpackError."""
    path = PurePosixPath(member)
    parts = path.parts
    if path.is_absolute() or not parts or parts[0] != name or ".." in parts:
        raise UnpackError(f"'{escaped(member[:80])}' is not in '{name}'")
    return parts
