"""What is taken of a host's archive, what is left out of it, and what makes it refused."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import odd_entries
import pytest

from loopscope.control import settle
from loopscope.provider.left_out import NAMED, LeftOut
from loopscope.testbed import packing
from loopscope.testbed.unpack import EACH, Unpacked, UnpackError, unpack

FILES = "components/a/files"
QUOTA = 10_000_000
USER = 4711


def archive(*members: tuple[str, bytes]) -> io.BytesIO:
    """An archive of members, each a path and its type; regular files have one byte."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind in members:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.linkname = "h1/data"
            entry.size = 1 if kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(b"x"))
    buffer.seek(0)
    return buffer


def pack(hosts: Path, user: int | None = None) -> tuple[Unpacked, packing.Messages, Path, int]:
    """Packs and unpacks the folder of h1 in ``hosts``, as a run over ssh does."""
    done = subprocess.run(
        ["sh", "-c", packing.command(str(hosts), "h1")], capture_output=True, check=False, user=user
    )
    messages = packing.Messages("h1")
    for line in done.stderr.decode(errors="surrogateescape").splitlines():
        messages.take(line)
    into = hosts.parent / "unpacked"
    into.mkdir()
    unpacked = unpack(io.BytesIO(done.stdout), into, "h1", QUOTA)
    unpacked.left_out.add_all(messages.left_out)
    return unpacked, messages, into / "h1", done.returncode


def test_the_same_entries_are_left_out_of_a_folder_here_and_of_one_over_ssh(tmp_path: Path) -> None:
    files = tmp_path / "hosts/h1" / FILES
    try:
        # Deeper than Python's recursion goes.
        odd_entries.make(files, 1500)
        over_ssh, messages, there, code = pack(tmp_path / "hosts")
        here = settle(tmp_path)["h1"]
        assert odd_entries.paths(files) == odd_entries.paths(there / FILES) == odd_entries.KEPT
    finally:
        subprocess.run(["rm", "-rf", files], check=True)
    expected = {f"{FILES}/{path}": why for path, why in odd_entries.LEFT_OUT.items()}
    assert here.entries == over_ssh.left_out.entries == expected
    assert here.count == over_ssh.left_out.count == len(expected)
    assert (code, messages.others) == (0, [])
    # Each name of the file is counted.
    assert over_ssh.bytes == len(["café", "data", "data2", "sub/kept"])


def test_each_kind_that_no_run_keeps_is_named(tmp_path: Path) -> None:
    kinds = {
        "link": (tarfile.SYMTYPE, "a symbolic link"),
        "hard": (tarfile.LNKTYPE, "a hard link"),
        "char": (tarfile.CHRTYPE, "a device"),
        "block": (tarfile.BLKTYPE, "a device"),
        "pipe": (tarfile.FIFOTYPE, "a named pipe"),
        "new": (b"Z", "neither a file nor a folder"),
    }
    members = [(f"h1/{name}", kind) for name, (kind, _) in kinds.items()]
    found = unpack(archive(*members, ("h1/data", tarfile.REGTYPE)), tmp_path, "h1", QUOTA)
    assert found.left_out.entries == {name: why for name, (_, why) in kinds.items()}
    assert os.listdir(tmp_path / "h1") == ["data"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("h1/l", tarfile.SYMTYPE), ("h1/l/canary", tarfile.REGTYPE)], "no folder and has it"),
        ([("h1/p", tarfile.FIFOTYPE), ("h1/p", tarfile.REGTYPE)], "no folder and has it"),
        ([("h1/\n/../../canary", tarfile.REGTYPE)], r"'h1/\\n/\.\./\.\./canary' is not in 'h1'"),
        ([("/h1/canary", tarfile.SYMTYPE)], "is not in 'h1'"),
        ([("h2/env.json", tarfile.REGTYPE)], "'h2/env.json' is not in 'h1'"),
        ([("h1", tarfile.SYMTYPE)], "'h1' is not a folder"),
        ([("h1", tarfile.REGTYPE)], "'h1' is not a folder"),
    ],
)
def test_what_leads_out_of_its_folder_is_refused(
    tmp_path: Path, members: list[tuple[str, bytes]], message: str
) -> None:
    (tmp_path / "into").mkdir()
    with pytest.raises(UnpackError, match=message):
        unpack(archive(*members), tmp_path / "into", "h1", QUOTA)
    assert not list(tmp_path.rglob("canary")) and os.listdir(tmp_path) == ["into"]


