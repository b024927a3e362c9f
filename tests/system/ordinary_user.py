"""An installation for the user `nobody`: its interpreter, the wheel, a home."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from machine import BIN, ROOT

USER = "nobody"

# The interpreter and the packages of the tests may be where only root can go.
_SETUP = """\
set -e
mount --bind "$BASE" "$PLACE/python"
mount --bind "$PACKAGES" "$PLACE/packages"
exec "$@"
"""
_BECOME = ("setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups", "--no-new-privs")


class OrdinaryUser:
    """What `nobody` has on this machine: a virtual environment with the wheel, and a home."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.state = place / "state"
        self.temporary = place / "temporary"
        for folder in ("python", "packages", "home", "state", "temporary"):
            (place / folder).mkdir()
        self._bin = place / "venv" / "bin"
        account = pwd.getpwnam(USER)
        self.uid = account.pw_uid
        for folder in (self.home, self.state, self.temporary):
            os.chown(folder, account.pw_uid, account.pw_gid)
        packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
        self._around = {
            "BASE": sys.base_prefix,
            "PACKAGES": str(packages),
            "PLACE": str(place),
        }
        python = place / "python" / "bin" / Path(sys._base_executable).name  # type: ignore[attr-defined]
        self._as_root(python, "-m", "venv", "--without-pip", place / "venv")
        (wheel,) = (ROOT / "build" / "wheels").glob("loopscope-*.whl")
        self._as_root(
            BIN / "python", "-m", "pip", "--python", self._bin / "python", "install", "--quiet",
            "--disable-pip-version-check", "--no-deps", "--no-index", wheel,
        )  # fmt: skip
        own = place / "venv" / "lib" / packages.parent.name / "site-packages"
        (own / "packages.pth").write_text(f"{place / 'packages'}\n")
        if not (self._bin / "loopscope-host").exists():
            shutil.copy(BIN / "loopscope-host", self._bin)

    def _as_root(self, *words: str | Path) -> None:
        subprocess.run(
            ["unshare", "-m", "sh", "-c", _SETUP, "sh", *words],
            env={**os.environ, **self._around},
            check=True,
        )

    def words(self, *words: str | Path) -> list[str | Path]:
        """The command that runs ``loopscope WORDS`` as the user."""
        return [
            "unshare",
            "-m",
            "sh",
            "-c",
            _SETUP,
            "sh",
            *_BECOME,
            self._bin / "loopscope",
            *words,
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Its environment."""
        return {
            "PATH": f"{self._bin}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "LOOPSCOPE_STATE_DIR": str(self.state),
            # An interpreter with a library of its own looks for it where it was installed.
            "LD_LIBRARY_PATH": str(self.place / "python" / "lib"),
            **self._around,
        }

    def command(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs ``loopscope WORDS`` in its home to the end."""
        return self.run(self.words(*words))

    def run(self, words: list[str | Path]) -> subprocess.CompletedProcess[str]:
        """Runs a command of `words` to its end."""
        return subprocess.run(
            words,
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Starts ``loopscope WORDS`` in its home, in a session of its own."""
        return subprocess.Popen(
            self.words(*words),
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def write(self, name: str, text: str) -> Path:
        """A file in its home."""
        path = self.home / name
        path.write_text(text)
        return path

    def processes(self) -> dict[int, str]:
        """Number to command of every process of this installation.

        Its place is in a word of the command or in a variable.
        """
        found = {}
        own = str(self.place).encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
                if process.stat().st_uid == self.uid and (
                    own in command or own in (process / "environ").read_bytes()
                ):
                    found[int(process.name)] = command.replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
        return found

    def leftovers(self) -> list[str]:
        """What its runs left: processes, files, ledgers, mounts."""
        left = [f"process {pid}: {command}" for pid, command in self.processes().items()]
        left += [str(path) for path in self.temporary.iterdir()]
        left += [str(path) for path in self.state.rglob("*") if not path.is_dir()]
        runs = [path.name.rpartition("-")[2] for path in self.home.glob("runs/*/*-*")]
        for place in ("/dev/shm", "/tmp", "/run/netns"):
            left += [str(path) for run in runs for path in Path(place).glob(f"*{run}*")]
        mounts = Path("/proc/self/mounts").read_text()
        left += [line for line in mounts.splitlines() if str(self.place) in line]
        return left


@contextmanager
def ordinary_user() -> Iterator[OrdinaryUser]:
    """The installation, which is removed in the end."""
    # Where all users can go, unlike pytest's own folders.
    place = Path(mkdtemp(prefix="ordinary-", dir="/tmp"))
    try:
        place.chmod(0o755)
        yield OrdinaryUser(place)
    finally:
        shutil.rmtree(place)
