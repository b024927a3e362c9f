"""`loopscope accelerate` without a stack: what it refuses, what it says, how it runs the program.

tests/system/test_accelerated_programs.py has the stack.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loopscope import port_ranges
from loopscope.cli import app, stack_service
from loopscope.cli.accelerate import WAYS_TO_RECEIVE
from loopscope.cli.executable import find, obstacle
from loopscope.cli.socket_table import Lines, json_of, table_of
from loopscope.socket_lines import Explained

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(sys.executable).parents[1]
LOOPSCOPE = PREFIX / "bin" / "loopscope"
LIBRARY = PREFIX / "lib" / "libloopscope_preload.so"
PORTS = [
    (*line.split("|"), "")[:3]
    for line in (ROOT / "crates/preload/tests/ports.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


class Service:
    """Something that answers programs as the service does, or otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Nothing for those who ask for nothing. None: it does not even close.
        self.answer: bytes | None = b""
        self.asked = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            self.asked += 1
            if self.answer is None:
                self._kept.append(stream)
                continue
            stream.sendall(self.answer)
            stream.close()

    def end(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for stream in [self._listener, *self._kept]:
            stream.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path / "stack.sock")
    yield made
    made.end()


def run(
    *words: str | Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LOOPSCOPE, "accelerate", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def refused(*words: str | Path, code: int = 2) -> str:
    """What the command says that starts nothing."""
    done = CliRunner().invoke(app, ["accelerate", *map(str, words)])
    # What a program gets is not left in this process.
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    assert done.exit_code == code, done.output
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("text, among, others", PORTS, ids=[each[0] for each in PORTS])
def test_ports_are_what_the_library_takes_them_for(text: str, among: str, others: str) -> None:
    if among == "error":
        with pytest.raises(ValueError, match="should be a port from 1 to 65535 or a range"):
            port_ranges.read(text)
        return
    passed = port_ranges.read(text)
    ranges = [list(map(int, part.split("-"))) for part in passed.split(",")]
    inside = {port for each in ranges for port in range(each[0], each[-1] + 1)}
    assert set(map(int, among.split())) <= inside
    assert not inside & set(map(int, others.split()))


def test_wrong_ports_are_refused_by_their_place(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused("--only", "80,x,81", "--service", service.path, "--", "true")
    assert said == (
        "loopscope: --only: 'x' in '80,x,81' should be a port from 1 to 65535 or a range of them, "
        "as in 80,8000-8010"
    )
    assert "--only: '' should be" in refused("--only", "", "--service", service.path, "--", "true")
    monkeypatch.setenv("LOOPSCOPE_STACK_ONLY", "90-80")
    said = refused("--service", service.path, "--", "true")
    assert "LOOPSCOPE_STACK_ONLY: '90-80' should be" in said


def test_ways_to_receive_are_the_librarys(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (ROOT / "crates/preload/src/receive.rs").read_text("utf-8")
    assert all(f'"{way}"' in source for way in WAYS_TO_RECEIVE)
    words = ("--service", service.path, "--", "true")
    one = "should be one of adaptive, spin, block"
    assert refused("--receive", "Spin", *words) == f"loopscope: --receive: 'Spin' {one}"
    monkeypatch.setenv("LOOPSCOPE_STACK_RECEIVE", "now")
    assert refused(*words) == f"loopscope: LOOPSCOPE_STACK_RECEIVE: 'now' {one}"


def test_a_least_time_out_has_a_unit_and_a_range(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--service", service.path, "--", "true")
    for text, why in [("1", "'1' has no unit"), ("50us", "50us is too small: at least 100us")]:
        assert f"loopscope: --rto-min: {why}" in refused("--rto-min", text, *words)
    monkeypatch.setenv("LOOPSCOPE_STACK_RTO_MIN", "1h")
    assert "LOOPSCOPE_STACK_RTO_MIN: 1h is too large: at most 120s" in refused(*words)
    monkeypatch.setenv("LOOPSCOPE_STACK_RTO_MIN", "0.2s")
    done = run("--service", service.path, "--", "env")
    assert "LOOPSCOPE_STACK_RTO_MIN=200000us\n" in done.stdout


def test_the_program_gets_the_library_s_variables_and_else_what_it_would_have(
    service: Service,
) -> None:
    # In the C locale Python sets LC_CTYPE for what it starts.
    plain = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": "libm.so.6 libdl.so.2", "A": "b c"}
    asked = ["--only", " 80, 90-91", "--service", os.path.relpath(service.path)]
    asked += ["--receive", "spin", "--rto-min", "1ms"]
    for more in [[], ["--explain"]]:
        done = run(*more, *asked, "--", "env", "-0", environment=plain)
        assert done.returncode == 0, done.stderr
        found = dict(each.split("=", 1) for each in done.stdout.split("\0") if each)
        explain = found.pop("LOOPSCOPE_STACK_EXPLAIN", None)
        assert (explain is not None) == bool(more)
        assert explain is None or not Path(explain).parent.exists()
        assert found == plain | {
            "LD_PRELOAD": f"{LIBRARY}:libm.so.6:libdl.so.2",
            "LOOPSCOPE_STACK": str(service.path),
            "LOOPSCOPE_STACK_ONLY": "80,90-91",
            "LOOPSCOPE_STACK_RECEIVE": "spin",
            "LOOPSCOPE_STACK_RTO_MIN": "1000us",
        }
    # Within itself, the library is there once, and the variables are the defaults.
    inner = [LOOPSCOPE, "accelerate", "--", "env"]
    done = run("--only", "80", "--service", service.path, "--", *inner)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(LIBRARY)) == 1
    assert "LOOPSCOPE_STACK_ONLY=80\n" in done.stdout


@pytest.mark.parametrize("more", [[], ["--explain"]], ids=["become", "explain"])
def test_the_program_is_as_if_it_were_started_alone(service: Service, more: list[str]) -> None:
    """It has inherited descriptors and signals; without --explain it is the same process."""
    known = None
    accelerate = [LOOPSCOPE, "accelerate", *more, "--service", service.path, "--"]
    for before in ([], accelerate):
        out, into = os.pipe()
        os.write(into, b"inherited")
        look = f"grep -E 'Sig(Blk|Ign)' /proc/self/status; cat /proc/self/fd/{out}; echo; echo $$"
        process = subprocess.Popen(
            [*before, "sh", "-c", look], pass_fds=[out], stdout=subprocess.PIPE, text=True
        )
        os.close(into)
        os.close(out)
        blocked, ignored, inherited, pid = process.communicate(timeout=60)[0].splitlines()
        assert process.returncode == 0 and inherited == "inherited"
        assert (int(pid) == process.pid) == (not before or not more)
        # posix_spawn(3) ignores two of the C library's own signals, 32 and 33.
        state = [int(line.split()[1], 16) & 0x7FFFFFFF for line in (blocked, ignored)]
        known = known or state
        assert state == known


@pytest.mark.parametrize("more", [[], ["--explain"]], ids=["become", "explain"])
def test_the_exit_code_is_the_programs(service: Service, more: list[str]) -> None:
    before = [*more, "--service", service.path, "--", "sh", "-c"]
    assert run(*before, "exit 7").returncode == 7
    # A signal ends this command itself, or shows as shells show it.
    killed = run(*before, "kill -TERM $$").returncode
    assert killed == (128 + signal.SIGTERM if more else -signal.SIGTERM)


@pytest.mark.parametrize("more", [[], ["--explain"]], ids=["become", "explain"])
def test_what_cannot_be_executed(
    service: Service, tmp_path: Path, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "text").write_text("no program\n")
    (tmp_path / "orphan").write_text("#!/nowhere/sh\n")
    for name in ("text", "orphan"):
        (tmp_path / name).chmod(0o755)
    for name, code, said in [
        ("no-such-program", 127, "no-such-program: there is no such program in PATH"),
        ("/no/such", 127, "/no/such: there is no such file"),
        ("", 127, "there is no such program"),
        ("plain", 126, f"{tmp_path}/plain is not executable"),
        (f"{tmp_path}/plain", 126, f"is not executable; try: chmod +x {tmp_path}/plain"),
        (str(tmp_path), 126, "is a directory"),
        ("text", 126, "is neither a program of this machine nor a script that begins with #!"),
        ("orphan", 127, f"{tmp_path}/orphan: /nowhere/sh is not there"),
    ]:
        assert said in refused(*more, "--service", service.path, "--", name, code=code), name


def test_where_no_service_answers_nothing_is_started(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "started"

    def said(path: Path) -> str:
        text = refused("--service", path, "--", "touch", mark)
        assert not mark.exists()
        return text

    nobody, left = tmp_path / "nobody", tmp_path / "left"
    socket.socket(socket.AF_UNIX).bind(str(left))
    for path in (nobody, left):
        start = f"sudo {PREFIX}/bin/loopscope-host stack serve --socket {path}"
        assert f"no service of the stack is at {path}; start it by: {start}" in said(path)
    monkeypatch.setenv("LOOPSCOPE_STACK", str(nobody))
    assert f"no service of the stack is at {nobody}" in refused("--", "touch", mark)
    monkeypatch.setattr(stack_service, "DEFAULT", nobody)
    assert said(nobody).endswith("stack serve")
    service.answer = b'{"refused":"256 programs have connections by the stack already"}\n'
    assert "refuses: 256 programs have connections by the stack already" in said(service.path)
    for answer in (b"SSH-2.0-OpenSSH\n", b"[]\n", b"\xff", b"x" * 100_000):
        service.answer = answer
        assert "is not loopscope's service of the stack" in said(service.path), answer
    monkeypatch.setattr(stack_service, "_PATIENCE_S", 0.05)
    service.answer = None
    assert "does not answer within 0.05 s" in said(service.path)
    assert "AF_UNIX path too long" in said(tmp_path / ("x" * 200))


def test_it_asks_for_a_command_and_for_what_json_is_the_form_of(service: Service) -> None:
    assert "--json is the form of what --explain prints" in refused(
        "--json", "--service", service.path, "--", "true"
    )
    assert service.asked == 0
    for words in ([], ["--install", "sh", "--", "true"], ["--install", "sh", "--remove", "sh"]):
        assert "give a program to run" in refused("--service", service.path, *words)
    assert "--in is where" in refused("--in", service.path.parent, "--", "true")
    assert "--explain is for a program" in refused("--explain", "--install", "sh")


def test_a_library_that_ld_preload_cannot_name_is_refused(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a b" / "lib"
    place.mkdir(parents=True)
    (place / "libloopscope_preload.so").touch()
    monkeypatch.setattr(sys, "prefix", str(place.parent))
    assert "has a space or a colon" in refused("--service", service.path, "--", "true")
    # Without one, the package of a host program in PATH may have it.
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nowhere" / "below"))
    monkeypatch.setenv("PATH", "/usr/bin")
    assert "libloopscope_preload.so is not in" in refused("--service", service.path, "--", "true")


def test_another_processor_is_named(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def machine(name: str) -> None:
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "x", "6", "1", name)))

    words = ("--service", service.path, "--", "no-such-program")
    machine("riscv64")
    assert "no accelerating library for this processor (riscv64)" in refused(*words)


def elf(loader: bytes | None, *, bits: int = 64, machine: int = 62) -> bytes:
    """The beginning of a program, as far as the kernel's loader looks for another one."""
    start = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    start += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 200, 200, 4096)
    text = (loader or b"") + b"\0"
    kind = 3 if loader else 4
    return start + load + struct.pack("<IIQQQQQQ", kind, 4, 176, 0, 0, *[len(text)] * 2, 1) + text


def test_programs_that_take_no_library_are_known_by_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    glibc, musl = b"/lib/ld-linux-x.so.2", b"/lib/ld-musl-x.so.1"
    (tmp_path / "dynamic").write_bytes(elf(glibc, machine=own))
    (tmp_path / "static").write_bytes(elf(None, machine=own))
    (tmp_path / "musl").write_bytes(elf(musl, machine=own))
    (tmp_path / "narrow").write_bytes(elf(glibc, bits=32, machine=3))
    (tmp_path / "foreign").write_bytes(elf(glibc, machine=8))
    (tmp_path / "cut").write_bytes(elf(glibc, machine=own)[:100])
    (tmp_path / "empty").touch()
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    (tmp_path / "script").write_text(f"#!{tmp_path}/static -x\n")
    (tmp_path / "twice").write_text(f"#! {tmp_path}/script\n")
    (tmp_path / "asked").write_text("#!/usr/bin/env -S A=b static -u\n")
    (tmp_path / "loop").write_text(f"#!{tmp_path}/loop\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def why(name: str) -> str:
        found = obstacle(tmp_path / name)
        return "" if found is None else f"{found.file.name}: {found.why}"

    static = "static: is statically linked, so no library can be loaded into it"
    assert [why(name) for name in ("static", "script", "twice", "asked")] == [static] * 4
    assert why("musl") == "musl: has another C library than glibc (/lib/ld-musl-x.so.1)"
    for name in ("narrow", "foreign"):
        assert "another kind of processor" in why(name)
    assert [why(name) for name in ("dynamic", "cut", "empty", "loop", "missing")] == [""] * 5
    # What is installed here, by its real name.
    assert obstacle(find("sh")) is None and obstacle(Path(sys.executable)) is None


def test_programs_with_other_rights_are_known(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(Path("/bin/true").read_bytes())
    (tmp_path / "program").chmod(0o4755)
    assert obstacle(tmp_path / "program") is None
    (tmp_path / "script").write_text(f"#!{tmp_path}/program\n")
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: gives a file to another user, needs root")
    for mode, said in ((0o4755, "set-uid"), (0o2755, "set-gid")):
        os.chown(tmp_path / "program", 65534, 65534)
        (tmp_path / "program").chmod(mode)
        for name in ("program", "script"):
            found = obstacle(tmp_path / name)
            assert found is not None and said in found.why and not found.breaks
    # A script's bits count for nothing.
    (tmp_path / "program").chmod(0o755)
    os.chown(tmp_path / "script", 65534, 65534)
    (tmp_path / "script").chmod(0o4755)
    assert obstacle(tmp_path / "script") is None


def test_a_static_program_runs_after_a_warning(service: Service, tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("int main(void) { return 5; }\n")
    program = tmp_path / "program"
    subprocess.run(["cc", "-static", "-o", program, tmp_path / "program.c"], check=True)
    done = run("--service", service.path, "--", program)
    assert done.returncode == 5
    assert done.stderr == (
        f"loopscope: warning: {program} is statically linked, so no library can be loaded into it; "
        "its connections stay with the kernel\n"
    )
    (tmp_path / "script").write_text(f"#!{program}\n")
    (tmp_path / "script").chmod(0o755)
    done = run("--explain", "--service", service.path, "--", tmp_path / "script")
    assert f"{tmp_path}/script ({program}) is statically linked" in done.stderr
    assert "accelerated: 0 of 0 sockets\nthe program has made no socket of TCP" in done.stderr


def test_a_launcher_runs_one_program_accelerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs neither the command nor the service, and is removed by its maker alone."""
    place, theirs = tmp_path / "own folder", tmp_path / "bin"
    theirs.mkdir()
    show = theirs / "show it"
    show.write_text("#!/bin/sh\nenv -0; printf '%s|' \"$@\"; exit 6\n")
    show.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{theirs}:/usr/bin:/bin")

    def change(*words: str | Path) -> str:
        done = CliRunner().invoke(app, ["accelerate", *map(str, words), "--in", str(place)])
        assert done.exit_code == 0, done.output
        return done.output

    def variables(**more: str) -> dict[str, str]:
        plain = {"PATH": "/usr/bin:/bin"} | more
        done = subprocess.run(
            [place / "show it", "a b", "", "c"], env=plain, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (6, "")
        *found, words = done.stdout.split("\0")
        assert words == "a b||c|"
        # The shell of the program sets PWD and others.
        pairs = dict(each.split("=", 1) for each in found)
        return {key: pairs[key] for key in pairs if key[:2] in ("LD", "LO")}

    said = change("--install", "show it", "--only", "80, 90-91", "--service", "/run/a b.sock")
    assert f"{place}/show it runs {show} with the library" in said and "warning" not in said
    asked = {"LOOPSCOPE_STACK": "/run/a b.sock", "LOOPSCOPE_STACK_ONLY": "80,90-91"}
    assert variables() == asked | {"LD_PRELOAD": str(LIBRARY)}
    assert variables(LD_PRELOAD="libm.so.6")["LD_PRELOAD"] == f"{LIBRARY}:libm.so.6"
    # Made again it is for the same program, though the launcher comes first in PATH.
    change("--install", "show it")
    assert variables() == {"LD_PRELOAD": str(LIBRARY)}
    # Where loopscope is gone, the program runs as before.
    launcher = place / "show it"
    launcher.write_text(launcher.read_text().replace(str(LIBRARY), "/gone/library.so"))
    assert variables() == {}
    assert change("--remove", "show it") == f"removed {launcher}\n"
    assert list(place.iterdir()) == []
    assert "there is no launcher" in refused("--remove", "show it", "--in", place)
    monkeypatch.setenv("PATH", f"{theirs}:{place}:/usr/bin:/bin")
    assert f"put {place} first in PATH" in change("--install", "show it")


def test_a_launcher_takes_no_other_files_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / ".local/bin"
    place.mkdir(parents=True)
    for text in ("", "#!/bin/sh\nexec true\n"):
        (place / "sh").write_text(text)
        for verb in ("--install", "--remove"):
            assert f"{place}/sh is there and was not made by" in refused(verb, "sh")
        assert (place / "sh").read_text() == text
    (place / "env").symlink_to("/nowhere")
    assert "was not made by --install" in refused("--install", "env")
    assert "would be its own launcher" in refused("--install", "/bin/sh", "--in", "/bin")
    assert "no such program in PATH" in refused("--install", "no-such-program", code=127)
    assert "should be a port" in refused("--install", "cat", "--only", "x")
    static = tmp_path / "static"
    static.write_bytes(elf(None))
    static.chmod(0o755)
    assert "cannot be accelerated" in refused("--install", static)
    assert sorted(path.name for path in place.iterdir()) == ["env", "sh"]


COUNTS = """
import signal, sys, time
counts = dict.fromkeys((signal.SIGINT, signal.SIGHUP), 0)
def count(number, _):
    counts[number] += 1
    print("came", flush=True)
def end(*_):
    print(*counts.values(), flush=True)
    sys.exit(3)
for each in counts:
    signal.signal(each, count)
signal.signal(signal.SIGTERM, end)
signal.alarm(60)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def test_signals_are_passed_on_once(service: Service) -> None:
    """Ctrl-C reaches the program by the terminal; what is sent to the command is passed on."""
    words = [LOOPSCOPE, "accelerate", "--explain", "--service", service.path, "--"]
    command = [str(each) for each in [*words, sys.executable, "-c", COUNTS]]
    process, terminal = pty.fork()
    if process == 0:
        os.execv(command[0], command)
    said = b""

    def until(text: bytes) -> None:
        nonlocal said
        while text not in said:
            assert select.select([terminal], [], [], 60)[0], said
            said += os.read(terminal, 1000)
        said = said.partition(text)[2]

    try:
        until(b"ready")
        # Where the command finds the signal late, the program has it already.
        os.kill(process, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(process, os.WUNTRACED)[1])
        os.write(terminal, b"\x03")
        until(b"came")
        os.kill(process, signal.SIGCONT)
        os.kill(process, signal.SIGHUP)
        until(b"came")
        # A signal that came twice would be passed on before this one, whose number is higher.
        os.kill(process, signal.SIGTERM)
        until(b"1 1")
        until(b"accelerated: ")
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
    finally:
        # Without the terminal it would be ended by that.
        status = os.waitpid(process, 0)[1]
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 3


SOCKET = {
    "process": 7,
    "socket": 3,
    "protocol": "TCP",
    "open": False,
    "local": "10.0.0.1:6379",
    "peer": "10.0.0.2:40000",
    "accelerated": True,
    "why": "the program has closed it",
    "received_by_stack": 2_000,
    "read_from_stack": 2_000,
    "written_to_stack": 0,
    "received": 2_100,
    "written": 0,
}


def test_the_table_has_each_socket_and_what_is_missing() -> None:
    other = dict.fromkeys(SOCKET) | {"process": 8, "accelerated": False, "why": "\x1b[31mfcntl()"}
    head, names, _, first, second, more = table_of(Explained([SOCKET, other], 2), None)
    assert head == "accelerated: 1 of 2 sockets"
    assert names.split("  ")[-1] == "why the kernel has it"
    assert first.split() == [
        *("7", "TCP", "10.0.0.1:6379", "10.0.0.2:40000", "yes", "2", "kB", "of", "2.1", "kB"),
        *("the", "program", "has", "closed", "it"),
    ]
    # A program cannot write to the terminal by this.
    assert second.split() == ["8", "no", "\\x1b[31mfcntl()"]
    assert more == "2 lines of the library cannot be read"
    many = [SOCKET] * 299 + [SOCKET | {"open": True}]
    *_, last, killed = table_of(Explained(many, 0), "SIGKILL")
    assert last == "… and 100 more; --json lists all"
    assert killed == "the program was ended by SIGKILL; sockets that were open then: 1"


def test_lines_of_all_processes_are_read_and_nothing_is_left() -> None:
    other = SOCKET | {"process": 8, "open": True}
    with Lines() as lines:
        # A server writes as the user that it has become.
        assert lines.path.stat().st_mode & 0o777 == 0o622
        assert lines.path.parent.stat().st_mode & 0o777 == 0o711
        with lines.path.open("ab") as file:
            # A socket has a line while it is open, which the one of its end replaces.
            for each in (SOCKET | {"open": True, "why": None}, other, SOCKET):
                file.write(json.dumps(each).encode() + b"\n")
            file.write(b'[]\n{"process": 8, "loc')
        explained = lines.read()
    assert explained == Explained([SOCKET, other], 2)
    assert (explained.accelerated, explained.open) == (2, 1)
    assert not lines.path.parent.exists()
    assert json.loads(json_of(explained, 3)) == {
        "exit": 3,
        "sockets": [SOCKET, other],
        "unreadable_lines": 2,
    }