def test_a_file_comes_once(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        unpack(archive(*[("h1/env.json", tarfile.REGTYPE)] * 2), tmp_path, "h1", QUOTA)


def test_entries_that_are_left_out_count_in_the_quota(tmp_path: Path) -> None:
    links = [(f"h1/{number}", tarfile.SYMTYPE) for number in range(300)]
    found = unpack(archive(*links), tmp_path, "h1", 300 * EACH)
    assert (found.left_out.count, len(found.left_out.entries)) == (300, NAMED)
    with pytest.raises(UnpackError, match="more than"):
        unpack(archive(*links), tmp_path, "h1", 300 * EACH - 1)
    # The header of a long name is longer than EACH.
    long = [(f"h1/{'d/' * 20_000}{number}", tarfile.REGTYPE) for number in range(30)]
    with pytest.raises(UnpackError, match="more than"):
        unpack(archive(*long), tmp_path, "h1", 1_000_000)


def test_a_path_that_the_desk_cannot_have_is_left_out(tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["y" * 250] * 9)
    deep.mkdir(parents=True)
    name = "/".join(["z" * 250] * 8)
    found = unpack(
        archive((f"h1/{name}", tarfile.REGTYPE), ("h1/ok", tarfile.REGTYPE)), deep, "h1", QUOTA
    )
    assert found.left_out.entries == {name[:500] + "…" + name[-500:]: "its path is too long"}
    assert (deep / "h1/ok").is_file()


def test_a_note_names_a_few_and_counts_the_rest() -> None:
    one, many = LeftOut(), LeftOut()
    one.add("components/a/files/\x1b[2J", "a device")
    assert one.note("h1") == (
        "host h1: 1 entry is left out: components/a/files/\\x1b[2J (a device)"
    )
    for number in range(150):
        many.add(f"f/{number}" + "y" * 300 * (number == 1), "a device")
    note = many.note("h1")
    assert note.startswith("host h1: 150 entries are left out: f/0 (a device), f/1yyy")
    assert note.endswith("f/4 (a device) and 145 more") and len(note) < 300
    assert len(many.entries) == NAMED


@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED LOUDLY: root reads all, becomes another")
def test_files_that_the_user_cannot_read_are_left_out_unless_they_are_loopscopes(
    tmp_path: Path,
) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    host = tmp_path / "hosts/h1"
    (host / FILES / "closed").mkdir(parents=True)
    for name in ("closed/inside", "sec\nret", "data"):
        (host / FILES / name).write_text("1")
    (host / "env.json").write_text("{}")
    (host / FILES / "sec\nret").chmod(0)
    (host / FILES / "closed").chmod(0)
    unpacked, messages, there, code = pack(tmp_path / "hosts", USER)
    assert code == 2 and messages.explain_failure and not messages.unread.count
    assert unpacked.left_out.entries == {
        f"{FILES}/closed": "cannot be read: Permission denied",
        f"{FILES}/sec\\nret": "cannot be read: Permission denied",
    }
    assert (there / FILES / "data").is_file() and (there / "env.json").is_file()

    (host / "env.json").chmod(0)
    (tmp_path / "unpacked").rename(tmp_path / "before")
    _, messages, _, _ = pack(tmp_path / "hosts", USER)
    assert messages.unread_text("/spool/hosts") == (
        "/spool/hosts/h1/env.json cannot be read: Permission denied; to make it readable: "
        "chmod -R u+rX /spool/hosts/h1"
    )


def test_other_errors_of_tar_are_not_taken_for_files_that_cannot_be_read() -> None:
    messages = packing.Messages("h1")
    messages.take("tar: h1/components/a/files/s: Cannot open: Permission denied")
    assert messages.explain_failure
    messages.take("tar: h1/trace/stream: Read error at byte 0, while reading 512 bytes: I/O error")
    assert not messages.explain_failure and "Read error" in messages.others[-1]
    other = packing.Messages("h1")
    other.take("tar: /spool/hosts: Cannot open: Permission denied")
    assert not other.explain_failure and "/spool/hosts" in other.others[-1]
