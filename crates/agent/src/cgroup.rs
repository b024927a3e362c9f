//! Control groups of version 2: the processes of a run and of each component, wherever these have
//! moved to and whatever their environment says.
//!
//! A run's group is made in the group that its agent is in, so that limits on the agent go on to
//! hold. No controller is enabled in it: what is used (membership, `cgroup.kill`, `cpu.stat`,
//! pressure) works in a hierarchy without any.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::Pid;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::pidfd::Pidfd;
use crate::processes::{Killed, name_of};

/// Its processes; writing `0` moves the writer there.
pub(crate) const PROCESSES: &str = "cgroup.procs";
/// Time between two looks at a group that is to become empty.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a group may take to be frozen.
const FREEZING: Duration = Duration::from_millis(100);
/// How long a group may take to be empty when its processes have ended.
const RELEASE: Duration = Duration::from_secs(5);

/// The folder of the group that this process is in; `None` where no mounted hierarchy shows it.
pub fn own() -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    Ok(find(&mounts, &groups))
}

/// See [`own`]; of the content of the two files (proc(5), cgroups(7)).
fn find(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    // Such a process is outside of its cgroup namespace.
    if group.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // A blank in a path is written `\040`.
        if source.split(' ').next() != Some("cgroup2") || point.contains('\\') {
            return None;
        }
        Some(Path::new(point).join(group.strip_prefix(root).ok()?))
    })
}

/// Mounts the hierarchy on `point`, a folder.
pub(crate) fn mount_on(point: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some("cgroup2"), point, Some("cgroup2"), flags, None::<&str>)?)
}

/// Takes it off again; `false` if nothing of the kind is mounted there.
pub(crate) fn unmount(point: &Path) -> io::Result<bool> {
    // The root of a hierarchy has no such file; a folder in one is no mount.
    if !is_group(point) || point.join("cgroup.events").exists() {
        return Ok(false);
    }
    umount2(point, MntFlags::MNT_DETACH)?;
    Ok(true)
}

/// Whether a folder is a group.
pub(crate) fn is_group(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// The id of a group, by which the kernel's programs know it: the inode of its folder.
pub(crate) fn number(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.ino())
}

/// Makes a group; fails where it exists.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

/// What moves a process into a group that writes `0` to it.
pub(crate) fn entrance(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path.join(PROCESSES))
}

/// Moves this process into a group.
pub(crate) fn enter(path: &Path) -> io::Result<()> {
    fs::write(path.join(PROCESSES), "0")
}

/// Processes in a group and in those below it. Those of other PID namespaces are not among them.
fn processes(path: &Path) -> Vec<i32> {
    let mut found = vec![];
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let text = fs::read_to_string(folder.join(PROCESSES)).unwrap_or_default();
        let pids = text.lines().filter_map(|line| line.parse::<i32>().ok());
        found.extend(pids.filter(|&pid| pid != 0));
        folders.extend(below(&folder));
    }
    found
}

/// The groups right below a group.
fn below(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return vec![] };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter_map(Result::ok).filter(is_folder).map(|entry| entry.path()).collect()
}

/// Whether any process is in a group or below it.
pub(crate) fn is_populated(path: &Path) -> bool {
    has_event(path, "populated 1")
}

/// Whether a line is in a group's state.
fn has_event(path: &Path, event: &str) -> bool {
    let events = fs::read_to_string(path.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == event)
}

/// Kills all processes in a group and below it and waits until they are gone or `patience` is over.
/// This process leaves the group first.
pub(crate) fn kill(path: &Path, patience: Duration) -> io::Result<Killed> {
    leave(path)?;
    let until = Instant::now() + patience;
    let mut killed = BTreeMap::new();
    loop {
        let found = processes(path);
        killed.extend(found.iter().map(|&pid| (pid, name_of(pid))));
        // Processes that it cannot name count, too. Those found may have ended since.
        if !is_populated(path) {
            return Ok(Killed { killed, survivors: vec![] });
        }
        if Instant::now() > until {
            return Ok(Killed { killed, survivors: found });
        }
        // All at once, so that none can fork away. Linux 5.14 and later.
        match fs::write(path.join("cgroup.kill"), "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => kill_each(path)?,
            other => other?,
        }
        std::thread::sleep(PAUSE);
    }
}

