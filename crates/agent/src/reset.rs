//! Undoing what crashed runs left on this machine.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rustix::process::Signal;
use serde::Serialize;

use crate::ledger::{self, Entry};
use crate::pidfd::Pidfd;
use crate::processes::Identity;

/// How long an agent whose controller is gone may take to clean up by itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// The result of [`reset`].
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Things that were removed, for people.
    pub removed: Vec<String>,
    /// Runs that go on and were left alone.
    pub in_use: Vec<String>,
    /// Settings of the machine that somebody else has changed meanwhile, which stay so.
    pub left: Vec<String>,
    /// Things that could not be undone.
    pub problems: Vec<String>,
}

/// Undoes every ledger below `state_dir` whose run does not live any more.
pub fn reset(state_dir: &Path) -> io::Result<Report> {
    reset_all(state_dir, reset_one)
}

/// Undoes every ledger below `state_dir` that no process holds, without waiting for any.
pub(crate) fn reset_abandoned(state_dir: &Path) -> io::Result<Report> {
    reset_all(state_dir, |path, report| {
        let lock = |file| Flock::lock(file, FlockArg::LockExclusiveNonblock).ok();
        if let Some(_held) = File::open(path).ok().and_then(lock) {
            undo(path, report);
        }
    })
}

fn reset_all(state_dir: &Path, reset_one: impl Fn(&Path, &mut Report)) -> io::Result<Report> {
    let mut report = Report::default();
    let folder = ledger::folder(state_dir);
    let ledgers = match ledger::check_own(&folder).and_then(|()| fs::read_dir(&folder)) {
        Ok(ledgers) => ledgers,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(report),
        Err(error) => return Err(error),
    };
    let mut paths = ledgers.map(|l| Ok(l?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "jsonl"));
    paths.sort();
    for path in paths {
        reset_one(&path, &mut report);
    }
    Ok(report)
}

/// Undoes the ledger at `path`, if its run does not live any more.
pub(crate) fn reset_ledger(path: &Path) -> Report {
    let mut report = Report::default();
    reset_one(path, &mut report);
    report
}

fn reset_one(path: &Path, report: &mut Report) {
    let run = name_of_run(path);
    let file = match File::open(path) {
        Ok(file) => file,
        // Its agent has just finished cleaning up.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => return report.problems.push(format!("cannot open {}: {e}", path.display())),
    };
    // The holder of this lock knows that no agent of the run is alive.
    let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    if lock.is_err() {
        let owner = owner_of(path);
        if let Some((controller, agent)) = owner
            && controller.is_alive()
            && agent.is_alive()
        {
            report.in_use.push(format!("run {run}, of process {}", controller.pid));
            return;
        }
        lock = retry(lock);
        if lock.is_err() {
            if let Some((_, agent)) = owner
                && let Ok(Some(process)) = Pidfd::open(agent.pid)
                // What has its number is looked at when it cannot become another's any more.
                && agent.is_alive()
                && process.signal(Signal::KILL).unwrap_or(false)
            {
                report.removed.push(format!("agent {} of run {run}, which hung", agent.pid));
            }
            if let Ok((entries, _)) = ledger::read(path)
                && let Err(error) = ledger::owned(&run, &entries).kill(PATIENCE)
            {
                report.problems.push(format!("cannot end the processes of run {run}: {error}"));
            }
            lock = retry(lock);
        }
    }
    if let Err((_, errno)) = lock {
        report.problems.push(format!("cannot lock {}: {errno}", path.display()));
        return;
    }
    undo(path, report);
}

fn name_of_run(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Undoes a ledger whose lock is held.
fn undo(path: &Path, report: &mut Report) {
    let undone = ledger::undo_file(path, &name_of_run(path), None);
    report.removed.extend(undone.removed);
    report.left.extend(undone.left);
    report.problems.extend(undone.problems);
}

type Attempt = Result<Flock<File>, (File, Errno)>;

fn retry(mut lock: Attempt) -> Attempt {
    let until = Instant::now() + PATIENCE;
    while let Err((file, Errno::EWOULDBLOCK)) = lock {
        if Instant::now() > until {
            return Err((file, Errno::EWOULDBLOCK));
        }
        std::thread::sleep(Duration::from_millis(20));
        lock = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    }
    lock
}

fn owner_of(path: &Path) -> Option<(Identity, Identity)> {
    let (entries, _) = ledger::read(path).ok()?;
    entries.into_iter().find_map(|entry| match entry {
        Entry::Owner { controller, agent, .. } => Some((controller, agent)),
        _ => None,
    })
}
