//! Undoing what a ledger says.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::{Entry, RUN_MARK, boot_id, read};
use crate::namespace;
use crate::ownership::Ownership;
use crate::processes::{Killed, namespace_of};
use crate::setting::{MachineLock, lock_machine};

/// The result of undoing.
#[derive(Debug, Default, Serialize)]
pub struct Undone {
    /// Things that were removed, for people.
    pub removed: Vec<String>,
    /// Settings of the machine that somebody else has changed meanwhile, which stay so.
    pub left: Vec<String>,
    /// Things that were not removed, with the reason.
    pub problems: Vec<String>,
}

/// The processes of `run`, which has made `entries`.
pub(crate) fn owned(run: &str, entries: &[Entry]) -> Ownership {
    let cgroup = entries.iter().find_map(|entry| match entry {
        Entry::Cgroup { path } => Some(path.clone()),
        _ => None,
    });
    let namespaces = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Namespace { name } => namespace_of(&namespace::path(name)),
            Entry::Marked { entry, mark } => match &**entry {
                Entry::Namespace { name } if namespace::cookie_of(name).ok() == Some(*mark) => {
                    namespace_of(&namespace::path(name))
                }
                _ => None,
            },
            _ => None,
        })
        .collect();
    Ownership::new(cgroup, vec![format!("{RUN_MARK}={run}")], namespaces)
}

/// Undoes `entries`, last first, after ending every process of `run`.
fn undo(run: &str, entries: &[Entry]) -> Undone {
    let mut undone = Undone::default();
    let outcome = owned(run, entries).kill(Duration::from_secs(5)).unwrap_or_else(|error| {
        undone.problems.push(format!("cannot end the processes of run {run}: {error}"));
        Killed::default()
    });
    for (pid, name) in outcome.killed {
        let known =
            entries.iter().find(|e| matches!(e, Entry::Process { pid: p, .. } if *p == pid));
        undone.removed.push(match known {
            Some(entry) => entry.describe(),
            None => format!("process {pid} ({name})"),
        });
    }
    for pid in outcome.survivors {
        undone.problems.push(format!("process {pid} does not end, even by SIGKILL"));
    }
    undo_entries(entries, &mut undone);
    undone
}

pub(super) fn undo_entries(entries: &[Entry], undone: &mut Undone) {
    for entry in entries.iter().rev() {
        // Before what was set earlier is looked at: a setting may have changed twice.
        undone.left.extend(entry.why_left());
        match entry.undo() {
            Ok(true) => undone.removed.push(entry.describe()),
            Ok(false) => {}
            Err(error) => {
                undone.problems.push(format!("cannot undo {}: {error}", entry.describe()));
            }
        }
    }
}

/// Undoes the ledger at `path`; `machine` is the lock that its agent has held, if it has.
pub(crate) fn undo_file(path: &Path, run: &str, machine: Option<MachineLock>) -> Undone {
    let (entries, mut problems) = match read(path) {
        Ok(content) => content,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Undone::default(),
        Err(error) => (vec![], vec![format!("cannot read {}: {error}", path.display())]),
    };
    // So that another run does not take a value of this one for the machine's own.
    let machine = match machine {
        None if entries.iter().any(|entry| matches!(entry, Entry::Setting { .. })) => {
            match lock_machine() {
                Ok(Some(lock)) => Some(lock),
                Ok(None) => {
                    let what = "another run has changed settings of this machine: reset again when \
                                it has ended";
                    return Undone { problems: vec![what.to_owned()], ..Undone::default() };
                }
                Err(error) => {
                    let what = format!("cannot lock the settings of this machine: {error}");
                    return Undone { problems: vec![what], ..Undone::default() };
                }
            }
        }
        other => other,
    };
    let before_boot = entries.iter().find_map(|entry| match entry {
        Entry::Owner { boot, .. } => Some(*boot != boot_id()),
        _ => None,
    });
    let mut undone = if before_boot == Some(true) {
        let left: Vec<Entry> = entries.into_iter().filter(Entry::outlives_boot).collect();
        let mut undone = Undone::default();
        undo_entries(&left, &mut undone);
        undone
    } else {
        undo(run, &entries)
    };
    drop(machine);
    undone.problems.append(&mut problems);
    if undone.problems.is_empty()
        && let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        undone.problems.push(format!("cannot remove {}: {error}", path.display()));
    }
    undone
}