/// Kills the processes in a group one by one, while it is frozen: none can fork away. Linux 5.2 and
/// later freeze, and SIGKILL ends what is frozen (cgroup-v2.rst, `cgroup.freeze`).
fn kill_each(path: &Path) -> io::Result<()> {
    match fs::write(path.join("cgroup.freeze"), "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => {
            other?;
            // What waits for a device cannot be frozen; it cannot fork either.
            let until = Instant::now() + FREEZING;
            while !has_event(path, "frozen 1") && Instant::now() < until {
                std::thread::sleep(PAUSE);
            }
        }
    }
    signal(path, Signal::KILL, &[]);
    Ok(())
}

/// Sends a signal to the processes in a group and below it, except to those of process groups
/// `without`.
pub(crate) fn signal(path: &Path, signal: Signal, without: &[u32]) {
    for pid in processes(path) {
        let Ok(Some(process)) = Pidfd::open(pid) else { continue };
        // Looked at when its number cannot become another's any more.
        let group = nix::unistd::getpgid(Some(Pid::from_raw(pid)));
        let is_other = group.is_ok_and(|of| !without.contains(&of.as_raw().cast_unsigned()));
        if is_other && is_in(pid, path) {
            // What has ended needs none.
            let _ = process.signal(signal);
        }
    }
}

/// Whether a process is in the group of this folder, or below it.
fn is_in(pid: i32, path: &Path) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let mut above = Path::new(group).ancestors();
    above.any(|group| group != Path::new("") && path.ends_with(group))
}

/// Moves this process out of a group and those below it, if it is there.
fn leave(path: &Path) -> io::Result<()> {
    match (own()?, path.parent()) {
        (Some(own), Some(parent)) if own.starts_with(path) => enter(parent),
        _ => Ok(()),
    }
}

/// Removes a group and those below it, after leaving it; `false` if there was none.
pub(crate) fn remove(path: &Path) -> io::Result<bool> {
    if !path.exists() {
        return Ok(false);
    }
    leave(path)?;
    let until = Instant::now() + RELEASE;
    loop {
        match remove_all(path) {
            // What has just been killed takes a moment to leave.
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
                if is_populated(path) || Instant::now() > until {
                    return Err(error);
                }
                std::thread::sleep(PAUSE);
            }
            other => return other.map(|()| true),
        }
    }
}

