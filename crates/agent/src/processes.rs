//! Finding and ending processes by what they are, never by number alone: numbers are reused.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::pidfd::Pidfd;

/// A process as one can name it across time: its number and when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process number.
    pub pid: i32,
    /// Start time in clock ticks after boot (`/proc/<pid>/stat`, field 22).
    pub start: u64,
}

impl Identity {
    /// The process that has this number now; `None` if there is none, or only its zombie.
    pub fn of(pid: i32) -> Option<Identity> {
        let stat = stat_of(pid)?;
        let mut fields = stat.split(' ');
        let state = fields.next()?;
        let start = fields.nth(18)?.parse().ok()?;
        (state != "Z" && state != "X").then_some(Identity { pid, start })
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        Identity::of(self.pid) == Some(self)
    }
}

/// A process that was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its number.
    pub(crate) pid: i32,
    /// Opened before it was looked at: what was looked at is what gets a signal, or nobody does.
    process: io::Result<Pidfd>,
}

/// Selects processes. One matches if it is in one of the network namespaces or has all of the
/// marks; the calling process never does.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Inodes of network namespaces.
    pub(crate) namespaces: Vec<u64>,
    /// Environment entries `NAME=value`; none: match nothing.
    pub(crate) marks: Vec<String>,
}

impl Search {
    /// Whether nothing can match.
    pub(crate) fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.marks.is_empty()
    }

    /// The processes that match now.
    pub(crate) fn find(&self) -> Vec<Found> {
        let own = std::process::id().cast_signed();
        let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
            .filter(|&pid| pid != own)
            // Most do not match, and need not be opened.
            .filter(|&pid| self.matches(pid))
            .filter_map(|pid| Some(Found { pid, process: Pidfd::open(pid).transpose()? }))
            .filter(|found| self.matches(found.pid))
            .collect()
    }

    fn matches(&self, pid: i32) -> bool {
        // Following the link costs more than reading it, but gives the inode without parsing.
        let in_namespace = !self.namespaces.is_empty()
            && namespace_of(Path::new(&format!("/proc/{pid}/ns/net")))
                .is_some_and(|inode| self.namespaces.contains(&inode));
        in_namespace || self.is_marked(pid)
    }

    fn is_marked(&self, pid: i32) -> bool {
        if self.marks.is_empty() {
            return false;
        }
        let Some(environment) = environment_of(pid) else { return false };
        self.marks
            .iter()
            .all(|mark| environment.split(|&b| b == 0).any(|entry| entry == mark.as_bytes()))
    }

    /// Kills what matches until nothing does or `patience` is over. A killed program that forks
    /// faster than it is found is why this repeats.
    pub(crate) fn kill(&self, patience: Duration) -> Killed {
        let until = Instant::now() + patience;
        let mut killed = BTreeMap::new();
        loop {
            let found = self.find();
            if found.is_empty() || Instant::now() > until {
                let survivors = found.into_iter().map(|found| found.pid).collect();
                return Killed { killed, survivors };
            }
            for Found { pid, process } in found {
                let name = name_of(pid);
                // A process that cannot be signalled is found again, and is a survivor in the end.
                if process.is_ok_and(|process| process.signal(Signal::KILL).unwrap_or(false)) {
                    killed.entry(pid).or_insert(name);
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The result of killing processes.
#[derive(Debug, Default)]
pub(crate) struct Killed {
    /// Number and name of each process that was killed.
    pub(crate) killed: BTreeMap<i32, String>,
    /// Processes that still run.
    pub(crate) survivors: Vec<i32>,
}

/// The parent of a process; `None` if there is no such process.
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    stat_of(pid)?.split(' ').nth(1)?.parse().ok()
}

/// `/proc/<pid>/stat` from its third field, the state, on (proc_pid_stat(5)).
fn stat_of(pid: i32) -> Option<String> {
    let mut stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in parentheses and may itself contain spaces and parentheses.
    Some(stat.split_off(stat.rfind(')')? + 2))
}

pub(crate) fn name_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// A process's environment; `None` if it is not to be had. An `execve` under the look leaves
/// nothing or a part of it to read, so only as many bytes as the kernel says there are make an
/// answer.
fn environment_of(pid: i32) -> Option<Vec<u8>> {
    let until = Instant::now() + EXEC;
    loop {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        if size_of_environment(pid) == Some(environment.len()) || Instant::now() > until {
            return Some(environment);
        }
        std::thread::yield_now();
    }
}

/// More than the part of an `execve` takes in which the process has no environment.
const EXEC: Duration = Duration::from_secs(1);

/// Bytes of a process's environment; 0 for what has no memory of its own (a kernel thread, a
/// zombie). `None` while an `execve` lays its memory out: the kernel tells last where the program's
/// code is.
fn size_of_environment(pid: i32) -> Option<usize> {
    let Some(stat) = stat_of(pid) else { return Some(0) };
    let fields = stat.split_ascii_whitespace();
    let fields: Vec<usize> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let (memory, code, environment) = (field(23)?, field(26)?, (field(50)?, field(51)?));
    match (memory, code, environment) {
        (0, _, _) => Some(0),
        (_, 0, _) => None,
        (_, _, (begin, end)) => end.checked_sub(begin),
    }
}

/// Inode of the network namespace that `path` (a `/proc/<pid>/ns/net` or a file that one is mounted
/// on) leads to; `None` if it is something else.
pub fn namespace_of(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    let nsfs = fs::metadata("/proc/self/ns/net").ok()?;
    (metadata.st_dev() == nsfs.st_dev()).then(|| metadata.st_ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn pids(search: &Search) -> Vec<i32> {
        search.find().into_iter().map(|found| found.pid).collect()
    }

    #[test]
    fn an_identity_ends_with_its_process() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id().cast_signed()).unwrap();
        assert!(identity.is_alive());
        assert!(!Identity { start: identity.start + 1, ..identity }.is_alive());
        child.kill().unwrap();
        // A zombie until it is waited for.
        while identity.is_alive() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!identity.is_alive());
    }

    #[test]
    fn all_marks_are_needed_and_no_mark_matches_nothing() {
        let (a, b) =
            (format!("LS_TEST_A={}", std::process::id()), format!("LS_TEST_B={}", line!()));
        let spawn = |marks: &[&String]| {
            let marks = marks.iter().map(|m| m.split_once('=').unwrap());
            // The read of `ready` returns after the first exec, when the environment is the child's
            // own; the second one is looked at while it goes on.
            let mut command = Command::new("sh");
            command.args(["-c", "echo; exec sleep 60"]).envs(marks).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut ready = [0];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
            child
        };
        let (mut both, mut one) = (spawn(&[&a, &b]), spawn(&[&a]));
        let search = Search { namespaces: vec![], marks: vec![a.clone(), b] };
        assert_eq!(pids(&search), [both.id().cast_signed()]);
        let killed = search.kill(Duration::from_secs(5));
        assert_eq!(killed.killed.keys().copied().collect::<Vec<_>>(), [both.id().cast_signed()]);
        assert!(killed.survivors.is_empty());
        both.wait().unwrap();
        assert!(Identity::of(one.id().cast_signed()).is_some());
        assert_eq!(pids(&Search::default()), [0; 0]);
        one.kill().unwrap();
        one.wait().unwrap();
    }

    #[test]
    fn a_process_that_execs_without_end_is_found_at_every_look() {
        let mark = format!("LS_TEST_EXEC={}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let again = r#"exec sh -c "$0" "$0""#;
        let mut child =
            Command::new("sh").args(["-c", again, again]).env(name, value).spawn().unwrap();
        let search = Search { namespaces: vec![], marks: vec![mark.clone()] };
        let pid = child.id().cast_signed();
        let missed = (0..2000).filter(|_| !search.is_marked(pid)).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(missed, 0);
        assert!(!search.is_marked(pid));
    }

    #[test]
    fn a_process_without_environment_has_no_marks() {
        let mut child = Command::new("sleep").arg("60").env_clear().spawn().unwrap();
        let pid = child.id().cast_signed();
        assert_eq!(environment_of(pid), Some(vec![]));
        child.kill().unwrap();
        child.wait().unwrap();
        // Kernel threads have none either, and are no reason to wait.
        assert_eq!(size_of_environment(2), Some(0));
    }
}
