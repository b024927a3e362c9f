"""Machines with a real sshd each, as network namespaces with a user of their own."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from machine import Machine

USER = "rider"
PASSWORD = "saddle"
# A rule of sudoers.
EVERYTHING = f"{USER} ALL=(ALL) NOPASSWD: ALL"
NETWORK = "192.0.2"
# What a machine has of its own: nothing that is on the desk but its programs and libraries.
OWN = ("/home", "/run", "/tmp", "/dev/shm")
# What root can put where on a machine, which is the machine's own too.
ROOTS = ("/etc/sudoers.d", "/usr/local/lib")
RUNS = f"/home/{USER}/.local/state/loopscope/runs"
ROOTS_HOME = "/home/root"
ROOTS_RUNS = f"{ROOTS_HOME}/.local/state/loopscope/runs"
SSHD = """
Port 22
ListenAddress 0.0.0.0
HostKey /home/sshd/host_key
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowStreamLocalForwarding no
AllowTcpForwarding no
MaxStartups 100
"""


def words_of(pid: int | str) -> list[str]:
    """A process's command; empty: it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def parent_of(pid: int) -> int:
    (number,) = re.findall(r"(?m)^PPid:\t(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(number)


def run(*words: str | Path, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0 or not check, (words, done.stdout, done.stderr)
    return done.stdout


class SshMachines(Machine):
    """A desk and machines on one network. ``loopscope`` is run on the desk, as root."""

    def __init__(self, directory: Path, hosts: tuple[str, ...]) -> None:
        super().__init__(directory)
        self.hosts = hosts
        self.token = f"lstest-{os.getpid()}-{time.monotonic_ns() % 10**6}"
        self.keys = directory / "keys"
        self.keys.mkdir()
        self.config = directory / "ssh_config"
        self.known = directory / "known_hosts"
        self.sshd_config = directory / "sshd_config"
        self.passwd = directory / "passwd"
        self.shadow = directory / "shadow"
        self.sshd: dict[str, subprocess.Popen[str]] = {}
        # What commands make for a time: other tests have theirs elsewhere, and names of sockets are
        # too short for the test's directory.
        self.scratch = Path(tempfile.mkdtemp(prefix="lstest-"))
        self.environment["TMPDIR"] = str(self.scratch)

    def namespace(self, name: str) -> str:
        return f"{self.token}-{name}"

    def address(self, host: str) -> str:
        return f"{NETWORK}.{11 + self.hosts.index(host)}"

    def make(self) -> None:
        switch = self.namespace("switch")
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        self._plug("desk", f"{NETWORK}.1")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.keys / "id")
        config = [f"UserKnownHostsFile {self.known}", f"IdentityFile {self.keys}/id"]
        for host in self.hosts:
            self._plug(host, self.address(host))
            key = self.keys / host
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
            config += [f"Host {host}", f"  HostName {self.address(host)}", f"  User {USER}"]
        self._write_known()
        self.config.write_text("\n".join(config) + "\n")
        # Before any machine reads them: they are written once.
        self._write_shared()
        for host in self.hosts:
            self.boot(host)
        for host in self.hosts:
            self.wait(host)

    def _write_known(self) -> None:
        """Has the desk know the machines' keys."""
        keys = {host: (self.keys / f"{host}.pub").read_text() for host in self.hosts}
        self.known.write_text("".join(f"{self.address(host)} {keys[host]}" for host in self.hosts))

    def _plug(self, name: str, address: str) -> None:
        own, switch = self.namespace(name), self.namespace("switch")
        run("ip", "netns", "add", own)
        run(
            *("ip", "-n", switch, "link", "add", name, "type", "veth"),
            *("peer", "name", "eth0", "netns", own),
        )
        run("ip", "-n", switch, "link", "set", name, "master", "bridge", "up")
        run("ip", "-n", own, "address", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", own, "link", "set", "eth0", "up")
        run("ip", "-n", own, "link", "set", "lo", "up")

    def _write_shared(self) -> None:
        """Writes what all machines have alike."""
        self.sshd_config.write_text(SSHD)
        self.passwd.write_text(
            "root:*:0:0::/home/root:/bin/sh\nsshd:*:100:65534::/run/sshd:/usr/sbin/nologin\n"
            f"{USER}:x:4711:4711::/home/{USER}:/bin/bash\n"
        )
        hashed = run("openssl", "passwd", "-6", PASSWORD).strip()
        self.shadow.write_text(f"root:*:1::::::\n{USER}:{hashed}:1::::::\n")
        self.shadow.chmod(0o600)

    def boot(self, host: str) -> None:
        """Starts a machine's sshd."""
        script = self.directory / f"boot-{host}"
        self.boot_id(host)
        script.write_text(f"""set -eu
mount --make-rprivate /
mount --bind {self.directory}/boot-id-{host} /proc/sys/kernel/random/boot_id
mount -t tmpfs -o mode=755 tmpfs /home
mkdir /home/sshd /home/{USER} /home/{USER}/.ssh /home/root /home/root/.ssh
cp {self.keys}/{host} /home/sshd/host_key
chmod 600 /home/sshd/host_key
cp {self.sshd_config} /home/sshd/sshd_config
cp {self.keys}/id.pub /home/{USER}/.ssh/authorized_keys
cp {self.keys}/id.pub /home/root/.ssh/authorized_keys
echo 'echo this machine greets everybody' >/home/{USER}/.bashrc
chown -R 4711:4711 /home/{USER}
mount --bind {self.passwd} /etc/passwd
mount --bind {self.shadow} /etc/shadow
{"".join(f"mount -t tmpfs -o mode=1777 tmpfs {place}; " for place in OWN[1:])}
{"".join(f"mount -t tmpfs -o mode=755 tmpfs {place}; " for place in ROOTS)}
mkdir /run/sshd
mknod /home/tun c 10 200
chmod 666 /home/tun
mount --bind /home/tun /dev/net/tun
exec env -i PATH=/usr/bin:/bin /usr/sbin/sshd -D -e -f /home/sshd/sshd_config
""")
        log = open(self.directory / f"sshd-{host}.log", "a")
        self.sshd[host] = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(host), "unshare", "-m", "sh", script],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def boot_id(self, host: str) -> None:
        """Draws the id of a machine's boot."""
        (self.directory / f"boot-id-{host}").write_text(f"{uuid.uuid4()}\n")

    def wait(self, host: str) -> None:
        """Waits until the machine's sshd listens."""
        end = time.monotonic() + 10
        while ":22 " not in run("ip", "netns", "exec", self.namespace(host), "ss", "-tln"):
            assert time.monotonic() < end, (self.directory / f"sshd-{host}.log").read_text()
            time.sleep(0.05)

    def on(self, host: str, command: str, check: bool = True) -> str:
        """Output of a shell command on a machine, in its own view of files, as root."""
        return run(
            *("nsenter", "-t", str(self.sshd[host].pid), "-m", "-n", "sh", "-c", command),
            check=check,
        )

    def allow(self, host: str, rule: str) -> None:
        """Gives a machine a rule of sudo's."""
        self.on(host, f"umask 227; echo {shlex.quote(rule)} >/etc/sudoers.d/test")

    def cut(self, host: str) -> None:
        """Takes a machine off the network."""
        run("ip", "-n", self.namespace("switch"), "link", "set", host, "down")

    def change_key(self, host: str) -> None:
        """Gives a machine's sshd another host key, for connections from now on."""
        key = self.keys / host
        for file in (key, self.keys / f"{host}.pub"):
            file.unlink()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        # The machine has the desk's files only while it boots.
        text = shlex.quote(key.read_text())
        self.on(host, f"printf %s {text} >/home/sshd/host_key")
        self.read_settings(host)

    def read_settings(self, host: str) -> None:
        """Has a machine's sshd read its files again; its sessions go on."""
        log = self.directory / f"sshd-{host}.log"
        before = log.read_text().count("Server listening on")
        os.kill(self.sshd[host].pid, signal.SIGHUP)
        end = time.monotonic() + 10
        while log.read_text().count("Server listening on") == before:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.01)

    def mend(self, host: str) -> None:
        """Has a machine as it was: on the network, its key known, and its processes go on."""
        self._write_known()
        run("ip", "-n", self.namespace("switch"), "link", "set", host, "up")
        for pid in self.pids_of(host, ""):
            run("kill", "-CONT", str(pid), check=False)

    def reboot(self, host: str) -> None:
        """Ends everything on a machine at once, and starts its sshd again: its files stay."""
        pids = run("ip", "netns", "pids", self.namespace(host)).split()
        # The first process holds the machine's files.
        others = [pid for pid in pids if int(pid) != self.sshd[host].pid]
        run("kill", "-KILL", *others, check=False)
        self.boot_id(host)
        self.on(host, "rm -rf /tmp/* /dev/shm/* /run/user")

    def pids_of(self, host: str, name: str) -> list[int]:
        """Numbers of the processes on a machine whose first word ends so, without those of sshd."""
        found = []
        for pid in run("ip", "netns", "pids", self.namespace(host)).split():
            words = words_of(pid)
            if words and "sshd" not in words[0] and words[0].endswith(name):
                found.append(int(pid))
        return found

    def agent(self, host: str) -> int:
        """Number of the agent on a machine where users have no cgroups: its launcher's child."""
        ours = self.pids_of(host, "loopscope-host")
        children = [
            pid for pid in ours if parent_of(pid) in ours and "guardian" not in words_of(pid)
        ]
        # A child that it is about to start has its command for a moment.
        return min(children)

    def processes_of(self, host: str) -> list[str]:
        """Commands of the user's processes on a machine, without those of sshd."""
        pids = run("ip", "netns", "pids", self.namespace(host)).split()
        texts = [" ".join(words_of(pid)) for pid in pids]
        return [text for text in texts if text and "sshd" not in text]

    def remove(self) -> None:
        names = ["switch", "desk", *self.hosts]
        for name in names:
            for pid in run("ip", "netns", "pids", self.namespace(name), check=False).split():
                run("kill", "-KILL", pid, check=False)
        for process in self.sshd.values():
            process.wait()
        for name in names:
            run("ip", "netns", "delete", self.namespace(name), check=False)
        shutil.rmtree(self.scratch)

    def on_desk(self, *words: str | Path) -> list[str | Path]:
        """The words of a command that is run on the desk."""
        view = (
            f"mount --bind {self.config} /etc/ssh/ssh_config && exec {shlex.join(map(str, words))}"
        )
        return ["ip", "netns", "exec", self.namespace("desk"), "unshare", "-m", "sh", "-c", view]

    def noted(self) -> list[str]:
        """Names of the spools that runs have noted as not collected."""
        notes = self.directory.glob("runs/*/2*/*/*/spools.json")
        hosts = [json.loads(note.read_text())["hosts"] for note in notes]
        return [spool["spool"] for each in hosts for spool in each.values()]

    def leftovers(self) -> list[str]:
        """What runs left, on the desk and on the machines."""
        left = super().leftovers()
        for host in self.hosts:
            if self.sshd[host].poll() is None:
                left += [f"process on {host}: {each}" for each in self.processes_of(host)]
                runs = f"find {RUNS} {ROOTS_RUNS} -mindepth 1 -maxdepth 1 2>/dev/null"
                find = f"{runs}; find /dev/shm /tmp ! -type d"
                found = self.on(host, find, check=False).split("\n")
                # What a run measured and could not collect stays there; the run notes it.
                places = (RUNS, ROOTS_RUNS)
                known = [f"{place}/{name}" for place in places for name in self.noted()]
                left += [f"on {host}: {each}" for each in found if each and each not in known]
                found = self.on(host, f"find {' '.join(ROOTS)} -mindepth 1 ! -name test")
                left += [f"on {host}: {each}" for each in found.split()]
                links = self.on(host, "ip link; ip route show table all")
                left += [f"on {host}: {each}" for each in links.split("\n") if "lslink" in each]
        left += map(str, self.scratch.iterdir())
        return left