fn remove_all(path: &Path) -> io::Result<()> {
    below(path).iter().try_for_each(|folder| remove_all(folder))?;
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// CPU time that the processes of a group have taken, those that have ended included, and how long
/// some of them waited for a processor, in µs. `null` if the group is gone; without `stalled_us`
/// where the kernel does not account for pressure.
pub(crate) fn cpu_time(path: &Path) -> Value {
    let stat = fs::read_to_string(path.join("cpu.stat")).unwrap_or_default();
    let field = |name: &str| {
        stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let (Some(user), Some(system)) = (field("user_usec "), field("system_usec ")) else {
        return Value::Null;
    };
    let mut time = json!({ "user_us": user, "system_us": system });
    let pressure = fs::read_to_string(path.join("cpu.pressure")).unwrap_or_default();
    let some = pressure.lines().find_map(|line| line.strip_prefix("some ")?.split("total=").nth(1));
    if let Some(stalled) = some.and_then(|total| total.parse::<u64>().ok()) {
        time["stalled_us"] = stalled.into();
    }
    time
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_own_group_is_found_wherever_the_hierarchy_is_mounted() {
        let v1 = "33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";
        let groups = "1:cpu:/\n0::/user.slice/a.scope\n";
        let at = |line: &str| find(&format!("{v1}{line}"), groups);
        let wanted = |path: &str| Some(PathBuf::from(path));
        let whole = "41 31 0:38 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(at(whole), wanted("/sys/fs/cgroup/unified/user.slice/a.scope"));
        let part = "41 31 0:38 /user.slice /mnt rw - cgroup2 none rw\n";
        assert_eq!(at(part), wanted("/mnt/a.scope"));
        // One that does not show it is not it, and the next one is looked at.
        let other = "41 31 0:38 /system.slice /mnt rw - cgroup2 none rw\n";
        assert_eq!(at(other), None);
        assert_eq!(at(&format!("{other}{part}")), wanted("/mnt/a.scope"));
        assert_eq!(at(""), None);
        assert_eq!(find(whole, "0::/../..\n"), None);
        assert_eq!(find(whole, "1:cpu:/\n"), None);
    }

    /// A group of its own below the one that the tests run in; `None`, loudly, without the right.
    fn made(name: &str) -> Option<PathBuf> {
        let path = own().unwrap().map(|own| own.join(format!("{name}-{}", std::process::id())));
        let made = path.ok_or_else(|| io::Error::other("no hierarchy is mounted"));
        let made = made.and_then(|path| make(&path).map(|()| path));
        if let Err(error) = &made {
            assert!(error.kind() != io::ErrorKind::AlreadyExists, "{error}");
            crate::skip::skipped(&format!("no cgroup can be made: {error}"));
        }
        made.ok()
    }

    /// A process that goes on forking, and leaves its child behind, is not there any more when its
    /// number has been read: only a frozen one is hit.
    #[test]
    fn what_forks_away_is_killed_where_the_kernel_cannot_kill_a_group() {
        let Some(path) = made("ls-test-freeze") else { return };
        for _ in 0..20 {
            let mut command = Command::new("sh");
            command.args(["-c", "hop() { hop & exit; }; hop"]);
            enter_before_exec(&mut command, &path);
            command.spawn().unwrap().wait().unwrap();
            assert!(is_populated(&path));
            kill_each(&path).unwrap();
            let dying = processes(&path);
            let until = Instant::now() + RELEASE;
            let mut forked = false;
            while is_populated(&path) && !forked && Instant::now() < until {
                forked = processes(&path).iter().any(|pid| !dying.contains(pid));
            }
            fs::write(path.join("cgroup.kill"), "1").unwrap();
            assert!(!forked, "it has forked away");
            fs::write(path.join("cgroup.freeze"), "0").unwrap();
        }
        assert!(remove(&path).unwrap());
    }

    /// A program that leaves its session and its environment behind is killed with its group, and
    /// its group can be removed, with what it was split into.
    #[test]
    fn all_of_a_group_is_killed() {
        let Some(path) = made("ls-test-kill") else { return };
        let inner = path.join("inner");
        make(&inner).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "env -i setsid sleep 600 & echo; exec sleep 600"]);
        command.stdout(std::process::Stdio::piped());
        enter_before_exec(&mut command, &inner);
        let mut child = command.spawn().unwrap();
        let mut ready = [0];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        assert!(is_populated(&path));
        assert!(remove(&path).is_err());
        let killed = kill(&path, Duration::from_secs(5)).unwrap();
        child.wait().unwrap();
        assert_eq!((killed.killed.len(), killed.survivors), (2, vec![]));
        assert!(!is_populated(&path));
        assert!(remove(&path).unwrap() && !path.exists());
        assert!(!remove(&path).unwrap());
    }

    /// A process that ends by itself while its group is killed has not survived that.
    #[test]
    fn what_ends_meanwhile_is_no_survivor() {
        let Some(path) = made("ls-test-meanwhile") else { return };
        // They take time to look through after the process has been found.
        (0..100).for_each(|inner| make(&path.join(inner.to_string())).unwrap());
        for round in 0..20 {
            let mut command = Command::new("sleep");
            enter_before_exec(command.arg("600"), &path);
            let mut child = command.spawn().unwrap();
            let ending = std::thread::spawn(move || {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(50 * round) {}
                child.kill().unwrap();
                child.wait().unwrap();
            });
            let killed = kill(&path, Duration::from_secs(5)).unwrap();
            ending.join().unwrap();
            assert!(killed.survivors.is_empty(), "round {round}: {:?}", killed.survivors);
        }
        assert!(remove(&path).unwrap());
    }

    #[test]
    fn cpu_time_is_that_of_the_group() {
        let Some(path) = made("ls-test-cpu") else { return };
        let before = cpu_time(&path);
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]);
        enter_before_exec(&mut command, &path);
        command.status().unwrap();
        let after = cpu_time(&path);
        remove(&path).unwrap();
        assert_eq!(before["user_us"], 0);
        assert!(after["user_us"].as_u64().unwrap() + after["system_us"].as_u64().unwrap() > 0);
        assert_eq!(cpu_time(&path), Value::Null);
    }

    #[allow(unsafe_code)]
    fn enter_before_exec(command: &mut Command, path: &Path) {
        let entrance = entrance(path).unwrap();
        // SAFETY: write is async-signal-safe.
        unsafe { command.pre_exec(move || Ok(nix::unistd::write(&entrance, b"0").map(|_| ())?)) };
    }
}
