//! Undoing what a ledger says.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::{Entry, RUN_MARK, read};
use crate::namespace;
use crate::processes::{Search, namespace_of};

/// The result of undoing.
#[derive(Debug, Default, Serialize)]
pub struct Undone {
    /// Things that were removed, for people.
    pub removed: Vec<String>,
    /// Things that were not removed, with the reason.
    pub problems: Vec<String>,
}

/// Undoes `entries`, last first, after ending every process that is in their namespaces or carries
/// the run's mark.
fn undo(run: &str, entries: &[Entry]) -> Undone {
    let search = Search {
        namespaces: entries
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
            .collect(),
        marks: vec![format!("{RUN_MARK}={run}")],
    };
    let mut undone = Undone::default();
    let outcome = search.kill(Duration::from_secs(5));
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
        match entry.undo() {
            Ok(true) => undone.removed.push(entry.describe()),
            Ok(false) => {}
            Err(error) => {
                undone.problems.push(format!("cannot remove {}: {error}", entry.describe()));
            }
        }
    }
}

/// Undoes the ledger at `path`.
pub(crate) fn undo_file(path: &Path, run: &str) -> Undone {
    let (entries, mut problems) = match read(path) {
        Ok(content) => content,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Undone::default(),
        Err(error) => (vec![], vec![format!("cannot read {}: {error}", path.display())]),
    };
    let mut undone = undo(run, &entries);
    undone.problems.append(&mut problems);
    if undone.problems.is_empty()
        && let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        undone.problems.push(format!("cannot remove {}: {error}", path.display()));
    }
    undone
}
